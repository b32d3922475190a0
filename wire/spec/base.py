"""The ground that the document's models stand on: a strict base model and the text types with their rules."""

import posixpath
import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from wire import names

MAX_PATH_BYTES: Final = 4095
MAX_PATH_PART_BYTES: Final = 255
MAX_IMAGE: Final = 512
SYSTEM_PATHS: Final = ("/proc", "/sys", "/dev")


class Part(BaseModel):
    """An object of the document: nothing is converted, no field is unknown, nothing changes afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def checked(code: str, check: Callable[[str], str]) -> AfterValidator:
    """Validator of a text: `check` raises ValueError with the sentence, `code` becomes the error's code."""

    def validate(text: str) -> str:
        try:
            return check(text)
        except ValueError as error:
            # The sentence travels as a value: braces in what the user wrote are no placeholders.
            raise PydanticCustomError(code, "{sentence}", {"sentence": str(error)}) from None

    return AfterValidator(validate)


def check_absolute_path(path: str) -> str:
    """An absolute, normalized path of ordinary characters."""
    names.check_line(path)
    if not path.startswith("/"):
        raise ValueError(f"{names.shown(path)} is relative. Write the whole path, from `/` on.")
    _check_parts(path)
    # POSIX lets "//" mean something of its own, so normpath keeps it.
    normal = posixpath.normpath(path).replace("//", "/")
    if normal != path:
        raise ValueError(f"{names.shown(path)} is not in its shortest form. Write {names.shown(normal)}.")
    return path


def check_mount_path(path: str) -> str:
    """A path at which something may be mounted in a worker."""
    check_absolute_path(path)
    if path == "/":
        raise ValueError("A mount at `/` would cover the whole system. Choose a directory below it.")
    for system in SYSTEM_PATHS:
        if path == system or path.startswith(f"{system}/"):
            raise ValueError(
                f"{names.shown(path)} covers `{system}`, which belongs to the system. Choose another path."
            )
    return path


def check_sub_path(path: str) -> str:
    """A normalized path below a drive's root."""
    names.check_line(path)
    if path.startswith("/"):
        raise ValueError(
            f"{names.shown(path)} is absolute. Write it from the drive's root on, without the first `/`."
        )
    _check_parts(path)
    if posixpath.normpath(path) != path or path == ".":
        raise ValueError(
            f"{names.shown(path)} is not in its shortest form. Leave out `.`, `//` and a `/` at the end."
        )
    return path


def _check_parts(path: str) -> None:
    parts = path.split("/")
    if ".." in parts:
        raise ValueError(f"{names.shown(path)} has `..` in it. Write the path that it leads to.")
    if len(path.encode()) > MAX_PATH_BYTES or any(len(part.encode()) > MAX_PATH_PART_BYTES for part in parts):
        raise ValueError(
            f"{names.shown(path)} is too long: at most {MAX_PATH_BYTES} bytes in all and "
            f"{MAX_PATH_PART_BYTES} "
            "between two slashes."
        )


_HOST_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?"
_HOST = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[0-9a-fA-F:]+\])"
_IMAGE_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
IMAGE_PATTERN: Final = (
    rf"^(?:{_HOST}(?::[0-9]{{1,5}})?/)?{_IMAGE_PART}(?:/{_IMAGE_PART})*"
    r"(?::[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(?:@sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128}))?$"
)


def check_image(text: str) -> str:
    """An OCI image reference: `[registry[:port]/]path[:tag][@digest]`."""
    if len(text) > MAX_IMAGE or not re.fullmatch(IMAGE_PATTERN[1:-1], text):
        raise ValueError(
            f"{names.shown(text)} is not an image's name. Write it as `registry/path:tag` in lower case, "
            "such as `nvcr.io/nvidia/pytorch:24.08-py3`."
        )
    return text


USER_PATTERN: Final = r"^(?:[0-9]{1,10}|[a-z_][-a-z0-9_]{0,31})(?::(?:[0-9]{1,10}|[a-z_][-a-z0-9_]{0,31}))?$"


def check_user(text: str) -> str:
    """A user and, after a colon, a group: names or numbers."""
    if not re.fullmatch(USER_PATTERN[1:-1], text):
        raise ValueError(
            f"{names.shown(text)} is not a user. Write `1000`, `1000:1000`, `name` or `name:group`."
        )
    return text


def check_url_path(text: str) -> str:
    """The path of an HTTP probe."""
    names.check_line(text)
    if not text.startswith("/") or " " in text or not text.isascii():
        raise ValueError(
            f"{names.shown(text)} is not a path of an address. Begin with `/` and encode what is not ASCII."
        )
    if len(text) > MAX_PATH_BYTES:
        raise ValueError(f"{names.shown(text)} is too long: at most {MAX_PATH_BYTES} characters.")
    return text


def _schema(pattern: str, limit: int | None = None) -> object:
    """What the JSON Schema says about a text; the check itself has the better sentence."""
    extra: dict[str, str | int] = {"pattern": pattern}
    if limit is not None:
        extra["maxLength"] = limit
    return Field(json_schema_extra=extra)  # type: ignore[arg-type]  # JSON values, invariant in pydantic's type


RunName = Annotated[
    str, checked("bad_name", names.check_run_name), _schema(names.DNS_LABEL_PATTERN, names.MAX_RUN_NAME)
]
Slug = Annotated[
    str, checked("bad_name", names.check_slug), _schema(names.DNS_LABEL_PATTERN, names.MAX_DNS_LABEL)
]
MachineName = Annotated[
    str, checked("bad_name", names.check_machine_name), _schema(names.DNS_NAME_PATTERN, names.MAX_DNS_NAME)
]
LabelKey = Annotated[str, checked("bad_label", names.check_label_key), _schema(names.LABEL_KEY_PATTERN)]
LabelValue = Annotated[
    str,
    checked("bad_label", names.check_label_value),
    _schema(names.LABEL_VALUE_PATTERN, names.MAX_DNS_LABEL),
]
EnvName = Annotated[
    str, checked("bad_env_name", names.check_env_name), _schema(names.ENV_NAME_PATTERN, names.MAX_ENV_NAME)
]
Line = Annotated[str, Field(max_length=MAX_PATH_BYTES), checked("bad_text", names.check_line)]
AbsolutePath = Annotated[str, checked("bad_path", check_absolute_path), _schema(r"^/", MAX_PATH_BYTES)]
MountPath = Annotated[str, checked("bad_mount_path", check_mount_path), _schema(r"^/.", MAX_PATH_BYTES)]
SubPath = Annotated[str, checked("bad_path", check_sub_path), _schema(r"^[^/]", MAX_PATH_BYTES)]
Image = Annotated[str, checked("bad_image", check_image), _schema(IMAGE_PATTERN, MAX_IMAGE)]
User = Annotated[str, checked("bad_user", check_user), _schema(USER_PATTERN)]
UrlPath = Annotated[str, checked("bad_path", check_url_path), _schema(r"^/[!-~]*$", MAX_PATH_BYTES)]
