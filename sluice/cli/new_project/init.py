"""`sluice init`: write a new project from the files in `sluice/templates/project`. The project then is the user's.

The templates are valid Python for a project called `project-name` whose package is `project_module`; both names are
replaced in texts and paths. A path that begins with `dot_` begins with a dot in the project. Sluice's own wheel is
written too. A project on Lambda also has the files of `sluice/templates/function`, in place of those of the same name.
"""

import importlib.util
import keyword
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from sluice.cli.new_project.own_wheel import write_wheel
from sluice.declaration.environment import APPLICATION
from sluice.errors import ConfigError, unwritable
from sluice.terminal import output

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
_FOLDERS = {"tasks": ("project",), "lambda": ("project", "function")}
"""By the value of `--runtime`: the folders of templates. A file of a later folder replaces the same of an earlier."""
_OWN = ("app", "environments", "load", "stacks", "tests")
"""Folders and modules that each project has, so that its package cannot have their name."""


@click.command()
@click.argument("name")
@click.option(
    "--runtime",
    type=click.Choice([*_FOLDERS]),
    default="tasks",
    show_default=True,
    help="What runs the consumer's handlers: ECS tasks, or a Lambda function.",
)
def init(name: str, runtime: str) -> None:
    """Write a new project in folder NAME: one topic, one consumer with its tests, CDK app, load profile, CI.

    \b
    NAME is lower-case letters, digits and hyphens; its Python package has underscores instead.
    What is written is yours: no other command, and no later version of Sluice, changes a file of it.
      sluice init order-invoices
      cd order-invoices
      make try
      sluice init order-invoices --runtime lambda
    """
    folder = Path(name)
    _check_name(name)
    try:
        _check_folder(folder)
        _write(folder, _replacements(name), _FOLDERS[runtime])
    except OSError as error:
        next_step = "nothing is left of it; look at the disk's space and the permissions of the working directory"
        raise unwritable(f"folder {name!r}", error, next_step) from error
    output.line(f"{name}/ is written, and yours: no version of Sluice changes a file in it. Next:")
    own = ("make function",) if runtime == "lambda" else ()
    for command in (f"cd {name}", "make try", "make setup test", *own, "make synth ENV=dev"):
        output.line(f"  {command}")


def _check_name(name: str) -> None:
    """Refuse a name that is not allowed, or whose package would have the name of another module."""
    module = _module(name)
    pattern, allowed = APPLICATION
    if not re.fullmatch(pattern, name):
        raise ConfigError(f"NAME is {name!r}, allowed is {allowed}, such as order-invoices")
    if keyword.iskeyword(module) or module in _OWN or module in sys.stdlib_module_names or _is_installed(module):
        raise ConfigError(f"NAME is {name!r}, and Python has a module {module!r} already; choose another name")


def _is_installed(module: str) -> bool:
    """Return whether Python finds a module of this name; a folder without `__init__.py` is none."""
    found = importlib.util.find_spec(module)
    return found is not None and found.origin is not None


def _check_folder(folder: Path) -> None:
    """Refuse a path that is a file, a symbolic link, or a folder with something in it."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{str(folder)!r} is there and is no folder; choose another name, or move it away")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"folder {str(folder)!r} is there and not empty, and nothing in it was changed; choose another name, or"
            " another working directory"
        )


def _replacements(name: str) -> dict[str, str]:
    """Return the project's names by the placeholders that the templates have for them."""
    return {"project_module": _module(name), "project-name": name}


def _module(name: str) -> str:
    """Return the name of the project's package."""
    return name.replace("-", "_")


def _write(folder: Path, replacements: dict[str, str], sources: Sequence[str]) -> None:
    """Write the project beside its place, and move it there when it is complete: all of it is written, or nothing."""
    beside = Path(tempfile.mkdtemp(prefix=".sluice-init-", dir=folder.parent))
    try:
        project = beside / "project"
        for place, template in _templates(sources).items():
            file = project / _fill_placeholders(place.replace("dot_", "."), replacements)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_fill_placeholders(template.read_text(encoding="utf-8"), replacements), encoding="utf-8")
        (project / "wheels").mkdir()
        write_wheel(project / "wheels")
        project.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _templates(sources: Sequence[str]) -> dict[str, Path]:
    """Return the templates by their path in the project, without the compiled files that pip writes beside them."""
    found: dict[str, Path] = {}
    for source in sources:
        folder = _TEMPLATES / source
        files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.parent.name != "__pycache__")
        found |= {str(file.relative_to(folder)): file for file in files}
    return found


def _fill_placeholders(text: str, replacements: dict[str, str]) -> str:
    for placeholder, name in replacements.items():
        text = text.replace(placeholder, name)
    return text
