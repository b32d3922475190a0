"""Django's settings, read from the environment only. docs/settings.md lists every variable."""

from pathlib import Path
from urllib.parse import urlsplit

import dj_database_url

from console import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = env.flag("ASTRAEUS_DEBUG", default=False)
SECRET_KEY = env.text("ASTRAEUS_SECRET_KEY")
ENCRYPTION_KEYS = [
    env.text("ASTRAEUS_ENCRYPTION_KEY", SECRET_KEY),
    *env.text("ASTRAEUS_OLD_ENCRYPTION_KEYS", "").split(),
]
"""Secrets of workspaces are encrypted with the first and read with any of them (common/encryption.py)."""
PUBLIC_URL = env.address("ASTRAEUS_PUBLIC_URL", "http://127.0.0.1:8000", schemes=("http", "https")).rstrip(
    "/"
)
"""How people and agents reach the console: stands in every address it prints."""
_public = urlsplit(PUBLIC_URL)
HTTPS = _public.scheme == "https"
DEMO_LOGIN = env.flag("ASTRAEUS_DEMO_LOGIN", default=False)
"""Signed sign-in links, as `./dev demo` prints them."""
ALLOWED_HOSTS = env.names("ASTRAEUS_ALLOWED_HOSTS", _public.hostname or "")
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]

INSTALLED_APPS = [
    "console",
    "runs",
    "machines",
    "tenancy",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "django_htmx",
    "template_partials",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "console.middleware.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.context.everywhere",
            ],
        },
    },
]

DATABASES = {
    "default": dj_database_url.parse(env.address("DATABASE_URL", schemes=("postgres", "postgresql")))
}
DATABASES["default"]["CONN_MAX_AGE"] = 0
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
"""The pool looks at a connection before it hands it out: none is left from before a restart of PostgreSQL."""
DATABASES["default"]["OPTIONS"] = {
    # A pool instead of CONN_MAX_AGE: threads of the ASGI server share connections, and none outlives its use.
    "pool": {
        "min_size": 1,
        "max_size": env.number("ASTRAEUS_DATABASE_POOL", 16, low=2, high=200),
        "timeout": 10,
    },
    # Statements that ask for it keep their plan (runs/scheduling/rows.py); no cursor of Django's ever does.
    "prepare_threshold": 5,
}
REDIS_URL = env.address("REDIS_URL", schemes=("redis", "rediss", "unix"))

AUTH_USER_MODEL = "tenancy.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email*", "password1*", "password2*"]
ACCOUNT_ADAPTER = "console.accounts.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_RATE_LIMITS = {"login_failed": "10/m/ip,5/5m/key"}
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
SESSION_ENGINE = "django.contrib.sessions.backends.db"

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = env.text("ASTRAEUS_STATIC_ROOT", str(BASE_DIR / ".astraeus" / "static"))
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}
    if env.flag("ASTRAEUS_HASHED_STATIC", default=not DEBUG)
    else {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}

SECURE_SSL_REDIRECT = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = 31536000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
CSRF_FAILURE_VIEW = "console.pages.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenancy.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "common.problem.exception_handler",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Astraeus",
    "DESCRIPTION": "Runs, workers and machines of an Astraeus console.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1/o/{organization}(/w/{workspace}|/clusters/{cluster}(?=/))?",
    "POSTPROCESSING_HOOKS": ["console.api.schema.complete"],
}

RECORDS_DAYS = env.number("ASTRAEUS_RECORDS_DAYS", 14, low=1, high=3650)
RECORDS_PER_RUN = env.number("ASTRAEUS_RECORDS_PER_RUN", 200, low=1, high=100_000)
RECORDS_MIB = env.number("ASTRAEUS_RECORDS_MIB", 256, low=1, high=1_000_000)
"""How long decisions of passes are kept (runs/scheduling/retention.py)."""

CELERY_BROKER_URL = REDIS_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "react"
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "max_retries": 0,  # of those who queue a task; workers reconnect by themselves
}
CELERY_TASK_PUBLISH_RETRY = (
    False  # a sweep does what a lost nudge would have; a request never waits for Redis
)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {
        "handlers": ["stderr"],
        "level": env.choice("ASTRAEUS_LOG_LEVEL", "INFO", known=("DEBUG", "INFO", "WARNING", "ERROR")),
    },
    "loggers": {"httpx": {"level": "WARNING"}},
}
