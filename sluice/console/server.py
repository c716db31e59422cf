"""The process of `sluice ui`: a socket on 127.0.0.1, and uvicorn on it until Ctrl-C."""

import socket

import uvicorn

from sluice.cli.overview.sources import chosen_consumers, opening
from sluice.clock import SystemClock
from sluice.console.app import build_app
from sluice.console.security import ConsoleGate
from sluice.console.state import Console
from sluice.declaration import Environment
from sluice.errors import EndpointError
from sluice.terminal import output

_ADDRESS = "127.0.0.1"
_CLOSING_SECONDS = 5  # for requests that are being answered when it ends


def serve(
    *,
    environment: Environment,
    consumer_name: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    port: int,
    may_act: bool,
) -> None:
    """Serve the pages of an environment until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: a URL cannot be right, a file is not there, or there is no such consumer.
        EndpointError: the port is taken.
    """
    consumers = chosen_consumers(environment, consumer_name)
    with opening(environment, dsn, inboxes, endpoint_url) as sources, listen(port) as listening:
        bound = listening.getsockname()[1]
        gate = ConsoleGate(port=bound, clock=SystemClock())
        console = Console(sources=sources, consumers=consumers, may_act=may_act, clock=SystemClock())
        acting = "pages may act" if may_act else "pages only show; --allow-actions lets them act"
        output.line(f"open http://{_ADDRESS}:{bound}/?token={gate.token}", is_error=True)
        output.line(f"the address opens one browser, once; {acting}; Ctrl-C ends it", is_error=True)
        config = uvicorn.Config(
            build_app(console, gate),
            access_log=False,  # which would have the token
            log_config=None,
            log_level="error",
            proxy_headers=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        uvicorn.Server(config).run(sockets=[listening])


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; port 0 is a free one.

    Raises:
        EndpointError: the port is taken, or may not be used.
    """
    try:
        return socket.create_server((_ADDRESS, port))
    except OSError as error:
        raise EndpointError(
            f"port {port} of {_ADDRESS} cannot be used ({error.strerror}); give another --port"
        ) from error
