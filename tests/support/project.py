"""The folder of the checkout, and the project's modules in it."""

from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_SKIPPED = {"node_modules", "cdk.out", "build", "dist"}


def modules() -> Iterator[Path]:
    """Yield the project's own modules."""
    folders = [PROJECT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.name.startswith(".") or path.name in _SKIPPED or path.is_symlink():
                continue
            if path.is_dir():
                folders.append(path)
            elif path.suffix == ".py":
                yield path
