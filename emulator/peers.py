"""The other emulators of SQS and SNS, for comparison: each from PyPI, in an environment of its own made on demand."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from emulator import engines, localstack
from emulator.processes import SupervisedProcess, await_ready
from sluice.localstack import direct

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


@contextlib.contextmanager
def running(peer: Peer, log: Path) -> Iterator[str]:
    """Install a peer where need be, start it on a free port of 127.0.0.1, yield its endpoint and stop it.

    Args:
        peer: which.
        log: file its output goes to; replaced.

    Raises:
        EndpointError: it could not be installed, or did not come up in its bound.
    """
    with peer.start(engines.install(peer.name), log) as endpoint_url:
        yield endpoint_url


@contextlib.contextmanager
def _localstack(python: Path, log: Path) -> Iterator[str]:
    """Yield the endpoint of a LocalStack that this interpreter has installed."""
    with localstack.running(log=log, python=python, engine=engines.LOCALSTACK) as started:
        yield started.endpoint_url


@contextlib.contextmanager
def _localemu(python: Path, log: Path) -> Iterator[str]:
    """Yield the endpoint of a LocalEmu that this interpreter has installed."""
    with localstack.running(log=log, python=python, engine=engines.LOCALEMU) as started:
        yield started.endpoint_url


@contextlib.contextmanager
def _moto(python: Path, log: Path) -> Iterator[str]:
    """Yield the endpoint of a moto server on a free port."""
    port = localstack.free_port()
    command = [str(python.parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _server(command, f"http://127.0.0.1:{port}", "/moto-api/", log) as url:
        yield url


@contextlib.contextmanager
def _ministack(python: Path, log: Path) -> Iterator[str]:
    """Yield the endpoint of a ministack on a free port."""
    port = localstack.free_port()
    more = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1"}
    command = [str(python.parent / "ministack")]
    with _server(command, f"http://127.0.0.1:{port}", "/_ministack/health", log, more) as url:
        yield url


@contextlib.contextmanager
def _server(command: list[str], url: str, ready: str, log: Path, more: dict[str, str] | None = None) -> Iterator[str]:
    """Start a server without our AWS and Python variables, wait until its path `ready` answers, and yield its URL."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = SupervisedProcess(
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
        Peer(
            name=engines.LOCALEMU.name, title=engines.LOCALEMU.title, version=engines.LOCALEMU.version, start=_localemu
        ),
        Peer(name="moto", title="moto", version="5.2.5", start=_moto),
        Peer(name="ministack", title="ministack", version="1.5.33", start=_ministack),
    )
}
