"""The commands of the guides are run in order, and print the output that the guides show."""

import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from emulator import localstack
from sluice.declaration import Gaps, Lambda, Poison, naming, task_settings
from sluice.messaging import Event, Outbox
from sluice.messaging.database import engines
from sluice.messaging.outbox import tables
from tests.support.declaration import environment
from tests.support.processes.forking import forking
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("local")  # the environment whose names they use

GUIDES = PROJECT / "docs" / "guides"
PATIENCE_SECONDS = 180  # Spark alone may take a third of it to start on a busy machine
LOCAL = environment("local")
ACCOUNT = "000000000000"
DECLARED: Mapping[str | None, Mapping[str, Any]] = {
    None: {},
    "billing parks": {"poison": Poison.PARK, "gaps": Gaps.HALT},
    "billing charges": {"handlers": "charges", "types": ("order.placed",)},
    "billing is a function of Django": {
        "handlers": "shop.handlers",
        "types": ("order.placed",),
        "runtime": Lambda(
            entry_point="shop.function.handle", timeout_seconds=10, batch_size=10, maximum_concurrency=10
        ),
    },
    "billing reads classes": {"handlers": "bills", "types": ("order.placed",)},
}
_BLOCK = re.compile(r"((?:^<!-- [^\n]+ -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (run|ends|not run|file|given)(?:: (.+))? -->")
_forked = forking(
    __name__, "examples.services.__main__", "sluice.cli.services.relay", "sluice.cli.services.worker", "pandas"
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a guide, with the comments before it."""

    chapter: str
    marks: Mapping[str, str | None]
    language: str
    inside: str

    @property
    def commands(self) -> list[list[str]]:
        """Return its commands, as their arguments."""
        return [shlex.split(line) for line in self.inside.replace("\\\n", "").splitlines()]


def blocks(guide: str) -> list[Block]:
    """Return the blocks of a guide."""
    found = []
    for chapter in (GUIDES / guide).read_text(encoding="utf-8").split("\n## "):
        title = chapter.partition("\n")[0]
        for marks, language, inside in _BLOCK.findall(chapter):
            marked = {what: reason or None for what, reason in _MARK.findall(marks)}
            found.append(Block(title, marked, language, inside))
    return found


class Reader:
    """A reader who follows a guide, in a folder and with a database of their own.

    `on_localstack` is whether what a guide runs with a simulator of its own is run on LocalStack.

    Args:
        folder: where the commands run.
        variables: of their processes.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.on_localstack = False
        self._folder = folder
        dsn = f"sqlite:///{folder / 'billing.db'}"
        self._variables = {**variables, "SLUICE_CONSUMER": "billing", "SLUICE_DSN": dsn, "PYTHONPATH": str(PROJECT)}
        self.engine = engines.engine(dsn)

    def save(self, name: str, inside: str) -> None:
        """Save a file."""
        (self._folder / name).parent.mkdir(exist_ok=True)
        (self._folder / name).write_text(inside, encoding="utf-8")

    def run(self, command: list[str], *, declared: Mapping[str, Any], exit_code: int = 0) -> str:
        """Run `python …` or `sluice …` to its end, and return its output."""
        assert command[0] in {"python", "sluice"}, command
        printed, is_alone = self._folder / "printed", False
        if self.on_localstack and command[:4] == ["sluice", "simulator", "run", "--"]:
            environment = "{**os.environ, 'PYTHONPATH': '.'}"  # the reader's folder has the handlers
            self.save(
                "on_localstack.py",
                f"import os, subprocess\nraise SystemExit(subprocess.call({command[4:]!r}, env={environment}))\n",
            )
            command, is_alone = ["python", "on_localstack.py"], True
        arguments = command[1:] if command[0] == "python" else ["-m", *command]
        billing, *others = LOCAL.consumers
        edited = replace(LOCAL, consumers=(replace(billing, **declared), *([] if is_alone else others)))
        variables = {**self._variables, task_settings.VARIABLE: task_settings.render(edited)}
        process = _forked.Process(target=_run, args=(arguments, self._folder, variables, str(printed)))
        process.start()
        process.join(PATIENCE_SECONDS)
        output, ended = printed.read_text(encoding="utf-8"), process.exitcode
        if ended is None:
            process.kill()
            process.join()
        assert ended is not None, f"{shlex.join(command)} did not end within {PATIENCE_SECONDS} s: {output}"
        assert ended == exit_code, f"{shlex.join(command)} ended with {ended}: {output}"
        process.close()
        return output


def _run(arguments: list[str], folder: Path, variables: Mapping[str, str], printed: str) -> None:
    """Run `python ARGUMENTS` with this declaration of billing. Runs in a process of its own."""
    os.chdir(folder)
    os.environ.update(variables)
    to = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for output in (sys.stdout, sys.stderr):
        os.dup2(to, output.fileno())
    sys.path.insert(0, str(folder))
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules.pop(f"{arguments[1]}.__main__", None)  # it is run as if for the first time
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def _lose_a_message(reader: Reader) -> None:
    """Have the numbers 1 and 3 of a group published, and 2 marked so."""
    with Session(reader.engine) as session:
        for version in (1, 2, 3):
            data = {"version": version, "total_cents": 100, "status": "open"}
            event = Event(type="order.line_added", group="order-906", data=data)
            Outbox(naming.topic_name(LOCAL)).add(session, event)
        session.commit()
    with reader.engine.begin() as connection:
        second = (tables.messages.c.group_id == "order-906", tables.messages.c.group_seq == 2)
        connection.execute(
            update(tables.messages).where(*second).values(status="sent", sent_at_us=tables.messages.c.created_at_us)
        )
    reader.run(["python", "-m", "sluice", "relay", "--until-empty"], declared={})


def _place_an_order(reader: Reader) -> None:
    """Have an order's event published."""
    with reader.engine.begin() as connection:
        tables.metadata.create_all(connection)
    with Session(reader.engine) as session:
        event = Event(type="order.placed", group="order-8", data={"total_cents": 1_250})
        Outbox(naming.topic_name(LOCAL)).add(session, event)
        session.commit()
    reader.run(["python", "-m", "sluice", "relay", "--until-empty"], declared={})


ENVIRONMENT_VARIABLES: Mapping[str, Callable[[Reader], None]] = {
    "an order is placed": _place_an_order,
    "number 2 of order-906 is lost": _lose_a_message,
}


@pytest.fixture
def reader(localstack_shared: localstack.Emulator, tmp_path: Path) -> Iterator[Reader]:
    """Yield a reader who has the local environment's topic and what is billing's, as they are deployed."""
    (sqs, sns) = (
        boto3.client(service, endpoint_url=localstack_shared.endpoint_url, region_name=LOCAL.region)
        for service in ("sqs", "sns")
    )
    billing, fifo = LOCAL.consumers[0], {"FifoQueue": "true"}
    name, dead = naming.queue_name(LOCAL, billing), naming.dead_letter_queue_name(LOCAL, billing)
    redrive = {"deadLetterTargetArn": naming.queue_arn(LOCAL, dead, ACCOUNT), "maxReceiveCount": 5}
    retention = {"MessageRetentionPeriod": str(billing.message_retention_seconds)}
    topic_arn = sns.create_topic(Name=naming.topic_name(LOCAL), Attributes={"FifoTopic": "true"})["TopicArn"]
    made = {
        dead: {"MessageRetentionPeriod": str(billing.dead_letter_retention_seconds)},
        naming.undelivered_queue_name(LOCAL, billing): {},
        name: retention | {"VisibilityTimeout": "60", "RedrivePolicy": json.dumps(redrive)},
    }
    urls = [sqs.create_queue(QueueName=item, Attributes=fifo | more)["QueueUrl"] for item, more in made.items()]
    sns.subscribe(
        TopicArn=topic_arn,
        Protocol="sqs",
        Endpoint=naming.queue_arn(LOCAL, name, ACCOUNT),
        Attributes={"RawMessageDelivery": "true"},
    )
    entry = Reader(tmp_path, localstack_shared.environment())
    yield entry
    entry.engine.dispose()
    sns.delete_topic(TopicArn=topic_arn)
    for url in urls:
        sqs.delete_queue(QueueUrl=url)


@pytest.mark.parametrize(
    ("guide", "left_out"),
    [
        ("producers.md", ()),
        ("consumers.md", ()),
        ("fastapi.md", ()),
        ("typed-events.md", ()),
        pytest.param("asyncio.md", (), marks=pytest.mark.slow),
        pytest.param("django.md", (), marks=pytest.mark.slow),
        pytest.param("load.md", (), marks=pytest.mark.slow),
        pytest.param("operators.md", (), marks=pytest.mark.slow),
        pytest.param("recorder.md", ("Judge",), marks=pytest.mark.slow),
        pytest.param("recorder.md", (), marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_guides_commands_print_what_it_says(reader: Reader, guide: str, left_out: tuple[str, ...]) -> None:
    """The commands of a guide run from top to bottom on LocalStack; other output, or a failure, fails the test."""
    printed: str | None = None
    for block in blocks(guide):
        if block.chapter in left_out:
            continue
        if (given := block.marks.get("given")) is not None:
            ENVIRONMENT_VARIABLES[given](reader)
        if (name := block.marks.get("file")) is not None:
            reader.save(name, block.inside)
        if "run" in block.marks:
            declared, exit_code = DECLARED[block.marks["run"]], int(block.marks.get("ends") or 0)
            ran = (reader.run(command, declared=declared, exit_code=exit_code) for command in block.commands)
            printed = "".join(ran)
        elif block.language == "text":
            assert printed is not None, "a block of text comes after commands"
            _assert_printed(printed, block.inside)


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["asyncio.md", "django.md"])
def test_services_of_a_guides_simulator_work_on_localstack(reader: Reader, guide: str) -> None:
    reader.on_localstack = True

    test_a_guides_commands_print_what_it_says(reader, guide, ())


def _assert_printed(printed: str, expected: str) -> None:
    end = 0
    for line in expected.splitlines():
        pattern = ".*".join(map(re.escape, line.strip().split("…")))
        found = re.compile(pattern).search(printed, end)
        assert found is not None, f"the guide says {line!r}; behind what was found before, there is:\n{printed[end:]}"
        end = found.end()
