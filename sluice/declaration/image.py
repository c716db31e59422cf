"""Container images: which names of them can be deployed and gone back to, and whose registry they are pulled from."""

import re
from typing import Any

from sluice.declaration.validation import require

_REGISTRY = r"([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?/)"
_REPOSITORY = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_VERSION = r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})"


def registry(image: str) -> str | None:
    """Return the host an image is pulled from; None for the account's own ECR."""
    host, slash, _ = image.partition("/")
    return host if slash and "." in host else None


def check_image(value: Any) -> None:
    """Refuse a declared value whose `image` cannot be deployed, or not be gone back to."""
    image: str | None = value.image
    require(
        value,
        image is None or not image.endswith(":latest"),
        field="image",
        allowed="a tag that stays what it is: a new 'latest' is not deployed, and there is no old one to go back to",
    )
    require(
        value,
        image is None or re.fullmatch(rf"{_REGISTRY}?{_REPOSITORY}{_VERSION}", image),
        field="image",
        allowed="an image with its tag or digest: 'repository:tag' in the environment's own ECR, or a whole URI",
    )
