"""Container images: the names that can be deployed and rolled back to, their registries and their processors."""

import re
from enum import Enum
from typing import Any, NamedTuple

from sluice.declaration.validation import require

_REGISTRY = r"((?P<registry>[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?)/)"
_REPOSITORY = r"(?P<repository>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
_TAG = r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))"
_DIGEST = r"(@(?P<digest>sha256:[0-9a-f]{64}))"
_IMAGE = re.compile(rf"{_REGISTRY}?{_REPOSITORY}{_TAG}?{_DIGEST}?")


class Architecture(Enum):
    """The processors that tasks run on: x86 as the build machines of most CI have, or ARM, a fifth cheaper."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


class Image(NamedTuple):
    """An image's registry (None for the account's own ECR), its repository, and its digest or else its tag."""

    registry: str | None
    repository: str
    version: str


def image_of(image: str) -> Image | None:
    """Return the parts of an image's name; None for a text that is no image's name, or has neither tag nor digest.

    Of a name with both, the digest is the version: it alone decides which image is pulled.
    """
    found = _IMAGE.fullmatch(image)
    version = found and (found["digest"] or found["tag"])
    return Image(found["registry"], found["repository"], version) if found and version else None


def check_image(value: Any) -> None:
    """Refuse an environment or a consumer whose `image` could not be deployed, or not be rolled back to."""
    image: str | None = value.image
    require(
        value,
        image is None or not image.endswith(":latest"),
        field="image",
        allowed="a tag that stays what it is: a new 'latest' is not deployed, and there is no old one to go back to",
    )
    require(
        value,
        image is None or image_of(image),
        field="image",
        allowed="an image with its tag, its digest or both: 'repository:tag' in the environment's own ECR, or a whole"
        " URI",
    )
