"""Find, import and check a project's `environments.py`.

Commands, stacks and test fixtures call it; all other code is given the values. Each file is read once. A fault of the
file is reported in one line with the file's name and the line's number, and never as a traceback.
"""

import ast
import builtins
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import EnumType
from functools import cache
from pathlib import Path
from types import ModuleType

from sluice.declaration import naming, task_settings
from sluice.declaration.environment import Environment
from sluice.declaration.validation import did_you_mean, nearest, value_text
from sluice.errors import ConfigError, FieldError
from sluice.terminal.printable import printable

VARIABLE = "SLUICE_DECLARATION"
_FILE = "environments.py"
_MODULE = "environments"
_NAME = "ENVIRONMENTS"
_LIBRARY = Path(__file__).resolve().parents[1]
_RAISED_CHARACTERS_MAX = 500


class Declaration(Mapping[str, Environment]):
    """The declared environments by name, in their order.

    Args:
        environments: each name once.
        source: the name of their file, for refusals.
        path: the file; None in a task, whose stack gave it the declaration in a variable.

    Raises:
        ConfigError: two have the same name, or different applications, or a name that follows from them is too long.
    """

    def __init__(self, environments: Iterable[Environment], *, source: str, path: Path | None = None) -> None:
        declared = tuple(environments)
        self.source, self.path = source, path
        self._by_name = {environment.name: environment for environment in declared}
        names = [environment.name for environment in declared]
        if len(self._by_name) < len(names):
            raise ConfigError(f"{_NAME} is {names}, allowed is each name once; change it in {source}")
        applications = list(dict.fromkeys(environment.application for environment in declared))
        if len(applications) > 1:
            raise ConfigError(
                f"{_NAME} have the applications {applications}, allowed is one for all of them; change it in {source}"
            )
        for environment in declared:
            for consumer in environment.consumers:
                try:
                    naming.undelivered_queue_name(environment, consumer)  # the longest name of a queue
                    if consumer.runtime is not None:
                        naming.function_name(environment, consumer)
                except ConfigError as error:
                    raise ConfigError(f"{error} in {source}") from error

    def __getitem__(self, name: str) -> Environment:
        """Return the environment of this name."""
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        """Return the names in their order."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Return the number of environments."""
        return len(self._by_name)

    def environment(self, name: str) -> Environment:
        """Return the declared environment of this name.

        Raises:
            ConfigError: no environment has this name.
        """
        if name not in self:
            raise ConfigError(
                f"environment {value_text(name)} is not declared{did_you_mean(nearest(name, self))}, allowed is one of"
                f" {', '.join(self)}; declare it in {self.source}"
            )
        return self[name]


def load_declaration(path: Path | None = None) -> Declaration:
    """Return the declaration in a file.

    The file is imported as module `environments`. Its folder is put on Python's path, for the modules that the file
    imports and for handlers.

    Args:
        path: the file; None is that of $SLUICE_DECLARATION, or else `environments.py` in the working directory.

    Raises:
        ConfigError: there is no such file, or a value in it is wrong.

    Runs: in the process's main thread, before other threads start; a file is read once.
    """
    return _load((_default_path() if path is None else path).resolve())


def is_declared() -> bool:
    """Return whether there is a declaration, for commands that can also work without one.

    There is one if $SLUICE_DECLARATION is set, or if the working directory has an `environments.py`.
    """
    return VARIABLE in os.environ or _default_path().exists()


def _default_path() -> Path:
    """Return the declaration's file where the caller names none."""
    return Path(os.environ.get(VARIABLE, _FILE))


def load_task_declaration(path: Path | None = None) -> Declaration:
    """Return the declaration that a stack gave this task; outside of a task, or with a path, the one in the file.

    A task is given only the part of an environment that it reads, so commands that deploy call `load_declaration`.

    Raises:
        ConfigError: there is no declaration, or a value in it is wrong.
    """
    settings = os.environ.get(task_settings.VARIABLE)
    if path is not None or settings is None:
        return load_declaration(path)
    return Declaration((task_settings.parse(settings),), source=f"${task_settings.VARIABLE}")


@cache
def _load(path: Path) -> Declaration:
    """Import a file as module `environments`, and return its declaration; on an error, restore the earlier module."""
    source = _path_text(path)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"there is no declaration {source} ({error.strerror}); go to your project's folder, name the file with"
            f" --declaration or {VARIABLE}, or write a project with `sluice init`"
        ) from error
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    earlier_module = sys.modules.get(_MODULE)
    sys.modules[_MODULE] = module
    try:
        # An `import` could use an old compiled file: Python does not notice a change within the same second.
        exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102 (the user's own file)
        return Declaration(_environments(module, source), source=source, path=path)
    except BaseException as error:
        sys.modules.pop(_MODULE)
        if earlier_module is not None:
            sys.modules[_MODULE] = earlier_module
        if isinstance(error, KeyboardInterrupt) or (
            isinstance(error, ConfigError) and not _project_frames(error, path)
        ):
            raise
        raise ConfigError(f"{_sentence(error, module)}; change it in {_location(error, path)}") from error


def _environments(module: ModuleType, source: str) -> tuple[Environment, ...]:
    """Return the module's `ENVIRONMENTS`; refuse a module without it, or a value that is no tuple of environments."""
    allowed = f"allowed is a tuple of Environment values, such as {_NAME} = (Environment(…),); change it in {source}"
    if not hasattr(module, _NAME):
        intended = nearest(_NAME, vars(module))
        raise ConfigError(f"there is no {_NAME} in {source}{did_you_mean(intended)}, {allowed}")
    found = module.ENVIRONMENTS
    if not isinstance(found, tuple) or not found:
        shown = "empty" if isinstance(found, tuple) else f"of type {type(found).__name__}"
        raise ConfigError(f"{_NAME} is {shown}, {allowed}")
    for number, declared in enumerate(found):
        if not isinstance(declared, Environment):
            raise ConfigError(f"{_NAME}[{number}] is of type {type(declared).__name__}, {allowed}")
    return found


def _sentence(error: BaseException, module: ModuleType) -> str:
    """Return an error of a declaration in one line; for an unknown name, with the name that was probably meant."""
    if isinstance(error, ConfigError):
        return str(error)
    text = " ".join(printable(error).split())
    if isinstance(error, SyntaxError):
        text = error.msg
    elif isinstance(error, AttributeError) and isinstance(error.obj, EnumType):
        name, members = error.obj.__name__, " or ".join(map(str, error.obj))
        return (
            f"{name} has no {value_text(error.name)}{did_you_mean(_probable_name(error, module))}, allowed is {members}"
        )
    elif "Did you mean" not in text:
        text += did_you_mean(_probable_name(error, module))
    return f"{type(error).__name__}: {text}"[:_RAISED_CHARACTERS_MAX]


def _probable_name(error: BaseException, module: ModuleType) -> str | None:
    """Return the known name that is most like the unknown one in an error; None where none is like it."""
    known: Iterable[str] = ()
    name: object = getattr(error, "name", None)
    if isinstance(error, NameError):
        known = {*vars(module), *vars(builtins), *vars(sys.modules["sluice.declaration"])}
    elif isinstance(error, AttributeError):
        known = dir(error.obj)
    elif isinstance(error, ModuleNotFoundError):
        known = sys.modules
    elif isinstance(error, ImportError):
        known, name = dir(sys.modules.get(error.name or "")), error.name_from
    return nearest(name, known) if isinstance(name, str) else None


def _location(error: BaseException, path: Path) -> str:
    """Return file and line of an error: the line of the wrong field if it is written in a call, else of the last call.

    Only calls in the project's own files count.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_path_text(Path(error.filename))}:{error.lineno}"
    frames = _project_frames(error, path)
    if not frames:
        return _path_text(path)
    if isinstance(error, FieldError):
        for frame in reversed(frames):
            line = _line_of_field(frame, error.field)
            if line is not None:
                return f"{_path_text(Path(frame.filename))}:{line}"
    return f"{_path_text(Path(frames[-1].filename))}:{frames[-1].lineno}"


def _project_frames(error: BaseException, path: Path) -> Sequence[traceback.FrameSummary]:
    """Return the frames of an error's traceback that are in the project's own files, the innermost last."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if (file := Path(frame.filename)).is_relative_to(path.parent)
        and not file.is_relative_to(_LIBRARY)
        and "site-packages" not in file.parts
    ]


def _line_of_field(frame: traceback.FrameSummary, field: str) -> int | None:
    """Return the line of `field=` in the call that a frame is at; None where the call does not name the field."""
    span = (frame.lineno, frame.end_lineno, frame.colno)
    for node in ast.walk(ast.parse(Path(frame.filename).read_bytes())):
        if isinstance(node, ast.Call) and (node.lineno, node.end_lineno, node.col_offset) == span:
            return next((keyword.lineno for keyword in node.keywords if keyword.arg == field), None)
    return None


def _path_text(path: Path) -> str:
    """Return a file's path, relative to the working directory if it is inside of it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
