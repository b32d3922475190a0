"""Values encrypted at rest (AES-256-GCM), each bound to its owner: moved to another row it can't be read.

The keys are derived from `settings.ENCRYPTION_KEYS`: the first encrypts, all of them decrypt. To change the key, put
the new one in front, run `manage.py secrets_reencrypt`, and take the old one away.
"""

import hashlib
import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

FORMAT = b"\x01"
KEY_BYTES = 32
ID_BYTES = 4
NONCE_BYTES = 12
_HEAD = len(FORMAT) + ID_BYTES
_PURPOSE = b"astraeus values at rest 1"


class Unreadable(Exception):
    """No key of the settings opens this value."""


def seal(value: str, owner: str) -> bytes:
    """`value` encrypted under the first key: format, the key's id, a nonce and the ciphertext.

    `owner` names what it belongs to, such as "secret:7:hf"; only with the same it opens again.
    """
    identity, key = next(iter(_keys().items()))
    nonce = os.urandom(NONCE_BYTES)
    return FORMAT + identity + nonce + AESGCM(key).encrypt(nonce, value.encode(), owner.encode())


def unseal(sealed: bytes, owner: str) -> str:
    """What `seal` was given. Raises Unreadable."""
    key = _keys().get(_identity(sealed))
    if key is None:
        raise Unreadable("it is encrypted under a key that ASTRAEUS_OLD_ENCRYPTION_KEYS does not list")
    nonce, ciphertext = sealed[_HEAD : _HEAD + NONCE_BYTES], sealed[_HEAD + NONCE_BYTES :]
    try:
        return AESGCM(key).decrypt(nonce, ciphertext, owner.encode()).decode()
    except (InvalidTag, ValueError):
        raise Unreadable("it is damaged, or belongs to something else") from None


def is_current(sealed: bytes) -> bool:
    """Whether the first key has encrypted it."""
    return _identity(sealed) == next(iter(_keys()))


def _identity(sealed: bytes) -> bytes:
    return sealed[len(FORMAT) : _HEAD] if sealed.startswith(FORMAT) else b""


def _keys() -> dict[bytes, bytes]:
    """Key by its id, the one that encrypts first."""
    return _derived(tuple(settings.ENCRYPTION_KEYS))


@lru_cache(maxsize=4)
def _derived(texts: tuple[str, ...]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for text in texts:
        key = HKDF(SHA256(), KEY_BYTES, salt=None, info=_PURPOSE).derive(text.encode())
        # The id tells keys apart and nothing about them.
        found.setdefault(hashlib.sha256(_PURPOSE + key).digest()[:ID_BYTES], key)
    return found
