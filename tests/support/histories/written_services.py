"""A service without Sluice, whose calls a test writes one by one; its processes are recorded from some call on."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from sluice.judge import engine, recording
from sluice.judge.checker.verdict import Verdict
from sluice.judge.recording import RecordedQueue
from sluice.recorder import record
from sluice.saboteurs import saboteur
from sluice.simulator.hook import Simulator
from tests.support.histories.recorded_services import queue_arn, subscribe

_ALL: Mapping[str, Any] = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
_PAUSE_SECONDS = 0.01
GROUP = "ann"

type TakenMessage = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of the service, by its clients."""

    sns: Any
    sqs: Any


@cache
def _simulator_and_processes() -> tuple[Simulator, Sequence[Process]]:
    """Return a simulator and three processes; to make clients takes longer than a whole history."""
    simulator = Simulator()
    processes = [Process(sns=simulator.client("sns"), sqs=simulator.client("sqs")) for _ in range(3)]
    return simulator, processes


class WrittenService:
    """A producer, a consumer and an operator with one topic and some queues, and the recording of what they do.

    Args:
        folder: of the recording.
    """

    def __init__(self, folder: Path) -> None:
        self.simulator, (self.producer, self.consumer, self.operator) = _simulator_and_processes()
        self.simulator.reset()
        self._folder, self._stack = folder, ExitStack()
        self._dead: dict[str, str] = {}
        self.queues: dict[str, RecordedQueue] = {}
        self.topic_arn = str(
            self.producer.sns.create_topic(Name="t.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
        )

    def record(self, *processes: Process) -> None:
        """Record these processes from now on; without any, the producer and the consumer."""
        for process in processes or (self.producer, self.consumer):
            clients = [process.sns, process.sqs]
            self._stack.enter_context(record(clients, self._folder, run="life", clock=self.simulator.clock))

    def sabotage(self, name: str, every: int) -> None:
        """Let the service break a promise in each so many of the calls of the producer and the consumer."""
        made = saboteur(name).make(every)
        for process in (self.producer, self.consumer):
            for client in (process.sns, process.sqs):
                made.attach(client)
                self._stack.callback(made.detach, client)

    def create_queue(
        self, name: str = "q.fifo", *, receives_max: int | None = None, seconds: int = 30, **attributes: str
    ) -> str:
        """Create a queue, which the user declares; with `receives_max` it has a dead-letter queue of its own."""
        sqs, policy = self.producer.sqs, {}
        if receives_max is not None:
            dead = sqs.create_queue(QueueName=f"dead-{name}", Attributes={"FifoQueue": "true"})["QueueUrl"]
            redrive = {"deadLetterTargetArn": queue_arn(sqs, dead), "maxReceiveCount": receives_max}
            policy = {"RedrivePolicy": json.dumps(redrive)}
        common = {"FifoQueue": "true", "VisibilityTimeout": str(seconds)}
        url = str(sqs.create_queue(QueueName=name, Attributes={**common, **policy, **attributes})["QueueUrl"])
        if receives_max is not None:
            self._dead[url] = dead
        self.queues[name] = RecordedQueue(
            visibility_timeout_seconds=seconds,
            dead_letter_queue=None if receives_max is None else f"dead-{name}",
            max_receive_count=receives_max,
        )
        return url

    def dead_url(self, url: str) -> str:
        """Return the URL of a queue's dead-letter queue."""
        return self._dead[url]

    def subscribe(self, url: str, policy: Mapping[str, Any] | None = None, **attributes: str) -> str:
        """Subscribe a queue, with a filter policy or without one; return the subscription's ARN."""
        sns, sqs = self.producer.sns, self.producer.sqs
        given = attributes if policy is None else {"FilterPolicy": json.dumps(policy), **attributes}
        subscribe(sns, sqs, topic_arn=self.topic_arn, url=url, is_raw=True, attributes=given)
        (arn,) = (
            str(each["SubscriptionArn"])
            for each in sns.list_subscriptions_by_topic(TopicArn=self.topic_arn)["Subscriptions"]
            if each["Endpoint"] == queue_arn(sqs, url)
        )
        return arn

    def publish(self, number: int, kind: str | None = None, **changes: Any) -> None:
        """Publish message `number` of the group, with an attribute `kind` if one is given."""
        self.wait(_PAUSE_SECONDS)
        self.producer.sns.publish(
            TopicArn=self.topic_arn, **{"Message": f"body {number}", **_entry(number, kind), **changes}
        )

    def send(
        self, url: str, number: int, kind: str | None = None, *, by: Process | None = None, **changes: Any
    ) -> None:
        """Send message `number` of the group straight to a queue."""
        self.wait(_PAUSE_SECONDS)
        process = self.producer if by is None else by
        process.sqs.send_message(QueueUrl=url, **{"MessageBody": f"body {number}", **_entry(number, kind), **changes})

    def receive(self, url: str, count: int = 10, **params: Any) -> list[TakenMessage]:
        self.wait(_PAUSE_SECONDS)
        answer = self.consumer.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, **{**_ALL, **params})
        return list(answer.get("Messages", []))

    def delete(self, url: str, message: TakenMessage) -> None:
        self.wait(_PAUSE_SECONDS)
        self.consumer.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def work(self, *urls: str) -> None:
        """Receive and delete until the queues are empty."""
        for url in urls:
            while messages := self.receive(url):
                for message in messages:
                    self.delete(url, message)

    def exhaust(self, url: str, times: int) -> None:
        """Receive and release until messages die."""
        for _ in range(times + 1):
            self.receive(url, VisibilityTimeout=0)

    def wait(self, seconds: float) -> None:
        self.simulator.advance(seconds)

    def check(self, *, is_unfiltered: bool = False, **options: bool) -> Verdict:
        """End the recording, and return the verdict of `sluice check`."""
        self._stack.close()
        read = engine.open_in_memory(self._folder)
        assert read is not None, "it is small"
        queues = {name: replace(queue, is_unfiltered=is_unfiltered) for name, queue in self.queues.items()}
        return recording.check(read, self._folder, queues, "endpoint", **options)[0]


def _entry(number: int, kind: str | None) -> dict[str, Any]:
    attributes = {} if kind is None else {"kind": {"DataType": "String", "StringValue": kind}}
    ids = {"MessageGroupId": GROUP, "MessageDeduplicationId": f"id-{number}"}
    return {**ids, **({"MessageAttributes": attributes} if attributes else {})}
