"""The rooms that docs/architecture.md names are the rooms of the tree: each room has a row, each row names a room."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import PROJECT
from tools.generate import DOCS

_PAGE = DOCS / "architecture.md"
_NO_ROOMS = ("node_modules", "runs")  # git has none of them


def _rooms_of_the_page(folder: str) -> set[str]:
    """Return what the first table below the line that begins with the folder names in its column `room`."""
    _, line, below = _PAGE.read_text(encoding="utf-8").partition(f"\n`{folder}`, lowest layer first:\n")
    assert line, f"{_PAGE.name} has no line '`{folder}`, lowest layer first:' with a table of rooms below"
    head, _, *rows = [_cells(row) for row in below.lstrip("\n").partition("\n\n")[0].splitlines()]
    return set(re.findall(r"`(\w+)`", " ".join(row[head.index("room")] for row in rows)))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split(" |")]


def _rooms_of_the_tree(folder: Path) -> Iterator[str]:
    """Yield the modules and packages in a folder, not the folder's own `__init__` and `__main__`."""
    for path in folder.iterdir():
        if (path.suffix == ".py" and not path.stem.startswith("__")) or any(path.glob("**/*.py")):
            yield path.stem


@pytest.mark.parametrize("folder", ["sluice/", "sluice/messaging/", "spark_load/"])
def test_every_room_has_a_row_on_the_architecture_page(folder: str) -> None:
    """A visitor finds each room on the page, and each room of the page in the tree."""
    page, tree = _rooms_of_the_page(folder), set(_rooms_of_the_tree(PROJECT / folder))

    assert tree - page == set(), f"write these rooms of {folder} into its table in docs/architecture.md"
    assert page - tree == set(), f"take these rooms out of the table of {folder} in docs/architecture.md: they are gone"


def test_every_folder_with_python_has_a_row_on_the_architecture_page() -> None:
    """The first table of the page names the folders of the project that hold Python files."""
    table = _PAGE.read_text(encoding="utf-8").partition("\n## The rooms\n")[2].partition("A *room* is")[0]
    page = {name for row in table.splitlines() for name in re.findall(r"`(\w+)/`", row.partition(" | ")[0])}

    folders = [path for path in PROJECT.iterdir() if path.name.isidentifier() and path.name not in _NO_ROOMS]
    tree = {path.name for path in folders if any(path.glob("**/*.py"))}
    assert page == tree, "docs/architecture.md, first table: one row a folder"
