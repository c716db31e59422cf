"""A random life of a service without Sluice on the simulator, as our recorder writes it.

The service is lawful: producers, consumers and operators do whatever SQS and SNS allow, mistakes and late calls
included. The recording has the whole life, or the life from some time on, or all but one consumer, or a journal that
ends within a frame. So whatever `check` returns, it is never INVALID.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from sluice.judge import engine, recording
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.recording import RecordedQueue
from sluice.recorder import record
from sluice.saboteurs import saboteur
from sluice.simulator.hook import Simulator
from tests.support.histories.recorded_services import queue_arn, subscribe

_GROUPS = ("ann", "bob")
_VISIBILITY_SECONDS = (5, 30)
_PAUSES_SECONDS = (0.01, 0.01, 0.5, 2.0, 6.0, 31.0, 70.0, 301.0)
_HELD_MAX = 12
_ALL: dict[str, Any] = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
_TORN_BYTES = 40
_OFTEN = 8
_DRAINED_SHARE, _ROUNDS_MAX, _QUIET_ROUNDS = 0.5, 12, 1


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a life that is recorded.

    Args:
        late_steps: how many steps are over when the recorder is attached.
        late_consumers: whether consumers are attached even later.
        is_consumer_left_out: whether one consumer is never recorded, which the user declares.
        is_torn: whether a journal ends within a frame.
    """

    late_steps: int = 0
    late_consumers: bool = False
    is_consumer_left_out: bool = False
    is_torn: bool = False

    @classmethod
    def of(cls, rng: random.Random) -> "Part":
        """Return a random part, half the time the whole life."""
        late = rng.randint(3, 12)
        whole = (cls(), cls(), cls())
        parts = (cls(late_steps=late), cls(late_steps=late, late_consumers=True))
        return rng.choice((*whole, *parts, cls(is_consumer_left_out=True), cls(is_torn=True)))


class LostAnswers:
    """While on, loses the answers of calls behind the simulator: the calls had their effects."""

    def __init__(self, *clients: Any) -> None:
        self.is_on = False
        for client in clients:
            client.meta.events.register_last(f"before-send.{client.meta.service_model.service_name}", self._lose)

    def _lose(self, **_: Any) -> None:
        if self.is_on:
            raise ReadTimeoutError(endpoint_url="simulated")


@dataclass(kw_only=True)
class _Process:
    """A process of the service: its clients, which are recorded or not."""

    sns: Any
    sqs: Any
    lost: LostAnswers


@cache
def _simulator_and_processes() -> tuple[Simulator, Sequence[_Process]]:
    """Return a simulator and the clients of three processes; to make clients takes longer than a life."""
    simulator = Simulator()
    processes = []
    for _ in range(3):
        sns, sqs = simulator.client("sns"), simulator.client("sqs")
        processes.append(_Process(sns=sns, sqs=sqs, lost=LostAnswers(sns, sqs)))
    return simulator, processes


@dataclass(kw_only=True)
class Life:
    """The service with its state.

    Args:
        held: queue, receipt handle and receiver of each held message.
        attempts: receives that may be repeated: receiver and parameters.
        sent: published messages: address and parameters.
        often: the name of a step that happens more often than usual.
    """

    rng: random.Random
    simulator: Simulator
    producer: _Process
    consumers: Sequence[_Process]
    topics: list[str] = field(default_factory=list)
    urls: dict[str, str] = field(default_factory=dict)
    dead: dict[str, str] = field(default_factory=dict)
    queues: dict[str, RecordedQueue] = field(default_factory=dict)
    subscribed: dict[str, list[str]] = field(default_factory=dict)
    held: list[tuple[str, str, _Process]] = field(default_factory=list)
    attempts: list[tuple[_Process, dict[str, Any]]] = field(default_factory=list)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    number: int = 0
    often: str | None = None

    def consumer(self) -> _Process:
        return self.rng.choice(self.consumers)

    def call(self, process: _Process, does: Callable[[], Any]) -> Any:
        """Return the answer of a call; None if it was refused, or its answer was lost."""
        process.lost.is_on = self.rng.random() < 0.03
        try:
            return does()
        except (ClientError, ReadTimeoutError):
            return None
        finally:
            process.lost.is_on = False


def _create_topics_and_queues(life: Life) -> None:
    """Create one or two topics, and one to three queues, each subscribed to the first topic and perhaps to the second.

    Of four queues three have a DLQ, in some lives one for all. Of five recordings one does not know how often its queue
    lets a message be received.
    """
    rng, sqs = life.rng, life.producer.sqs
    for number in range(rng.choice((1, 1, 2))):
        attributes = {"FifoTopic": "true", "ContentBasedDeduplication": rng.choice(("true", "false"))}
        attributes["FifoThroughputScope"] = rng.choice(("Topic", "Topic", "MessageGroup"))
        made = life.producer.sns.create_topic(Name=f"topic{number}.fifo", Attributes=attributes)
        life.topics.append(made["TopicArn"])
    names = [f"queue{number}.fifo" for number in range(rng.choice((1, 2, 2, 3)))]
    is_shared, scope = rng.random() < 0.3, rng.choice(("queue", "queue", "messageGroup"))
    for name in names:
        receives_max = rng.choice((None, 1, 2, 3))
        seconds = rng.choice(_VISIBILITY_SECONDS)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(seconds), "DeduplicationScope": scope}
        attributes["ContentBasedDeduplication"] = "true"
        attributes["FifoThroughputLimit"] = "perMessageGroupId" if scope == "messageGroup" else "perQueue"
        dead = None
        if receives_max is not None:
            dead = "dead.fifo" if is_shared else f"dead-{name}"
            if dead not in life.urls:
                created = sqs.create_queue(QueueName=dead, Attributes={"FifoQueue": "true", "VisibilityTimeout": "5"})
                life.urls[dead] = created["QueueUrl"]
            policy = {"deadLetterTargetArn": queue_arn(sqs, life.urls[dead]), "maxReceiveCount": receives_max}
            attributes["RedrivePolicy"] = json.dumps(policy)
            life.dead[name] = dead
        life.urls[name] = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        for topic in life.topics:
            if topic == life.topics[0] or rng.random() < 0.5:
                subscribe(life.producer.sns, sqs, topic_arn=topic, url=life.urls[name], is_raw=rng.random() < 0.6)
                life.subscribed.setdefault(topic.rpartition(":")[2], []).append(name)
        life.queues[name] = RecordedQueue(
            visibility_timeout_seconds=seconds,
            dead_letter_queue=dead,
            max_receive_count=receives_max if rng.random() < 0.8 else None,
        )


# --- what a life is made of ------------------------------------------------------------------------------------------


def _message(life: Life) -> dict[str, Any]:
    """Return a new message; rarely one with another message's id, in another group or with another body."""
    life.number += 1
    body, id_, group = f"body {life.number}", f"id-{life.number}", life.rng.choice(_GROUPS)
    if life.sent and life.rng.random() < 0.1:
        _, other = life.rng.choice(life.sent)
        body = life.rng.choice((body, other["body"]))
        id_ = other["id"] if life.rng.random() < 0.7 else id_
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}} if life.rng.random() < 0.2 else {}
    return {"body": body, "id": id_, "group": group, "attributes": attributes}


def _send(life: Life, address: str, messages: Sequence[Mapping[str, Any]]) -> None:
    is_topic = address.startswith("arn:")
    client = life.producer.sns if is_topic else life.producer.sqs
    entries = []
    for message in messages:
        entry = {"Message" if is_topic else "MessageBody": message["body"], "MessageGroupId": message["group"]}
        if message["id"] is not None:
            entry["MessageDeduplicationId"] = message["id"]
        if message["attributes"]:
            entry["MessageAttributes"] = message["attributes"]
        entries.append(entry)
    where = {"TopicArn" if is_topic else "QueueUrl": address}
    batch = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
    does: Callable[[], Any]
    if len(messages) == 1 and is_topic:
        does = lambda: client.publish(**where, **entries[0])  # noqa: E731
    elif len(messages) == 1:
        does = lambda: client.send_message(**where, **entries[0])  # noqa: E731
    elif is_topic:
        does = lambda: client.publish_batch(**where, PublishBatchRequestEntries=batch)  # noqa: E731
    else:
        does = lambda: client.send_message_batch(**where, Entries=batch)  # noqa: E731
    life.sent += [(address, dict(message)) for message in messages]
    life.call(life.producer, does)


def _publish(life: Life) -> None:
    address = life.rng.choice(life.topics) if life.rng.random() < 0.8 else life.rng.choice(_sources(life))
    _send(life, address, [_message(life) for _ in range(life.rng.choice((1, 1, 1, 2, 4)))])


def _publish_content(life: Life) -> None:
    """Publish without a deduplication id, to places with content-based deduplication."""
    message = _message(life) | {"id": None}
    _send(life, life.rng.choice((*life.topics, *_sources(life))), [message])


def _publish_again(life: Life) -> None:
    if life.sent:
        address, message = life.rng.choice(life.sent[-6:])
        if life.rng.random() < 0.2:
            address = life.rng.choice((*life.topics, *_sources(life)))
        if life.rng.random() < 0.15:
            message = message | {"group": life.rng.choice(_GROUPS)}
        _send(life, address, [message])


def _sources(life: Life) -> list[str]:
    return [life.urls[name] for name in life.queues]


def _receive(life: Life) -> None:
    dead = sorted(set(life.dead.values()))
    name = life.rng.choice(dead) if dead and life.rng.random() < 0.2 else life.rng.choice(list(life.queues))
    params = {"QueueUrl": life.urls[name], "MaxNumberOfMessages": life.rng.choice((1, 1, 2, 3, 10)), **_ALL}
    seconds = life.rng.choice((None, None, None, 0, 3, 40))
    if seconds is not None:
        params["VisibilityTimeout"] = seconds
    if life.rng.random() < 0.2:
        params["WaitTimeSeconds"] = 2
    consumer = life.consumer()
    if life.rng.random() < 0.2:
        life.number += 1
        params["ReceiveRequestAttemptId"] = f"attempt-{life.number}"
        life.attempts.append((consumer, params))
    _take(life, consumer, params)


def _take(life: Life, consumer: _Process, params: Mapping[str, Any]) -> None:
    answer = life.call(consumer, lambda: consumer.sqs.receive_message(**params)) or {}
    life.held += [(params["QueueUrl"], each["ReceiptHandle"], consumer) for each in answer.get("Messages", [])]


def _repeat_receive(life: Life) -> None:
    if life.attempts:
        _take(life, *life.rng.choice(life.attempts[-2:]))


def _work(life: Life) -> None:
    """Receive, and delete the received messages."""
    before = list(life.held)
    _receive(life)
    for url, handle, consumer in life.held:
        if (url, handle, consumer) not in before:
            life.call(consumer, lambda: consumer.sqs.delete_message(QueueUrl=url, ReceiptHandle=handle))  # noqa: B023


def _exhaust(life: Life) -> None:
    """Receive messages and give them back, so often that SQS may move one to the DLQ."""
    url = life.rng.choice(_sources(life))
    for _ in range(life.rng.choice((2, 3, 4))):
        consumer = life.consumer()
        params = {"QueueUrl": url, "MaxNumberOfMessages": life.rng.choice((1, 1, 3)), "VisibilityTimeout": 0}
        _take(life, consumer, params | _ALL)


def _choose_messages(life: Life) -> list[tuple[str, str, _Process]]:
    if not life.held:
        return []
    first = life.rng.choice(life.held)
    if life.rng.random() < 0.6:
        return [first]
    return [each for each in life.held if each[0] == first[0] and each[2] is first[2]][:5]


def _delete(life: Life) -> None:
    chosen = _choose_messages(life)
    if len(chosen) == 1:
        ((url, handle, process),) = chosen
        life.call(process, lambda: process.sqs.delete_message(QueueUrl=url, ReceiptHandle=handle))
    elif chosen:
        url, _, process = chosen[0]
        entries = [{"Id": str(number), "ReceiptHandle": handle} for number, (_, handle, _) in enumerate(chosen)]
        life.call(process, lambda: process.sqs.delete_message_batch(QueueUrl=url, Entries=entries))


def _hide(life: Life) -> None:
    chosen, seconds = _choose_messages(life), life.rng.choice((0, 0, 3, 40))
    if len(chosen) == 1:
        ((url, handle, process),) = chosen
        params = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": seconds}
        life.call(process, lambda: process.sqs.change_message_visibility(**params))
    elif chosen:
        url, _, process = chosen[0]
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for number, (_, handle, _) in enumerate(chosen)
        ]
        life.call(process, lambda: process.sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries))


def _purge(life: Life) -> None:
    url = life.rng.choice(list(life.urls.values()))
    life.call(life.producer, lambda: life.producer.sqs.purge_queue(QueueUrl=url))


def _move(life: Life) -> None:
    dead = sorted(set(life.dead.values()))
    if not dead:
        return
    sqs = life.producer.sqs
    params: dict[str, Any] = {"SourceArn": queue_arn(sqs, life.urls[life.rng.choice(dead)])}
    if life.rng.random() < 0.4:
        params["DestinationArn"] = queue_arn(sqs, life.rng.choice(_sources(life)))
    if life.rng.random() < 0.3:
        params["MaxNumberOfMessagesPerSecond"] = 1
    answer = life.call(life.producer, lambda: sqs.start_message_move_task(**params))
    life.tasks.append(params["SourceArn"])
    if answer and life.rng.random() < 0.3:
        life.simulator.advance(life.rng.choice((0.5, 2.0)))
        life.call(life.producer, lambda: sqs.cancel_message_move_task(TaskHandle=answer["TaskHandle"]))


def _list_moves(life: Life) -> None:
    if life.tasks:
        source = life.rng.choice(life.tasks)
        life.call(life.producer, lambda: life.producer.sqs.list_message_move_tasks(SourceArn=source))


def _look_at_dead_letters(life: Life) -> None:
    for name in sorted(set(life.dead.values())):
        consumer = life.consumer()
        _take(life, consumer, {"QueueUrl": life.urls[name], "MaxNumberOfMessages": 10, "VisibilityTimeout": 1} | _ALL)


_STEPS: Mapping[Callable[[Life], None], int] = {
    _publish: 10,
    _publish_content: 2,
    _publish_again: 4,
    _receive: 9,
    _repeat_receive: 2,
    _work: 6,
    _exhaust: 3,
    _delete: 8,
    _hide: 4,
    _purge: 1,
    _move: 2,
    _list_moves: 2,
    _look_at_dead_letters: 2,
}


def live(life: Life, count: int) -> None:
    """Take `count` random steps, with pauses."""
    weights = [_OFTEN if step.__name__ == f"_{life.often}" else weight for step, weight in _STEPS.items()]
    for step in life.rng.choices(list(_STEPS), weights, k=count):
        del life.held[:-_HELD_MAX]
        life.simulator.advance(life.rng.choices(_PAUSES_SECONDS, (8, 8, 6, 6, 4, 2, 1, 1))[0])
        step(life)


def _work_until_idle(life: Life) -> None:
    """Receive and delete until no message arrives for longer than any hold."""
    for url in life.urls.values():
        quiet = 0
        for _ in range(_ROUNDS_MAX):
            consumer, before = life.consumer(), len(life.held)
            _take(life, consumer, {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20} | _ALL)
            came, quiet = life.held[before:], quiet + 1
            for _, handle, process in came:
                life.call(process, lambda: process.sqs.delete_message(QueueUrl=url, ReceiptHandle=handle))  # noqa: B023
                quiet = 0
            if quiet > _QUIET_ROUNDS:
                break


@dataclass(frozen=True, kw_only=True)
class RecordedLife:
    """A recording on disk, a user's description of it, and the queues that each topic sent to."""

    part: Part
    folder: Path
    queues: Mapping[str, RecordedQueue]
    subscribed: Mapping[str, Sequence[str]]

    def check(self, read: JudgeEngine | None = None) -> Verdict:
        """Return the verdict of `sluice check`, by an engine that read the folder."""
        read = engine.open_in_memory(self.folder) if read is None else read
        assert read is not None
        return recording.check(
            read,
            self.folder,
            self.queues,
            "endpoint",
            has_other_consumers=self.part.is_consumer_left_out,
        )[0]


def _attach_saboteur(processes: Sequence[_Process], stack: ExitStack, name: str) -> None:
    made = saboteur(name).make(2)
    for client in (client for process in processes for client in (process.sns, process.sqs)):
        made.attach(client)
        stack.callback(made.detach, client)


def _attach(processes: Sequence[_Process], folder: Path, simulator: Simulator, stack: ExitStack) -> None:
    for number, process in enumerate(processes):
        made = record([process.sns, process.sqs], folder, run="life", worker=f"p{number}", clock=simulator.clock)
        stack.enter_context(made)


def record_life(
    seed: int, folder: Path, *, part: Part | None = None, saboteur_name: str | None = None, often: str | None = None
) -> RecordedLife:
    """Live the life of a seed and record it; a named saboteur stands between the service and its clients.

    `often` names a step, such as `purge`, that happens more often.
    """
    rng = random.Random(seed)  # noqa: S311 (a seed, no secret)
    simulator, (producer, *consumers) = _simulator_and_processes()
    simulator.reset()
    part = Part.of(rng) if part is None else part
    life = Life(rng=rng, simulator=simulator, producer=producer, consumers=consumers[: rng.choice((1, 2))], often=often)
    _create_topics_and_queues(life)
    if part.is_consumer_left_out:
        life.consumers = consumers
    with ExitStack() as stack:
        if saboteur_name is not None:
            _attach_saboteur([producer, *consumers], stack, saboteur_name)
        live(life, part.late_steps)
        _attach([producer], folder, simulator, stack)
        live(life, 6 if part.late_consumers else 0)
        _attach(consumers[:1] if part.is_consumer_left_out else consumers, folder, simulator, stack)
        live(life, rng.randint(6, 16))
        if rng.random() < _DRAINED_SHARE:
            _work_until_idle(life)
    if part.is_torn:
        torn = rng.choice(sorted(folder.glob("*.arrows")))
        torn.write_bytes(torn.read_bytes()[:-_TORN_BYTES])
    return RecordedLife(part=part, folder=folder, queues=life.queues, subscribed=life.subscribed)
