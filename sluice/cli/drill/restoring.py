"""A restore, played on copies: the steps that an operator takes, with the time of each."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from sluice.cli.acts import actor
from sluice.cli.drill import page as drill_page
from sluice.cli.drill.copies import require_another, working_copy
from sluice.cli.overview.sources import Sources
from sluice.cli.overview.verification import Verification, reconcile
from sluice.cli.simulator import simulated_variables
from sluice.cli.targets import consumer_of
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Environment, naming
from sluice.errors import ConfigError
from sluice.messaging.database import engines
from sluice.messaging.envelope import OwnEvent, decode
from sluice.messaging.erasure import StoredCopy, is_on_its_way
from sluice.messaging.handlers import Ack, Handlers
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.outbox import tables as outbox
from sluice.messaging.outbox.operations import OutboxOperator
from sluice.messaging.outbox.outbox import Outbox
from sluice.messaging.outbox.store import Store
from sluice.messaging.outbox.tables import SENT
from sluice.messaging.reconciliation.properties import INVALID, VALID
from sluice.messaging.relay import publisher
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay, RelaySettings
from sluice.messaging.sqs import queue
from sluice.messaging.sqs.dead_letter_queue import Destination
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.worker.build import assemble_worker
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.simulator.server import SimulatorServer
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY
from sluice.topology import deploy

PROBE = "sluice.drill"
"""The type of the events that a drill commits after the restore; no handler is called with one."""
_PROBED_MAX = 100
_FOUND_MAX = 1_000
_EMPTY_SECONDS = 30.0  # real; a message that is tried again later may stay
_REASON = "a restore drill, on copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillStep:
    """A step of the drill: what an operator would run for it, how long it took, and what came of it."""

    name: str
    command: str
    seconds: float
    result: str


@dataclass(slots=True, kw_only=True)
class Drill:
    """A restore that is played.

    Args:
        sources: the working copies, and the simulated services.
        topic: declared name of the topic.
        topic_arn: of the simulated topic.
        now: the outbox's database as it is now; None if it is not known.
        now_inboxes: the inbox's database of each consumer as it is now.
    """

    sources: Sources
    topic: str
    topic_arn: str
    now: Engine | None
    now_inboxes: dict[str, Engine]
    steps: list[DrillStep] = field(default_factory=list)

    @property
    def environment(self) -> Environment:
        """Return the environment that is played."""
        return self.sources.environment

    @property
    def topic_name(self) -> str:
        """Return the name of the topic."""
        return naming.topic_name(self.environment, self.topic)

    @property
    def engine(self) -> Engine:
        """Return the working copy of the restored database."""
        assert isinstance(self.sources.outbox, Engine), "the drill has opened it"
        return self.sources.outbox

    def take(self, name: str, command: str, do: Callable[[], str]) -> None:
        """Take a step, and keep its time and its result in words."""
        clock = SystemClock()
        begun = clock.monotonic()
        result = do()
        self.steps.append(DrillStep(name=name, command=command, seconds=clock.monotonic() - begun, result=result))

    def verify(self) -> Verification:
        """Compare the restored outbox with inboxes and queues, also the youngest messages."""
        return reconcile(
            self.sources,
            topic=self.topic,
            topic_arn=self.topic_arn,
            in_flight=0,
            shows_epochs=True,
            most=_FOUND_MAX,
        )


def restore(
    *,
    environment: Environment,
    topic: str | None,
    backup_url: str,
    now_url: str | None,
    inboxes: tuple[str, ...],
    page: Path | None,
    as_json: bool,
) -> None:
    """Play a restore, print its steps and its verdict, and exit with the command's code.

    Each argument is the option of that name.
    """
    declared = environment.topic(topic)
    with ExitStack() as stack:
        backup = require_another(environment, "--backup", backup_url)
        now = None if now_url is None else require_another(environment, "--now", now_url)
        own = {
            consumer: require_another(environment, f"--inbox {consumer}", url)
            for consumer, url in (_named_inbox(environment, each) for each in inboxes)
        }
        begun = SystemClock().monotonic()
        restored = stack.enter_context(working_copy(backup))
        copies = {consumer: stack.enter_context(working_copy(engine)) for consumer, engine in own.items()}
        copied_seconds = SystemClock().monotonic() - begun
        server = stack.enter_context(SimulatorServer(port=0))
        stack.enter_context(_calling(server.url))
        played = _without_existing_queues(environment)
        consumers = played.consumers_of(declared)
        made = deploy(played, sqs=_client(played, server.url, "sqs"), sns=_client(played, server.url, "sns"))
        sources = Sources(
            environment=played,
            outbox=restored,
            inboxes={consumer.name: copies.get(consumer.name, restored) for consumer in played.consumers},
            endpoint_url=server.url,
        )
        arn = made.topic_arn.rpartition(":")[0] + f":{naming.topic_name(played, declared.name)}"
        present = {name: engine for name, engine in ((c.name, own.get(c.name, now)) for c in consumers) if engine}
        drill = Drill(sources=sources, topic=declared.name, topic_arn=arn, now=now, now_inboxes=present)
        drill.steps.append(
            DrillStep(name="copy", command="", seconds=copied_seconds, result=f"{1 + len(own)} databases")
        )
        fields = _play(drill, consumers)
        for engine in (backup, now, *own.values()):
            if engine is not None:
                engine.dispose()
    if page is not None:
        drill_page.write(page, fields)
    if as_json:
        output.as_json(fields)
    else:
        _print(fields)
    if fields["verdict"] != VALID:
        sys.exit(PARTLY if fields["verdict"] == INVALID else COULD_NOT)


def _named_inbox(environment: Environment, text: str) -> tuple[str, str]:
    """Return the consumer's name and the URL of an option `--inbox CONSUMER=URL`."""
    name, equals, url = text.partition("=")
    if not equals or not url:
        raise ConfigError(f"--inbox is {text!r}, allowed is CONSUMER=URL, such as billing=postgresql://me@host/billing")
    return consumer_of(environment, name).name, url


@contextmanager
def _calling(url: str) -> Iterator[None]:
    """Let every client of AWS in this process call the simulator, with credentials that no account has."""
    before = dict(os.environ)
    played = simulated_variables(url)
    try:
        os.environ.clear()
        os.environ.update(played)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _without_existing_queues(environment: Environment) -> Environment:
    """Return the environment without its existing queues, so that queues with its own names are made in their place."""
    consumers = tuple(
        consumer if consumer.queue is None else replace(consumer, queue=None) for consumer in environment.consumers
    )
    return replace(environment, consumers=consumers)


def _client(environment: Environment, url: str, service: str) -> Any:
    """Return a boto3 client of the simulator at `url`, for the service `sqs` or `sns`."""
    if service == "sqs":
        return queue.client(url, environment.region, connections=1, kind="boto3")
    return publisher.client(url, environment.region, kind="boto3")


# --- the steps --------------------------------------------------------------------------------------------------------


def _play(drill: Drill, consumers: tuple[Consumer, ...]) -> dict[str, Any]:
    """Take all steps, and return what the command prints in JSON."""
    operator = OutboxOperator(topic=drill.topic_name, actor=actor(), reason=_REASON)
    found: dict[str, Any] = {"resent": 0, "given_up": 0, "discarded": None}
    if drill.now is not None:
        drill.take("queues", "", lambda: _fill_queues(drill, consumers))
        found["discarded"] = _count_lost(drill.engine, drill.now, drill.topic_name)
    drill.take("look", "sluice outbox verify --epochs", lambda: _describe(drill.verify().fields))

    def begin_epoch() -> str:
        with drill.engine.begin() as connection:
            found["epoch"] = operator.begin_epoch(connection)
        return f"epoch {found['epoch']}"

    def give_up() -> str:
        for consumer in consumers:
            found["given_up"] += _give_up(drill, consumer, found["epoch"])
        return f"{found['given_up']} numbers given up, which do not come again"

    def resend() -> str:
        found["resent"] = _resend(drill, operator)
        _run(drill, consumers)
        return f"{found['resent']} messages resent"

    def judge() -> str:
        found["outbox"] = drill.verify().fields
        return _describe(found["outbox"])

    def go_on() -> str:
        probes = _commit_probes(drill)
        _run(drill, consumers)
        found["not_taken"] = list(_not_taken(drill, consumers, probes))
        taken = f"{len(probes)} groups got a new event"
        return f"{taken}, {len(found['not_taken'])} were not taken by a consumer"

    drill.take("epoch", "sluice outbox begin-epoch --reason … --yes", begin_epoch)
    drill.take("run", "sluice relay, sluice worker", lambda: _run(drill, consumers))
    drill.take("resend", "sluice outbox resend GROUP NUMBERS --reason … --yes", resend)
    drill.take("give up", "sluice dlq skip --before-epoch EPOCH --consumer NAME --reason … --yes", give_up)
    drill.take("verdict", "sluice outbox verify", judge)
    drill.take("go on", "the producers start", go_on)
    return {
        "verdict": INVALID if found["not_taken"] else found["outbox"]["verdict"],
        "environment": drill.environment.name,
        "seconds": sum(step.seconds for step in drill.steps),
        "steps": [asdict(step) for step in drill.steps],
        **found,
    }


def _describe(fields: dict[str, Any]) -> str:
    """Return a verification in a few words."""
    missing = sum(each["missing"] for each in fields["consumers"])
    unknown = sum(len(each["unknown"]) for each in fields["consumers"])
    return (
        f"{fields['verdict']}: {fields['sent']} sent, {missing} missing, {unknown} reasons for unknown,"
        f" {len(fields['restored'])} groups of which a consumer knows later numbers than the outbox"
    )


def _count_lost(restored: Engine, now: Engine, topic: str) -> dict[str, int]:
    """Count the messages, and their groups, that were numbered after the backup: no restored outbox has them."""
    before, after = _last_numbers(restored, topic), _last_numbers(now, topic)
    lost = {
        group: last - (before[group][1] if before.get(group, (0, 0))[0] == epoch else 0)
        for group, (epoch, last) in after.items()
    }
    return {"messages": sum(lost.values()), "groups": sum(count > 0 for count in lost.values())}


def _last_numbers(engine: Engine, topic: str) -> dict[str, tuple[int, int]]:
    """Return epoch and last number of each group of a topic."""
    g = outbox.groups.c
    with engines.reading(engine) as connection:
        rows = connection.execute(select(g.group_id, g.epoch, g.last_seq).where(g.topic == topic))
        return {row.group_id: (row.epoch, row.last_seq) for row in rows}


def _fill_queues(drill: Drill, consumers: tuple[Consumer, ...]) -> str:
    """Fill the simulated queues and DLQs with the messages that they had when `now` was copied; return the counts."""
    sqs = _client(drill.environment, str(drill.sources.endpoint_url), "sqs")
    counts = [0, 0]
    for consumer in consumers:
        engine = drill.now_inboxes.get(consumer.name)
        if engine is None or consumer.filter_policy is not None:
            continue
        queues = [
            Destination(sqs, name_of(drill.environment, consumer))
            for name_of in (naming.queue_name, naming.dead_letter_queue_name)
        ]
        for row, is_dead in _waiting_rows(drill, consumer, engine):
            counts[is_dead] += 1
            queues[is_dead].send_body(
                row.body,
                message_group_id=row.group_id,
                attributes={"type": {"DataType": "String", "StringValue": row.type}},
                trace_header=None,
                deduplication_id=row.deduplication_id,
            )
    return f"{counts[0]} messages under way, {counts[1]} dead"


def _waiting_rows(drill: Drill, consumer: Consumer, engine: Engine) -> Iterator[tuple[Any, bool]]:
    """Yield the sent messages that a consumer has not handled now, in their order, and whether each is dead."""
    assert drill.now is not None, "the caller has it"
    m, e = outbox.messages.c, inbox.exceptions.c
    is_dead = (e.consumer == consumer.name, e.state == inbox.DEAD, e.closed_at_us.is_(None))
    with engines.reading(drill.now) as read, engines.reading(engine) as known:
        dead = set(known.execute(select(e.event_id).where(*is_dead)).scalars())
        sent = select(outbox.messages).where(m.topic == drill.topic_name, m.status == SENT).order_by(m.id)
        for row in read.execute(sent.execution_options(yield_per=500)):
            if row.event_id in dead:
                yield row, True
            elif is_on_its_way(known, consumer.name, _copy_of(row)):
                yield row, False


def _run(drill: Drill, consumers: tuple[Consumer, ...]) -> str:
    """Publish all pending messages, let each consumer acknowledge the messages in its queue, and return the counts."""
    settings = RelaySettings()
    with drill.engine.begin() as connection:  # nobody leads on a copy
        connection.execute(delete(outbox.leases).where(outbox.leases.c.topic == drill.topic_name))
    url = str(drill.sources.endpoint_url)
    sns = _client(drill.environment, url, "sns")
    store = Store(drill.engine, drill.topic_name)
    lease = Lease(drill.engine, drill.topic_name, lease_seconds=settings.lease_seconds)
    relay = Relay(store, lease, publisher.Publisher(sns, drill.topic_arn), settings=settings)
    before = store.lag().pending_count
    while not store.is_finished():
        relay.step()
    relay.close()
    taken = sum(_take_all(drill, consumer, url) for consumer in consumers)
    return f"{before} published, {taken} steps of workers"


def _take_all(drill: Drill, consumer: Consumer, url: str) -> int:
    """Let a consumer take everything that its queue has; return how many steps it took.

    A receive that failed looks to the lane's caller like one of an empty queue, so the queue is asked.
    """
    sqs = queue.client(url, drill.environment.region, connections=1, kind="boto3")
    engine = drill.sources.inboxes[consumer.name]
    assert isinstance(engine, Engine), "the drill has opened it"
    full = Queue(sqs, queue.url_of(sqs, naming.queue_name(drill.environment, consumer)))
    parts = assemble_worker(
        queue=full,
        engine=engine,
        handlers=Handlers.of_function(_acknowledge),
        inbox=Inbox(InboxPolicy.of_consumer(consumer), worker="drill"),
        settings=replace(WorkerSettings.of_consumer(consumer, lanes=1), wait_seconds=0),
        processor_settings=_settings_of(drill.environment, consumer),
    ).parts
    count, ends_at = 0, SystemClock().monotonic() + _EMPTY_SECONDS
    while parts.lanes[0].step() or parts.drainer.step() or _has_messages(full, until=ends_at):
        count += 1
    return count


def _has_messages(queue_: Queue, *, until: float) -> bool:
    """Return whether a queue has messages that can be received; False after an instant of the monotonic clock."""
    return SystemClock().monotonic() < until and queue_.attributes()["ApproximateNumberOfMessages"] != "0"


def _settings_of(environment: Environment, consumer: Consumer) -> ProcessorSettings:
    """Return how a consumer works on messages; a worker of the drill plays its function, and dead-letters for it."""
    bundles = environment.bundle_events_max(consumer)
    if consumer.runtime is None:
        return ProcessorSettings.of_consumer(consumer, bundle_events_max=bundles)
    settings = ProcessorSettings.of_function(consumer, consumer.runtime, bundle_events_max=bundles)
    return replace(settings, has_bundles=True)  # else the queue moves a dead message after `receives_max` receives


def _acknowledge(_: Session, __: Any, ___: Any) -> Ack:
    """Handle nothing: the drill is about positions, and effects are the consumers' own."""
    return Ack()


def _resend(drill: Drill, operator: OutboxOperator) -> int:
    """Resend what verify finds missing, as its output says; return how many messages that were."""
    missing = {
        (found["group"], found["first"], found["last"])
        for each in drill.verify().fields["consumers"]
        for found in each["findings"]
        if found["cause"] not in ("not-in-dlq",)
    }
    with drill.engine.begin() as connection:
        return operator.resend_ranges(connection, sorted(missing))


def _give_up(drill: Drill, consumer: Consumer, epoch: int) -> int:
    """Give up the numbers that a restored inbox waits for, and that do not come again."""
    engine = drill.sources.inboxes[consumer.name]
    assert isinstance(engine, Engine), "the drill has opened it"
    operator = InboxOperator(consumer=consumer.name, actor=actor(), reason=_REASON)
    with engine.begin() as connection:
        return operator.skip_before(connection, epoch)[0]


def _commit_probes(drill: Drill) -> list[StoredCopy]:
    """Commit an event in up to a hundred groups, and return their numbers; groups with lost numbers come first."""
    restored = _last_numbers(drill.engine, drill.topic_name)
    now = {} if drill.now is None else _last_numbers(drill.now, drill.topic_name)
    has_lost = [group for group in sorted(now) if now[group] > restored.get(group, (0, 0))]
    groups = list(dict.fromkeys([*has_lost, *sorted(restored)]))[:_PROBED_MAX]
    with Session(drill.engine) as session:
        for group in groups:
            Outbox(drill.topic_name).add(session, OwnEvent(type=PROBE, group=group, data=None))
        session.commit()
    m = outbox.messages.c
    committed = select(outbox.messages).where(m.topic == drill.topic_name, m.type == PROBE).order_by(m.id)
    with engines.reading(drill.engine) as connection:
        return [_copy_of(row) for row in connection.execute(committed)]


def _not_taken(
    drill: Drill, consumers: tuple[Consumer, ...], probes: list[StoredCopy]
) -> Iterator[dict[str, str | None]]:
    """Yield consumer and group of each new event that a consumer has not taken; a filter policy may keep it away."""
    for consumer in consumers:
        engine = drill.sources.inboxes[consumer.name]
        assert isinstance(engine, Engine), "the drill has opened it"
        if consumer.filter_policy is None and consumer.fifo:
            g = inbox.groups.c
            with engines.reading(engine) as connection:
                last = select(g.last_event_id).where(g.consumer == consumer.name)
                taken = set(connection.execute(last).scalars())
            for probe in probes:
                if probe.event_id not in taken:
                    yield {"consumer": consumer.name, "group": probe.group_id}


def _copy_of(row: Any) -> StoredCopy:
    """Return group, epoch, number and event of an outbox's row, as a `StoredCopy`."""
    place = {"place": outbox.messages.name, "owner": row.topic, "group_id": row.group_id, "event_id": row.event_id}
    return StoredCopy(**place, epoch=decode(row.body).epoch, seq=row.group_seq)


# --- output -----------------------------------------------------------------------------------------------------------


def _print(fields: dict[str, Any]) -> None:
    """Print the steps, what the restore has lost, and the verdict."""
    rows = [(step["name"], f"{step['seconds']:.1f} s", step["result"], step["command"]) for step in fields["steps"]]
    output.table(("step", "time", "result", "what you would run"), rows)
    discarded = fields["discarded"]
    if discarded is None:
        output.line("no --now: nothing is known of what came after the backup, and the queues were empty")
    else:
        output.line(f"{discarded['messages']} messages of {discarded['groups']} groups were numbered after the backup")
    for each in fields["outbox"]["consumers"]:
        for reason in (*each["wrong"], *each["unknown"]):
            output.line(f"{each['consumer']}: {reason}")
    for each in fields["not_taken"]:
        output.line(f"{each['consumer']} does not take a new event of group {each['group']}")
    output.line(f"{fields['verdict']} after {fields['seconds']:.1f} s")
