"""The other emulators of SQS and SNS, for comparison: each from PyPI, in an environment of its own made on demand."""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from emulator import localstack
from emulator.processes import Supervised, await_ready
from sluice.errors import EndpointError
from sluice.localstack import direct

_PROJECT = Path(__file__).resolve().parent.parent
_LOCKS = Path(__file__).resolve().parent / "locks"
_ENVIRONMENTS = _PROJECT / ".venv-conformance"
_INSTALL_SECONDS = 600
_READY_SECONDS = 60
_STOP_GRACE_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An emulator nobody here wrote.

    Args:
        name: of its lock file and its environment.
        title: as people call it.
        version: that the lock file pins.
        start: interpreter and log file to what keeps it running; yields its endpoint.
    """

    name: str
    title: str
    version: str
    start: Callable[[Path, Path], AbstractContextManager[str]]


def environment(name: str) -> Path:
    """Return the interpreter of a peer's environment, which is made first where it is missing or out of date.

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
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EndpointError(f"{name} could not be installed: {error}") from error
    if ended.returncode != 0:
        results = next((line.strip() for line in ended.stderr.splitlines() if line.strip()), "no reason given")
        raise EndpointError(f"{name} could not be installed: {results}")


@contextlib.contextmanager
def running(peer: Peer, log: Path) -> Iterator[str]:
    """Install a peer where need be, start it on a free port of 127.0.0.1, yield its endpoint and stop it.

    Args:
        peer: which.
        log: file its output goes to; replaced.

    Raises:
        EndpointError: it could not be installed, or did not come up in its bound.
    """
    with peer.start(environment(peer.name), log) as endpoint_url:
        yield endpoint_url


@contextlib.contextmanager
def _localstack(python: Path, log: Path) -> Iterator[str]:
    with localstack.running(log=log, python=python) as started:
        yield started.endpoint_url


@contextlib.contextmanager
def _moto(python: Path, log: Path) -> Iterator[str]:
    port = localstack.free_port()
    command = [str(python.parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _server(command, f"http://127.0.0.1:{port}", "/moto-api/", log) as url:
        yield url


@contextlib.contextmanager
def _ministack(python: Path, log: Path) -> Iterator[str]:
    port = localstack.free_port()
    more = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1"}
    command = [str(python.parent / "ministack")]
    with _server(command, f"http://127.0.0.1:{port}", "/_ministack/health", log, more) as url:
        yield url


@contextlib.contextmanager
def _server(command: list[str], url: str, ready: str, log: Path, more: dict[str, str] | None = None) -> Iterator[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = Supervised(
            command, environment=plain | (more or {}), grace_seconds=_STOP_GRACE_SECONDS, output=output
        )
        with process:
            await_ready(process, lambda: _answers(url + ready), name="it", timeout_seconds=_READY_SECONDS, log=log)
            yield url


def _answers(url: str) -> bool:
    try:
        with direct.open(url, timeout=2):
            return True
    except OSError:
        return False


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(name="localstack-2026.3.0", title="LocalStack", version="2026.3.0", start=_localstack),
        Peer(name="moto", title="moto", version="5.2.5", start=_moto),
        Peer(name="ministack", title="ministack", version="1.5.33", start=_ministack),
    )
}
