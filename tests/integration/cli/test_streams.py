"""Commands, worker and relay with the standard streams that daemons, containers and pipes give them."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import boto3
import pytest
from sqlalchemy import Engine, select, text

from sluice.__main__ import run
from sluice.clock import eventually
from sluice.declaration import Consumer, Environment, Removal, task_settings
from sluice.messaging.database import engines
from sluice.messaging.envelope import Envelope, Event
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox import tables as inbox_tables
from sluice.messaging.outbox import tables
from sluice.messaging.worker.build import build_worker
from sluice.topology import deploy
from tests.support.command_line import KEYS
from tests.support.endpoints import fake_aws
from tests.support.processes import worker_processes
from tests.support.processes.forking import forking

TALKATIVE = "tests.support.processes.talkative_handlers"
_forked = forking(__name__, "sluice.cli.services.relay", "sluice.cli.services.worker")
_PATIENCE_SECONDS = 20
_CLOSED, _FULL, _SILENT, _BROKEN, _HUNG_UP = "closed", "/dev/full", "silent", "broken", "hung up"
"""A stream that is closed; one on a full disk; a pipe that nobody reads, or will ever read; a terminal that is gone."""
_STANDARD = ("stdin", "stdout", "stderr")


def _be_sluice(arguments: list[str], variables: Mapping[str, str], streams: Mapping[str, str]) -> None:
    """Run a command line in this forked process, with these variables and standard streams."""
    os.environ.clear()
    os.environ.update({**KEYS, **variables})
    for name, way in streams.items():
        os.dup2(_open(way), _STANDARD.index(name))
        if way == _CLOSED:
            os.close(_STANDARD.index(name))
    sys.argv = ["sluice", *arguments]
    run()


def _be_program(streams: Mapping[str, str], variables: Mapping[str, str], consumer: Consumer, queue_url: str) -> None:
    """Run a program with a worker in it, whose log is structlog's default."""
    os.environ.update({**KEYS, **variables})
    for name, way in streams.items():
        os.dup2(_open(way), _STANDARD.index(name))
        if way == _CLOSED:
            setattr(sys, name, None)
    handlers = Handlers.load(TALKATIVE)
    build_worker(consumer, queue=queue_url, database=variables["SLUICE_DSN"], handlers=handlers, idle_seconds=1).run()


def _open(way: str) -> int:
    """Return a descriptor of that kind of stream."""
    if way == _HUNG_UP:
        terminal, writer = os.openpty()
        os.close(terminal)
        return writer
    if way in (_SILENT, _BROKEN):
        reader, writer = os.pipe()
        if way == _BROKEN:
            os.close(reader)
        return writer
    return os.open(os.devnull if way == _CLOSED else way, os.O_WRONLY | os.O_CREAT)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Engine]:
    made = engines.engine(f"sqlite:///{tmp_path / 'both.db'}")
    with made.begin() as connection:
        tables.metadata.create_all(connection)
        inbox_tables.metadata.create_all(connection)
    yield made
    made.dispose()


def _start(arguments: list[str], streams: Mapping[str, str], folder: Path, **variables: str) -> ForkServerProcess:
    given = {name: str(folder / path) if path == "out" else path for name, path in streams.items()}
    process = _forked.Process(target=_be_sluice, args=(arguments, variables, given), daemon=True)
    process.start()
    return process


def _wait_for_exit(process: ForkServerProcess) -> int | None:
    process.join(_PATIENCE_SECONDS)
    code = process.exitcode
    process.kill()
    return code


_LOST = "sluice: standard output cannot be written (No space left on device)"
_COMMANDS = {
    "text": ["schema", "sql", "sqlite"],
    "table": ["outbox", "ls"],
    "json": ["outbox", "ls", "--json"],
    "help": ["--help"],
    "refused": ["outbox", "ls", "--status", "none"],
    "act": ["schema", "apply"],
}


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.parametrize(
    ("streams", "code"),
    [
        ({"stdout": _FULL, "stderr": "out"}, 2),
        ({"stderr": _FULL, "stdout": "out"}, 0),
        ({"stdout": _CLOSED, "stderr": "out"}, 0),
        ({"stdin": _CLOSED, "stdout": _CLOSED, "stderr": _CLOSED}, 0),
        ({"stdout": _FULL, "stderr": _FULL}, 2),
        ({"stdout": _BROKEN, "stderr": "out"}, 0),  # as `| head -1` does: nothing is wrong with that
        ({"stdout": _HUNG_UP, "stderr": _HUNG_UP}, 2),
    ],
    ids=["stdout full", "stderr full", "stdout closed", "all closed", "both full", "reader ended", "hung up"],
)
def test_a_command_does_its_work_whatever_its_streams_are(
    database: Engine, tmp_path: Path, command: str, streams: Mapping[str, str], code: int
) -> None:
    """Lost output is reported on a stream that works, and in the exit code; never as a traceback."""
    expected = {"refused": 3, "act": 0}.get(command, code)

    ended = _wait_for_exit(_start(_COMMANDS[command], streams, tmp_path, SLUICE_DSN=str(database.url)))

    printed = (tmp_path / "out").read_text("utf-8") if (tmp_path / "out").exists() else ""
    assert ended == expected, printed
    assert "Traceback" not in printed, printed
    assert (_LOST in printed) == (streams.get("stdout") == _FULL and streams["stderr"] == "out" and expected == 2)


def test_outbox_check_keeps_exit_code_1_when_its_output_is_lost(database: Engine, tmp_path: Path) -> None:
    """A missing index is the finding, which is exit code 1; 2 would hide it from a script."""
    with database.begin() as connection:
        connection.execute(text("DROP INDEX sluice_outbox_sent"))
    streams = {"stdout": _FULL, "stderr": "out"}

    ended = _wait_for_exit(_start(["outbox", "check"], streams, tmp_path, SLUICE_DSN=str(database.url)))

    assert ended == 1
    assert (tmp_path / "out").read_text("utf-8") == f"{_LOST}: what was printed is lost; send it elsewhere\n"


class TalkativeService:
    """An environment with a consumer that may be talkative, at an endpoint; six messages are in its queue."""

    count = 6

    def __init__(self, endpoint: fake_aws.Endpoint, database: Engine, event_type: str) -> None:
        self._database = database
        self.consumer = worker_processes.consumer(handlers=TALKATIVE, max_attempts=2)
        self._environment = Environment(
            name=f"streams{uuid.uuid4().hex[:8]}",
            account="000000000000",
            removal=Removal.DESTROY,
            consumers=(self.consumer,),
        )
        reached = {"endpoint_url": endpoint.url, "region_name": self._environment.region}
        self._sqs, sns = (boto3.client(service, **reached) for service in ("sqs", "sns"))
        deployed = deploy(self._environment, sqs=self._sqs, sns=sns)
        self.queue_url = deployed.queues["billing"]
        self.variables = {
            "SLUICE_ENV": self._environment.name,
            "SLUICE_CONSUMER": "billing",
            "SLUICE_DSN": str(database.url),
            "AWS_ENDPOINT_URL": endpoint.url,
            task_settings.VARIABLE: task_settings.render(self._environment),
        }
        for number in range(self.count):
            sent = Envelope(event=Event(type=event_type, group=f"g{number}", data={}), seq=1, epoch=1)
            self._sqs.send_message(
                QueueUrl=self.queue_url,
                MessageBody=sent.body,
                MessageGroupId=sent.event.group,
                MessageDeduplicationId=sent.deduplication_id,
            )

    def await_all_done(self) -> None:
        done = select(inbox_tables.groups.c.group_id).where(inbox_tables.groups.c.last_seq == 1)

        def count() -> int:
            with engines.reading(self._database) as connection:
                return len(connection.execute(done).all())

        eventually(lambda: count() == self.count, timeout_seconds=_PATIENCE_SECONDS, describe="all to be handled")


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    with fake_aws.running() as running:
        yield running


@pytest.mark.parametrize("stream", [_CLOSED, _FULL, _SILENT, _BROKEN, _HUNG_UP])
def test_a_worker_handles_everything_whatever_its_streams_are(
    endpoint: fake_aws.Endpoint, database: Engine, tmp_path: Path, stream: str
) -> None:
    """Neither its log nor prints of handlers cost an attempt, and no lane waits for a reader of the streams."""
    served = TalkativeService(endpoint, database, "said")
    streams = {"stdin": _CLOSED, "stdout": stream, "stderr": stream}
    worker = _start(["worker", "--metrics"], streams, tmp_path, **served.variables)

    served.await_all_done()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGTERM)

    assert _wait_for_exit(worker) == 0


@pytest.mark.parametrize("stream", [_CLOSED, _FULL])
def test_a_worker_in_a_program_with_such_streams_handles_everything(
    endpoint: fake_aws.Endpoint, database: Engine, stream: str
) -> None:
    """The worker logs to structlog's default; a log line that cannot be written ends no lane."""
    served = TalkativeService(endpoint, database, "done")
    given = ({"stdout": stream, "stderr": stream}, served.variables, served.consumer, served.queue_url)
    program = _forked.Process(target=_be_program, args=given, daemon=True)
    program.start()

    served.await_all_done()

    assert _wait_for_exit(program) == 0
