"""Start LocalStack, or its descendant, in host mode, wait until it serves, and stop exactly that instance."""

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from emulator.engines import ENGINES, LOCALSTACK, Engine, choose, interpreter
from emulator.processes import SupervisedProcess, await_ready
from sluice.errors import ConfigError, EndpointError
from sluice.localstack import MODIFIED, health

VERSION = LOCALSTACK.version
DEFAULT_PORT = 4566
_HOOKS = Path(__file__).resolve().parent / "hooks"
_READY_SECONDS = 120
_STOP_GRACE_SECONDS = 15
_METRICS_SECONDS = 5  # 60 by default: how often queues report to CloudWatch
_NO_FILES = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
_PORTS = range(20_000, 32_768)  # Linux gives 32768 to 60999 to outgoing connections, macOS 49152 and above
_CANNOT_LISTEN = b"CannotListenError"  # then it says "Ready." all the same, and never answers
_SERVICES = ("sns", "sqs", "cloudformation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """A LocalStack that answers.

    Args:
        endpoint_url: for every AWS client.
        log: where it logs; None when it was started by somebody else.
        engine: what it is.
        process: what keeps it; None when it was started by somebody else.
    """

    endpoint_url: str
    log: Path | None
    engine: Engine = LOCALSTACK
    process: SupervisedProcess | None = None

    def environment(self) -> dict[str, str]:
        """Return the variables that point AWS clients and the cdk CLI at it, with keys it does not check."""
        modified = {} if self.log is None else {MODIFIED: "1"}
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            **_NO_FILES,
            "NO_PROXY": "127.0.0.1,localhost",
        } | modified


def with_endpoint(running: Emulator) -> dict[str, str]:
    """Return this process's environment with every AWS client pointed at `running`.

    Nothing of the caller's own AWS_* is left, and no file of profiles is read: an AWS_PROFILE, or an endpoint for one
    service, would win over it and send a test to a real account.
    """
    return _without_aws() | running.environment()


def _without_aws() -> dict[str, str]:
    """Return this process's environment without the variables of AWS and LocalStack."""
    left_out = ("AWS_", *(f"{name.upper()}_" for name in ENGINES))
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def attach(endpoint_url: str) -> Emulator:
    """Return a LocalStack somebody else started.

    Raises:
        EndpointError: nothing answers there, or it is not a LocalStack, or one without SNS and SQS.
    """
    services = health(endpoint_url, timeout_seconds=5)
    if services is None:
        raise EndpointError(f"{endpoint_url} answers, but is not a LocalStack; name another with --endpoint-url")
    missing = _unavailable(services)
    if missing:
        raise EndpointError(
            f"LocalStack at {endpoint_url} does not offer {', '.join(missing)}; start one with: make emulator"
        )
    return Emulator(endpoint_url=endpoint_url, log=None)


def _unavailable(reported: Mapping[str, object]) -> list[str]:
    """Return the services we need that a LocalStack's report does not have."""
    services = reported["services"]
    assert isinstance(services, dict)
    return [name for name in _SERVICES if services.get(name) not in ("available", "running")]


def free_port() -> int:
    """Return a port of 127.0.0.1 nobody uses.

    It is not one the system hands out by itself: LocalStack listens seconds after the port was chosen, and until then
    an outgoing connection of any process could be given such a port.

    Raises:
        EndpointError: none was found.
    """
    for port in random.sample(_PORTS, k=100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise EndpointError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}; choose another with --port")


def _refuse_taken(port: int) -> None:
    """Refuse a port that is no port, that this user may not use, or that is taken."""
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port is {port}, allowed is 1 to 65535; choose another with --port")
    url = f"http://127.0.0.1:{port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise EndpointError(
                f"port {port} may not be used by this user; choose one above 1023 with --port"
            ) from error
        except OSError:
            _refuse_taken_by(url, port)


def _refuse_taken_by(url: str, port: int) -> NoReturn:
    """Refuse a port that is taken; the message says whether a LocalStack has it."""
    try:
        services = health(url)
    except EndpointError:
        services = None
    if services is not None:
        raise EndpointError(
            f"a LocalStack already runs on port {port}; use it with --endpoint-url {url}, or choose another --port"
        )
    raise EndpointError(f"port {port} is taken by something that is not LocalStack; choose another with --port")


def _loopback(port: int) -> str:
    """Return the address that an emulator is to listen at: on the loopback only, with IPv4.

    LocalStack 4.14.0 and LocalEmu 1.3.2 listen on all interfaces when an IPv4 address is given, and keep to an IPv6 one
    (`runtime/server/twisted.py`). So they get 127.0.0.1 as an IPv6 address, unless the machine has none.
    """
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::ffff:127.0.0.1", 0))
    except OSError:
        return f"127.0.0.1:{port}"
    return f"[::ffff:127.0.0.1]:{port}"


def _process_environment(engine: Engine, root: Path, port: int) -> dict[str, str]:
    """Return the environment of one instance: nothing of it lives outside `root`."""
    address = f"127.0.0.1:{port}"
    return _without_aws() | {
        **_NO_FILES,
        "GATEWAY_LISTEN": _loopback(port),
        engine.host_variable: address,  # else queue URLs name a host that needs DNS
        "SQS_ENDPOINT_STRATEGY": "path",
        "TMPDIR": str(root / "tmp"),
        "FILESYSTEM_ROOT": str(root),
        "OVERRIDE_IN_DOCKER": "0",  # a container is still host mode for us
        "DNS_ADDRESS": "0",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "CFN_IGNORE_UNSUPPORTED_RESOURCE_TYPES": "1",
        "EAGER_SERVICE_LOADING": "0",
        "SQS_CLOUDWATCH_METRICS_REPORT_INTERVAL": str(_METRICS_SECONDS),
        "PYTHONWARNINGS": "ignore",
    }


def _make_root(engine: Engine) -> Path:
    """Make an instance's folder, with our hooks: they import the engine by its own name."""
    root = Path(tempfile.mkdtemp(prefix=f"sluice-{engine.name}-"))
    (root / "tmp").mkdir()
    hooks = root / "etc" / engine.name / "init" / "start.d"
    hooks.mkdir(parents=True)
    for hook in _HOOKS.glob("*.py"):
        text = hook.read_text(encoding="utf-8").replace("from localstack.", f"from {engine.name}.")
        (hooks / hook.name).write_text(text, encoding="utf-8")
    return root


@contextlib.contextmanager
def running(
    *, port: int | None = None, log: Path, python: Path | None = None, engine: Engine | None = None
) -> Iterator[Emulator]:
    """Start LocalStack, or what SLUICE_EMULATOR names, and stop it again when the block ends, however it ends.

    A dying process takes its LocalStack with it (see `emulator.supervisor`).

    Args:
        port: where to listen on 127.0.0.1; None means a free one.
        log: file its output goes to; replaced.
        python: interpreter of the environment that has it; None means the engine's own.
        engine: what to start; None means what SLUICE_EMULATOR names.

    Raises:
        ConfigError: the port is not a port, or SLUICE_EMULATOR names no engine.
        EndpointError: the port is taken, it is not installed, or it did not come up in its bound.
    """
    engine = choose() if engine is None else engine
    python = interpreter(engine) if python is None else python
    if port is not None:
        _refuse_taken(port)
    chosen = free_port() if port is None else port
    url = f"http://127.0.0.1:{chosen}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        root = _make_root(engine)
        process = SupervisedProcess(
            [str(python), "-m", f"{engine.name}.runtime.main"],
            environment=_process_environment(engine, root, chosen),
            grace_seconds=_STOP_GRACE_SECONDS,
            output=output,
            folder=root,
        )
        with process:
            await_ready(process, lambda: _answers(url, log), name=engine.title, timeout_seconds=_READY_SECONDS, log=log)
            yield Emulator(endpoint_url=url, log=log, engine=engine, process=process)


def _answers(url: str, log: Path) -> bool:
    try:
        services = health(url)
    except EndpointError:
        services = None
    if services is None and _CANNOT_LISTEN in log.read_bytes():
        raise EndpointError(f"LocalStack could not listen at {url}, which was taken while it started; start again")
    return services is not None and not _unavailable(services)
