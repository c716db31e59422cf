"""Options that several commands have. Nothing heavy is imported here: `--help` and wrong usage need only these."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from sluice.terminal.options import declaration_option

_PORT_MAX = 65_535
_LOCAL = "127.0.0.1"  # metrics name queues and topics: they are shown to others only on request

type Command = Callable[..., None]

SECRET_VARIABLE = "SLUICE_DATABASE_SECRET_ARN"  # noqa: S105 (its name)


def environment_option(intended: str) -> Callable[[Command], Command]:
    """Give a command `--env` and `--declaration`, and hand it the `Environment` they name."""

    def option(command: Command) -> Command:
        @click.option(
            "--env",
            "environment_name",
            envvar="SLUICE_ENV",
            default="local",
            show_default=True,
            help=f"{intended}  [$SLUICE_ENV]",
        )
        @declaration_option
        @wraps(command)
        def placed(environment_name: str, declaration: Path | None, **given: Any) -> None:
            from sluice.declaration import load_task_declaration

            command(environment=load_task_declaration(declaration).environment(environment_name), **given)

        return placed

    return option


def dsn_option(intended: str) -> Callable[[Command], Command]:
    """Return the option `--dsn`."""
    return click.option(
        "--dsn",
        envvar="SLUICE_DSN",
        metavar="URL",
        help=f"{intended} or postgresql://user@host/name.  [default: $SLUICE_DSN, else the secret ${SECRET_VARIABLE}]",
    )


def endpoint_option(service: str) -> Callable[[Command], Command]:
    """Return the option `--endpoint-url`."""
    return click.option(
        "--endpoint-url", envvar="AWS_ENDPOINT_URL", metavar="URL", help=f"Where {service} is.  [default: AWS]"
    )


def json_option(command: Command) -> Command:
    """Give a command `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def limit_option(most: int, *, default: int) -> Callable[[Command], Command]:
    """Return the option `--limit`."""
    return click.option(
        "--limit", "most", type=click.IntRange(1, most), default=default, show_default=True, help="At most this many."
    )


def metrics_options(command: Command) -> Command:
    """Give a command `--metrics` and `--prometheus`."""
    embedded = click.option(
        "--metrics/--no-metrics",
        "is_measured",
        default=lambda: "ECS_CONTAINER_METADATA_URI_V4" in os.environ,
        help="Write metrics to standard output, as CloudWatch Logs reads them.  [default: on ECS]",
    )
    scraped = click.option(
        "--prometheus",
        metavar="[HOST:]PORT",
        callback=_address,
        help="Serve metrics for Prometheus at this address; port 0 chooses a free one.  [default host: 127.0.0.1]",
    )
    return embedded(scraped(command))


def _address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Return host and port of `[HOST:]PORT`; an IPv6 address stands in brackets."""
    if value is None:
        return None
    host, _colon, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX)) and int(port) <= _PORT_MAX
    if not is_port or (":" in host and not host.startswith("[")):
        raise click.BadParameter(
            f"{value!r} is not an address, allowed is PORT or HOST:PORT, such as 9464 or [::1]:9464"
        )
    return host.removeprefix("[").removesuffix("]") or _LOCAL, int(port)


def alive_option(command: Command) -> Command:
    """Give a command `--alive`, and hand it the `AliveFile` where one is named. It is removed when the command ends."""
    option = click.option(
        "--alive",
        envvar="SLUICE_ALIVE_FILE",
        type=click.Path(path_type=Path),
        callback=_alive_file,
        metavar="FILE",
        help="Show signs of life there, for `sluice alive FILE`; a file of its own for each process.",
    )
    return option(command)


def _alive_file(context: click.Context, _: click.Parameter, path: Path | None) -> Any:
    if path is None:
        return None
    from sluice.clock import SystemClock
    from sluice.messaging.liveness import AliveFile

    file = AliveFile(path, SystemClock())
    context.call_on_close(file.remove)
    return file


def log_level_option(command: Command) -> Command:
    """Give a command `--log-level`."""
    option = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        envvar="SLUICE_LOG_LEVEL",
        default="info",
        show_default=True,
        help="Lowest level that is logged.  [$SLUICE_LOG_LEVEL]",
    )
    return option(command)


def confirmation_option(command: Command) -> Command:
    """Give a command `--yes`."""
    option = click.option(
        "--yes", "confirmed", is_flag=True, help="Do it. Without --yes the command only prints what it would do."
    )
    return option(command)


def audited(command: Command) -> Command:
    """Give a command what every audited act takes: a reason, and `--yes`."""
    return confirmation_option(click.option("--reason", required=True, help="Why; the audit keeps it.")(command))
