from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        """Loads what registers itself: system checks, the listener for changed clusters, and the Celery
        application, without which this process would queue tasks at a broker of its own imagination.
        """
        from console import celery, checks
        from runs.scheduling import passes

        assert all((celery, checks, passes))  # noqa: S101 - imported for what they register
