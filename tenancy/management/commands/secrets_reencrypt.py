"""`manage.py secrets_reencrypt`: after a change of the key, so that the old one can be taken away."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from common.encryption import Unreadable, is_current, seal, unseal
from tenancy.models import RegistryCredential, Secret


class Command(BaseCommand):
    help = "Encrypts all secrets and registry credentials anew under ASTRAEUS_ENCRYPTION_KEY."

    def handle(self, *_: Any, **__: Any) -> None:
        done, unread = 0, []
        for model in (Secret, RegistryCredential):
            for key in model.objects.order_by("id").values_list("id", flat=True):
                try:
                    done += _reencrypt(model, key)
                except Unreadable as error:
                    unread.append(f"{model.__name__} {key}: {error}")
        self.stdout.write(f"{done:,} encrypted anew.")
        if unread:
            raise CommandError("These can't be read; set them anew:\n" + "\n".join(unread))


@transaction.atomic
def _reencrypt(model: type[Secret] | type[RegistryCredential], key: int) -> bool:
    """True when it was encrypted under an older key. Raises Unreadable."""
    row = model.objects.select_for_update().filter(id=key).first()
    if row is None or is_current(bytes(row.sealed)):
        return False
    row.sealed = seal(unseal(bytes(row.sealed), row.owner), row.owner)
    row.save(update_fields=["sealed"])
    return True
