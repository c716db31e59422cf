"""A service whose events travel in bundles, on the simulator, and its recording."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from sluice.history.events import END_TYPE
from sluice.judge.checker import Expectation
from sluice.judge.recording import RecordedQueue
from sluice.messaging.bundle import read_body, write_bundle
from sluice.messaging.envelope import Envelope, Event, any_event
from sluice.recorder import record
from sluice.recorder.journal import Journal
from sluice.recorder.recorder import Recorder
from sluice.saboteurs import saboteur
from sluice.simulator.hook import Simulator
from tests.support.histories.recorded_services import VISIBILITY_SECONDS, create_queue, subscribe
from tests.support.histories.simulated_recordings import LostAnswers
from tests.support.histories.written_services import TakenMessage

QUEUES = ("billing.fifo", "shipping.fifo")
KNOWN = {
    queue: RecordedQueue(
        visibility_timeout_seconds=VISIBILITY_SECONDS,
        dead_letter_queue=f"dead-{queue}",
        max_receive_count=3,
        is_unfiltered=True,
    )
    for queue in QUEUES
}
RUN = "epoch-7"
EXPECTATION = Expectation(
    run=RUN,
    queues=QUEUES,
    visibility_timeout_seconds=dict.fromkeys(QUEUES, VISIBILITY_SECONDS),
    dead_letter_queues={queue: f"dead-{queue}" for queue in QUEUES},
    max_receive_count=dict.fromkeys(QUEUES, 3),
    effects_recorded=QUEUES,
)
"""Of a recording as a load test."""
_ALL: dict[str, Any] = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
_ROUNDS_MAX = 100


@cache
def _simulator_and_clients() -> tuple[Simulator, Any, Any, LostAnswers]:
    """Return a simulator, and its clients; to make clients takes longer than a life."""
    simulator = Simulator()
    sns, sqs = simulator.client("sns"), simulator.client("sqs")
    return simulator, sns, sqs, LostAnswers(sns, sqs)


class BundledService:
    """A producer, and a consumer of two queues, which record into a folder.

    Args:
        folder: of the recording.
        saboteur_name: stands between the service and its clients.
        is_raw: whether the queues get bodies without an envelope.
        is_planned: whether it is recorded as a load test, whose groups have end markers.
    """

    def __init__(
        self, folder: Path, *, saboteur_name: str | None = None, is_raw: bool = True, is_planned: bool = False
    ) -> None:
        self.simulator, self.sns, self.sqs, self._lost = _simulator_and_clients()
        self.simulator.reset()
        self.topic = str(self.sns.create_topic(Name="events.fifo", Attributes={"FifoTopic": "true"})["TopicArn"])
        self.urls: dict[str, str] = {}
        for queue in QUEUES:
            self.urls[f"dead-{queue}"] = dead = create_queue(self.sqs, f"dead-{queue}")
            self.urls[queue] = create_queue(self.sqs, queue, dead_letter_url=dead)
            subscribe(self.sns, self.sqs, topic_arn=self.topic, url=self.urls[queue], is_raw=is_raw)
        self.last: dict[str, int] = defaultdict(int)
        self._stack, clock = ExitStack(), self.simulator.clock
        hooks: list[Any] = [] if saboteur_name is None else [saboteur(saboteur_name).make(1)]
        if is_planned:
            journal = Journal(folder, "w", common={"run": RUN, "worker": "w", "clock_id": "c"}, clock=clock)
            names = {url: name for name, url in self.urls.items()} | {self.topic: "events.fifo"}
            self.recorder = Recorder(self._stack.enter_context(journal), names=names, clock=clock)
            hooks.append(self.recorder)
        for hook in hooks:
            for client in (self.sns, self.sqs):
                hook.attach(client)
                self._stack.callback(hook.detach, client)
        if not is_planned:
            self._stack.enter_context(record([self.sns, self.sqs], folder, run="life", clock=clock))

    def close(self) -> None:
        self._stack.close()

    def events(self, group: str, count: int) -> list[Envelope]:
        """Return the next events of a group."""
        self.last[group] += count
        numbers = range(self.last[group] - count + 1, self.last[group] + 1)
        return [
            Envelope(
                event=Event(type="order.placed", group=group, data={"n": seq}, id=f"{group}-{seq}"), seq=seq, epoch=7
            )
            for seq in numbers
        ]

    def end(self) -> None:
        """Publish the end marker of each group."""
        for group in self.last:
            (last,) = self.events(group, 1)
            self.publish([replace(last, event=any_event(type=END_TYPE, group=group, data=None, id=f"{group}-end"))])

    def handle(self, queue: str, message: TakenMessage, event: Envelope, position: int | None = None) -> None:
        """Record that the effect of an event of a message was committed."""
        self.simulator.advance(0.01)
        id_, count = message["MessageId"], int(message["Attributes"]["ApproximateReceiveCount"])
        self.recorder.record_handled(
            queue_url=self.urls[queue],
            body=event.body,
            sqs_message_id=id_ if position is None else f"{id_}.{position}",
            receive_count=count,
            begun_at_us=self.simulator.clock.now_us() - 1_000,
            is_parked=False,
            state="handled",
        )

    def publish(self, events: Sequence[Envelope], *, is_answered: bool = True, group: str | None = None) -> None:
        """Publish the events in one message."""
        self.simulator.advance(0.01)
        ids = [each.event.id for each in events]
        self._lost.is_on = not is_answered
        try:
            self.sns.publish(
                TopicArn=self.topic,
                Message=write_bundle([each.body for each in events]),
                MessageGroupId=group or events[0].event.group,
                MessageDeduplicationId=ids[0] if len(ids) == 1 else "+".join(ids),
            )
        except ReadTimeoutError:
            assert not is_answered, "only then"
        finally:
            self._lost.is_on = False

    def receive(self, queue: str, *, count: int = 10) -> list[TakenMessage]:
        answer = self.sqs.receive_message(
            QueueUrl=self.urls[queue], MaxNumberOfMessages=count, WaitTimeSeconds=20, **_ALL
        )
        return list(answer.get("Messages", []))

    def delete(self, queue: str, messages: Iterable[TakenMessage]) -> None:
        for message in messages:
            self.simulator.advance(0.01)
            try:
                self.sqs.delete_message(QueueUrl=self.urls[queue], ReceiptHandle=message["ReceiptHandle"])
            except ClientError:
                return  # its time was over

    def work(self) -> None:
        """Receive and delete until the queues are empty for longer than any hold."""
        for queue in self.urls:
            quiet = 0
            for _ in range(_ROUNDS_MAX):
                messages = self.receive(queue)
                self.delete(queue, messages)
                quiet = 0 if messages else quiet + 1
                if quiet > 2:
                    break


def live(folder: Path, seed: int) -> None:
    """Record a random lawful life with bundles: lost answers, repeats, releases, ended holds, dead letters."""
    rng = random.Random(seed)  # noqa: S311 (a seed, no secret)
    service = BundledService(folder, is_raw=rng.random() < 0.7)
    held: list[tuple[str, TakenMessage]] = []
    for _ in range(rng.randint(10, 30)):
        service.simulator.advance(rng.choice((0.01, 0.01, 0.5, 2.0, 31.0)))
        match rng.choice(("publish", "publish", "repeat", "receive", "receive", "delete", "delete", "release", "send")):
            case "publish":
                service.publish(service.events(rng.choice("ab"), rng.choice((1, 2, 5))))
            case "repeat":
                events = service.events(rng.choice("ab"), rng.choice((1, 3)))
                service.publish(events, is_answered=rng.random() < 0.3)
                service.publish(events)
            case "receive":
                queue = rng.choice((*QUEUES, *QUEUES, *service.urls))
                held += [(queue, each) for each in service.receive(queue, count=rng.choice((1, 3, 10)))]
            case "delete" if held:
                queue, message = held.pop(rng.randrange(len(held)))
                service.delete(queue, [message])
            case "release" if held:
                queue, message = held.pop()
                _release(service, queue, message, rng.choice((0, 5, 60)))
            case "send" if held:
                send_dead_letter(service, *held[-1])
    if rng.random() < 0.7:
        service.work()
    service.close()


def _release(service: BundledService, queue: str, message: TakenMessage, seconds: int) -> None:
    params = {"QueueUrl": service.urls[queue], "ReceiptHandle": message["ReceiptHandle"]}
    try:
        service.sqs.change_message_visibility(**params, VisibilityTimeout=seconds)
    except ClientError:
        return  # its time was over


def send_dead_letter(service: BundledService, queue: str, message: TakenMessage) -> None:
    """Send the last event of a held message to the DLQ, as a worker does that counts attempts itself."""
    if queue not in QUEUES or '"Notification"' in message["Body"]:
        return
    events, id_ = read_body(message["Body"]), message["MessageId"]
    service.sqs.send_message(
        QueueUrl=service.urls[f"dead-{queue}"],
        MessageBody=events[-1].body,
        MessageGroupId=message["Attributes"]["MessageGroupId"],
        MessageDeduplicationId=id_ if len(events) == 1 else f"{id_}.{len(events) - 1}",
    )
