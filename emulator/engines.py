"""Engines of the emulator: LocalStack, or LocalEmu, which descends from it and is started and asked in the same way.

`SLUICE_EMULATOR` chooses one; which is the default, and until when, is decision 19.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice.errors import ConfigError, EndpointError

CHOICE = "SLUICE_EMULATOR"
_PROJECT = Path(__file__).resolve().parent.parent
_LOCKS = Path(__file__).resolve().parent / "locks"
_ENVIRONMENTS = _PROJECT / ".venv-conformance"
_INSTALL_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An emulator: LocalStack, or a descendant of it.

    Args:
        name: stable: of its Python package, of the target of the contracts, and in SLUICE_EMULATOR.
        title: as people call it.
        version: that its lock file pins.
        host_variable: what tells it under which address it is reached.
    """

    name: str
    title: str
    version: str
    host_variable: str

    def __str__(self) -> str:
        return f"{self.title} {self.version}"


LOCALSTACK = Engine(name="localstack", title="LocalStack", version="4.14.0", host_variable="LOCALSTACK_HOST")
LOCALEMU = Engine(name="localemu", title="LocalEmu", version="1.3.2", host_variable="LOCALEMU_HOST")
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (LOCALSTACK, LOCALEMU)}


def choose() -> Engine:
    """Return the engine that SLUICE_EMULATOR names; without it LocalStack.

    Raises:
        ConfigError: it names none.
    """
    name = os.environ.get(CHOICE) or LOCALSTACK.name
    if name not in ENGINES:
        raise ConfigError(f"{CHOICE} is {name!r}, allowed is one of {', '.join(ENGINES)}; correct it or unset it")
    return ENGINES[name]


def interpreter(engine: Engine) -> Path:
    """Return the interpreter of an engine's environment; LocalStack's is made by `make setup`.

    Raises:
        EndpointError: it is not installed, or could not be.
    """
    if engine is not LOCALSTACK:
        return install(engine.name)
    python = _PROJECT / ".venv-emulator" / "bin" / "python"
    if not python.exists():
        raise EndpointError(f"{engine} is not installed ({python} is missing); run: make setup")
    return python


def install(name: str) -> Path:
    """Return the interpreter of the environment of a lock file, which is made first where it is missing or out of date.

    Raises:
        EndpointError: it could not be installed.
    """
    lock, folder = _LOCKS / f"{name}.lock", _ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    want = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii").strip() == want:
        return python
    if not python.exists():
        _run(name, "uv", "venv", "--quiet", "--python", sys.executable, str(folder))
    _run(name, "uv", "pip", "sync", "--quiet", "--python", str(python), str(lock))
    stamp.write_text(want + "\n", encoding="ascii")
    return python


def _run(name: str, *command: str) -> None:
    """Run a command of an installation, and refuse with the first line of its errors if it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EndpointError(f"{name} could not be installed: {error}") from error
    if ended.returncode != 0:
        results = next((line.strip() for line in ended.stderr.splitlines() if line.strip()), "no reason given")
        raise EndpointError(f"{name} could not be installed: {results}")
