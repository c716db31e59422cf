"""The pytest plug-in, installed for a test run that this test starts: by the entry point in pyproject.toml."""

import tomllib
from pathlib import Path

from tests.support.project import PROJECT

_METADATA = "Metadata-Version: 2.1\nName: sluice-plugin\nVersion: 0\n"


def install(folder: Path) -> Path:
    """Write a distribution with the entry point into a folder, and return the folder for the Python path.

    If Sluice itself is installed, its entry point has the same name, and pytest loads one of them.
    """
    with (PROJECT / "pyproject.toml").open("rb") as file:
        entry_points = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    lines = ["[pytest11]", *(f"{name} = {value}" for name, value in entry_points.items())]
    info = folder / "sluice_plugin-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(_METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
