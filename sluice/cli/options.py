"""Options that several commands share. Only click is imported at the top: `--help` and wrong usage need no more."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sluice.terminal.options import declaration_option
from sluice.terminal.values import DAY_SECONDS, SINCE, NumberType, Whole

if TYPE_CHECKING:
    from sluice.messaging.liveness import AliveFile

_PORT_MAX = 65_535
_LOCAL = "127.0.0.1"  # other machines read metrics, which name queues and topics, only where a host is given

type Command = Callable[..., None]


def environment_option(intended: str) -> Callable[[Command], Command]:
    """Give a command `--env` and `--declaration`, and hand it the `Environment` that they name.

    Args:
        intended: the help of `--env`, such as "Declared environment whose topic is meant."
    """

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
        def run_in_environment(environment_name: str, declaration: Path | None, **others: Any) -> None:
            from sluice.cli.undeclared_resources import environment_of
            from sluice.declaration import load_task_declaration

            environment = None if declaration is not None else environment_of(environment_name, others)
            if environment is None:
                environment = load_task_declaration(declaration).environment(environment_name)
            command(environment=environment, **others)

        return run_in_environment

    return option


def dsn_option(intended: str) -> Callable[[Command], Command]:
    """Return the option `--dsn`; `intended` begins its help and names an example for SQLite."""
    return click.option(
        "--dsn",
        envvar="SLUICE_DSN",
        metavar="URL",
        help=f"{intended} or postgresql://user@host/name."
        "  [default: $SLUICE_DSN, else the user $SLUICE_DATABASE_USER or the"
        " secret $SLUICE_DATABASE_SECRET_ARN]",
    )


def endpoint_option(service: str) -> Callable[[Command], Command]:
    """Return the option `--endpoint-url`; its help says that it is where `service` is."""
    return click.option(
        "--endpoint-url", envvar="AWS_ENDPOINT_URL", metavar="URL", help=f"Where {service} is.  [default: AWS]"
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def limit_option(most: int, *, default: int | None) -> Callable[[Command], Command]:
    """Return the option `--limit`, a number from 1 to `most`; without a default it may be None."""
    return click.option(
        "--limit",
        "most",
        type=Whole(1, most),
        default=default,
        show_default=default is not None,
        help="At most this many.",
    )


def choice_options(command: Command) -> Command:
    """Give a command the filters `--group`, `--type`, `--died-of`, `--since`, and hand it them as a `RowChoice`."""

    @click.option("--group", "groups", multiple=True, help="Only this message group. It and --type may be repeated.")
    @click.option("--type", "types", multiple=True, help="Only events of this type.")
    @click.option("--died-of", metavar="TEXT", help="Only what has this in its recorded reason; `…` is any text.")
    @click.option(
        "--since", "since_us", type=SINCE, metavar="AGE|TIME", help="Only from then on: 15m, 2h, 7d, 2026-11-27T03:00."
    )
    @wraps(command)
    def run_with_choice(
        groups: tuple[str, ...], types: tuple[str, ...], died_of: str | None, since_us: int | None, **others: Any
    ) -> None:
        from sluice.messaging.database.choice import RowChoice

        choice = RowChoice(groups=frozenset(groups), types=frozenset(types), died_of=died_of, since_us=since_us)
        command(choice=choice, **others)

    return run_with_choice


log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="SLUICE_LOG_LEVEL",
    default="info",
    show_default=True,
    help="Lowest level that is logged.  [$SLUICE_LOG_LEVEL]",
)


until_idle_option = click.option(
    "--until-idle",
    "idle_seconds",
    type=NumberType("seconds", 0, DAY_SECONDS),
    metavar="SECONDS",
    help="Stop when nothing was received for this long.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Options of a relay or a worker: how its process reports on itself, and which client of AWS it has.

    Args:
        is_measured: whether the process writes metrics to standard output.
        prometheus: host and port at which it serves metrics; None serves none.
        alive: the file for its signs of life, which is removed when the command ends.
        record: the folder of the recorded history; None records nothing.
        client: the client that makes the calls, `light` or `boto3`.
    """

    is_measured: bool
    prometheus: tuple[str, int] | None
    alive: "AliveFile | None"
    record: Path | None
    client: str
    log_level: str


def process_options(recorded: str) -> Callable[[Command], Command]:
    """Give a relay or a worker its options, and hand it the `ProcessOptions`; `recorded` ends the help of --record."""

    def option(command: Command) -> Command:
        @click.option(
            "--metrics/--no-metrics",
            "is_measured",
            default=lambda: "ECS_CONTAINER_METADATA_URI_V4" in os.environ,
            help="Write metrics to standard output, as CloudWatch Logs reads them.  [default: on ECS]",
        )
        @click.option(
            "--prometheus",
            metavar="[HOST:]PORT",
            callback=_address,
            help="Serve metrics for Prometheus at this address; port 0 chooses a free one.  [default host: 127.0.0.1]",
        )
        @click.option(
            "--alive",
            envvar="SLUICE_ALIVE_FILE",
            type=click.Path(path_type=Path),
            callback=_alive_file,
            metavar="FILE",
            help="Write signs of life to this file, for `sluice alive FILE`. Each process needs its own.",
        )
        @click.option(
            "--record",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help=f"Folder to record what is {recorded}, for the checker.",
        )
        @click.option(
            "--client",
            type=click.Choice(["light", "boto3"]),
            envvar="SLUICE_CLIENT",
            default="light",
            show_default=True,
            help="What calls AWS; boto3 in any case with --record, behind a proxy, or when botocore is instrumented."
            "  [$SLUICE_CLIENT]",
        )
        @log_level_option
        @wraps(command)
        def run_with_process(**others: Any) -> None:
            if others["record"] is not None:
                others["client"] = "boto3"  # the recorder is a hook of a boto3 client
            process = ProcessOptions(**{each.name: others.pop(each.name) for each in fields(ProcessOptions)})
            command(process=process, **others)

        return run_with_process

    return option


def _address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Return host and port of the option's `[HOST:]PORT`; click calls this. An IPv6 host is in brackets."""
    if value is None:
        return None
    host, _colon, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_PORT_MAX)) and int(port) <= _PORT_MAX
    if not is_port or (":" in host and not host.startswith("[")):
        raise click.BadParameter(
            f"{value!r} is not an address, allowed is PORT or HOST:PORT, such as 9464 or [::1]:9464"
        )
    return host.removeprefix("[").removesuffix("]") or _LOCAL, int(port)


def _alive_file(context: click.Context, _: click.Parameter, path: Path | None) -> Any:
    """Return the file for signs of life, which is removed when the command ends; click calls this."""
    if path is None:
        return None
    from sluice.clock import SystemClock
    from sluice.messaging.liveness import AliveFile

    file = AliveFile(path, SystemClock())
    context.call_on_close(file.remove)
    return file


confirmation_option = click.option(
    "--yes", "confirmed", is_flag=True, help="Do it. Without --yes the command only prints what it would do."
)


def audit_options(command: Command) -> Command:
    """Give a command `--reason` and `--yes`, which every act of an operator has that is written into the audit."""
    return confirmation_option(click.option("--reason", required=True, help="Why; the audit keeps it.")(command))


def database_options(command: Command) -> Command:
    """Give a command the options that name an outbox, and hand it the `DatabaseTarget`.

    These are `--env`, `--declaration`, `--topic` and `--dsn`.
    """

    @environment_option("Declared environment whose topic is meant.")
    @click.option("--topic", metavar="NAME", help="The topic, as declared.  [default: the first]")
    @dsn_option("The outbox's database, e.g. sqlite:///outbox.db")
    @wraps(command)
    def run_on_outbox(environment: Any, topic: str | None, dsn: str | None, **others: Any) -> None:
        from sluice.cli import targets

        with targets.outbox_target(environment, dsn, topic) as found:
            command(target=found, **others)

    return run_on_outbox


def consumer_options(command: Command) -> Command:
    """Give a command the options that name a consumer, its inbox's database and SQS, and hand it the `ConsumerTarget`.

    The database is opened if one is named. A command that cannot work without it reads the target's `engine`, which
    refuses where there is none.
    """

    @environment_option("Declared environment whose consumer is meant.")
    @click.option(
        "--consumer",
        "consumer_name",
        envvar="SLUICE_CONSUMER",
        metavar="NAME",
        help="The consumer.  [$SLUICE_CONSUMER]",
    )
    @dsn_option("The database of the consumer's inbox, e.g. sqlite:///billing.db")
    @endpoint_option("SQS")
    @wraps(command)
    def run_on_consumer(
        environment: Any, consumer_name: str | None, dsn: str | None, endpoint_url: str | None, **others: Any
    ) -> None:
        from sluice.cli import targets

        with targets.consumer_target(environment, consumer_name, dsn, endpoint_url) as found:
            command(target=found, **others)

    return run_on_consumer
