"""Queues and topics for one test, with unique names, deleted after the test; their methods are the steps of a test."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from contract_tests.functions import FunctionUnderTest, MappingUnderTest
from contract_tests.targets.binding import Target
from contract_tests.targets.functions import function_code
from sluice.clock import eventually

type Message = dict[str, Any]
type Refusal = tuple[str, int, str]
_LONG_POLL_SECONDS = 1
CLOCKS_APART_MILLISECONDS_MAX = 900_000
"""The largest difference between a caller's clock and AWS's: with a larger one AWS refuses the caller's signature."""


class NotArrangedError(Exception):
    """Raised when the preparation of a test failed, which proves nothing about a promise or a saboteur."""


@contextlib.contextmanager
def arranging() -> Iterator[None]:
    """Turn an AssertionError of a test's preparation into a NotArrangedError: the promise did not fail."""
    try:
        yield
    except AssertionError as error:
        raise NotArrangedError(str(error)) from error


def bodies(messages: Iterable[Message]) -> list[str]:
    """Return the bodies of messages, in their order."""
    return [message["Body"] for message in messages]


def refusal(call: Callable[..., object], *arguments: object, **parameters: object) -> Refusal:
    """Make a call that the service has to refuse; return error code, HTTP status and text of the refusal."""
    try:
        answer = call(*arguments, **parameters)
    except ClientError as error:
        response = error.response
        return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Message"]
    raise AssertionError(f"accepted, should have been refused: {answer!r}")


def invalid_parameter_value(text: str) -> Refusal:
    """Return SQS's refusal of a parameter's value, with this text."""
    return "InvalidParameterValue", 400, text


def invalid_parameter(text: str) -> Refusal:
    """Return SNS's refusal of a parameter, whose text goes on with `text` after "Invalid parameter: "."""
    return "InvalidParameter", 400, f"Invalid parameter: {text}"


def require_accepted[**P, Answer](call: Callable[P, Answer], *arguments: P.args, **parameters: P.kwargs) -> Answer:
    """Make a call that the service has to accept, and return its answer; entries of a batch may still fail."""
    try:
        return call(*arguments, **parameters)
    except ClientError as error:
        raise AssertionError(f"refused, should have been accepted: {error}") from error


def entry(body: str, **more: Any) -> dict[str, Any]:
    """Return an entry of SendMessageBatch to group g1 whose two ids are the body; `more` replaces parameters."""
    return _without_none(
        {"Id": body, "MessageBody": body, "MessageGroupId": "g1", "MessageDeduplicationId": body, **more}
    )


def _without_none(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without those that are None."""
    return {name: value for name, value in parameters.items() if value is not None}


@dataclass(frozen=True, slots=True)
class QueueUnderTest:
    """One SQS queue. Each method is one API call, except methods whose docstring says that they wait."""

    sqs: Any
    name: str
    url: str
    arn: str
    patience_seconds: float

    def send(self, body: str, *, group: str | None = "g1", id: str | None = None, **more: Any) -> dict[str, Any]:
        """Send a message; None leaves the parameter out."""
        ids = _without_none({"MessageGroupId": group, "MessageDeduplicationId": id})
        answer: dict[str, Any] = self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **ids, **more)
        return answer

    def send_each(self, *bodies: str, group: str | None = "g1") -> None:
        """Send messages to a group, each with its body as deduplication id; a group of None sends without ids."""
        for body in bodies:
            self.send(body, group=group, id=body if group else None)

    def send_batch(self, *entries: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.sqs.send_message_batch(QueueUrl=self.url, Entries=list(entries))
        return answer

    def delete_batch(self, *entries: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=list(entries))
        return answer

    def change_visibility_batch(self, *entries: dict[str, Any], seconds: int = 0) -> dict[str, Any]:
        """Change the visibility timeout of each entry, which has an id and a receipt handle."""
        changes = [{**entry, "VisibilityTimeout": seconds} for entry in entries]
        answer: dict[str, Any] = self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=changes)
        return answer

    def receive(self, *, most: int = 1, visibility: int | None = None, wait: int = 0) -> list[Message]:
        """Receive once, at most `most` messages, with every system attribute."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **_without_none({"VisibilityTimeout": visibility}),
        )
        return list(answer.get("Messages", []))

    def await_message(self, *, visibility: int | None = None) -> Message:
        """Wait until one message is delivered, and return it."""
        return self.await_batch(most=1, visibility=visibility)[0]

    def await_batch(self, *, most: int, visibility: int | None = None) -> list[Message]:
        """Wait until a receive brings messages, and return them."""
        return eventually(
            lambda: self.receive(most=most, visibility=visibility, wait=_LONG_POLL_SECONDS),
            timeout_seconds=self.patience_seconds,
            describe=f"a message in {self.name}",
        )

    def hold(self, *expected: str, visibility: int) -> list[Message]:
        """Wait until one receive brings exactly these messages, which then stay in flight.

        AWS does not promise how many messages a receive brings; if it brings others or fewer, they are released.

        Raises:
            NotArrangedError: no receive brings them.
        """

        def take() -> list[Message]:
            taken = self.receive(most=len(expected), visibility=visibility, wait=_LONG_POLL_SECONDS)
            if sorted(bodies(taken)) != sorted(expected):
                for message in reversed(taken):
                    self.change_visibility(message, 0)
            return taken

        with arranging():
            return eventually(
                take,
                until=lambda taken: sorted(bodies(taken)) == sorted(expected),
                timeout_seconds=self.patience_seconds,
                describe=f"{', '.join(expected)} of {self.name} in one receive",
            )

    def delete(self, message: Message) -> None:
        self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def change_visibility(self, message: Message, seconds: int) -> None:
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def dead_letter(self, *sent: str, group: str | None = "g1") -> list[Message]:
        """Send messages to a queue that allows one receive, and receive them, so that all go to its DLQ.

        Returns:
            The received messages.

        Raises:
            NotArrangedError: a message was delivered a second time.
        """
        self.send_each(*sent, group=group)
        received: list[Message] = []
        with arranging():
            while len(received) < len(sent):
                received += self.await_batch(most=10, visibility=0)
            assert self.receive(most=10, wait=1) == [], "more than one receive was allowed"
        return received

    def redrive(self, **more: Any) -> dict[str, Any]:
        """Move this DLQ's messages by a move task, wait for its end, and return the task from SQS's list."""
        self.start_move(**more)
        return self.await_move()

    def start_move(self, **more: Any) -> str:
        """Start a move task of this DLQ, and return its handle."""
        return str(self.sqs.start_message_move_task(SourceArn=self.arn, **more).get("TaskHandle", ""))

    def moves(self, **more: Any) -> list[dict[str, Any]]:
        """Return SQS's list of this DLQ's move tasks, the newest first."""
        return list(self.sqs.list_message_move_tasks(SourceArn=self.arn, **more).get("Results", []))

    def await_move(self) -> dict[str, Any]:
        """Wait until this DLQ's newest move task has ended, and return the task from SQS's list."""
        return eventually(
            lambda: next(iter(self.moves()), {}),
            until=lambda task: task.get("Status", "RUNNING") not in ("RUNNING", "CANCELLING"),
            timeout_seconds=self.patience_seconds,
            describe=f"the move task of {self.name} to end",
        )

    def attributes(self, *names: str) -> dict[str, str]:
        answer = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(names))
        return dict(answer["Attributes"])

    def await_attributes(self, expected: Mapping[str, str], *, settling_seconds: float = 0) -> None:
        """Wait until the queue reports these values; `settling_seconds` is added to the target's patience."""
        eventually(
            lambda: self.attributes(*expected),
            until=lambda reported: reported == expected,
            timeout_seconds=settling_seconds + self.patience_seconds,
            describe=f"{self.name} to report {expected}",
            interval_seconds=1 if settling_seconds else 0.05,
        )

    def set_attributes(self, **attributes: str) -> None:
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def delete_queue(self) -> None:
        self.sqs.delete_queue(QueueUrl=self.url)

    def purge(self) -> None:
        self.sqs.purge_queue(QueueUrl=self.url)

    def drain(self, count: int) -> list[Message]:
        """Wait until `count` messages were received and deleted, then receive once more; return all that was received.

        If the queue has more messages than expected, the last receive returns them too.
        """
        return list(itertools.chain.from_iterable(self.drain_by_receive(count)))

    def drain_by_receive(self, count: int) -> list[list[Message]]:
        """Do the same as `drain`, and return the messages of each receive as a list of its own."""
        drained: list[list[Message]] = []

        def take() -> list[str]:
            received = self.receive(most=10, wait=_LONG_POLL_SECONDS)
            for message in received:
                self.delete(message)
            drained.append(received)
            return bodies(itertools.chain.from_iterable(drained))

        eventually(
            take,
            timeout_seconds=self.patience_seconds,
            describe=f"{count} message(s) in {self.name}",
            interval_seconds=0,
            until=lambda taken: len(taken) >= count,
        )
        return [*drained, self.receive(most=10, wait=_LONG_POLL_SECONDS)]


def drain_each(queues: Sequence[QueueUnderTest], count: int) -> list[list[Message]]:
    """Drain several queues at once, `count` messages from each, as `QueueUnderTest.drain` does."""
    with ThreadPoolExecutor(len(queues)) as pool:
        return list(pool.map(lambda queue: queue.drain(count), queues))


@dataclass(frozen=True, slots=True)
class TopicUnderTest:
    """One SNS topic."""

    sns: Any
    arn: str

    def publish(self, body: str, *, group: str | None = "g1", id: str | None = None, **more: Any) -> dict[str, Any]:
        """Publish a message; None leaves the parameter out."""
        ids = _without_none({"MessageGroupId": group, "MessageDeduplicationId": id})
        answer: dict[str, Any] = self.sns.publish(TopicArn=self.arn, Message=body, **ids, **more)
        return answer

    def publish_batch(self, *entries: dict[str, Any]) -> dict[str, Any]:
        """Publish a batch.

        Args:
            entries: parameters of each entry. The defaults are `Id` 1, 2 …, group `g1`, and the `Id` as deduplication
                id; None leaves a parameter out.
        """
        complete = [
            {"Id": str(index), "MessageGroupId": "g1", "MessageDeduplicationId": str(entry.get("Id", index)), **entry}
            for index, entry in enumerate(entries, 1)
        ]
        requested = [_without_none(entry) for entry in complete]
        answer: dict[str, Any] = self.sns.publish_batch(TopicArn=self.arn, PublishBatchRequestEntries=requested)
        return answer

    def elsewhere(self) -> "TopicUnderTest":
        """Return a topic of the same name in another region."""
        *service, _, account, name = self.arn.split(":")
        return TopicUnderTest(self.sns, ":".join([*service, "ap-southeast-4", account, name]))

    def attributes(self) -> dict[str, str]:
        answer: dict[str, str] = self.sns.get_topic_attributes(TopicArn=self.arn)["Attributes"]
        return answer

    def set_attribute(self, name: str, value: str) -> None:
        self.sns.set_topic_attributes(TopicArn=self.arn, AttributeName=name, AttributeValue=value)

    def set_subscription(self, subscription: str, name: str, value: str) -> None:
        self.sns.set_subscription_attributes(SubscriptionArn=subscription, AttributeName=name, AttributeValue=value)

    def subscribe(self, queue: QueueUnderTest, *, raw: bool = True, **attributes: str) -> str:
        """Allow the topic to send to a queue, and subscribe the queue; return the subscription's ARN.

        `raw` is SNS's raw delivery, without the envelope.
        """
        self.allow(queue)
        delivery = {"RawMessageDelivery": "true"} if raw else {}
        answer: dict[str, str] = self.sns.subscribe(
            TopicArn=self.arn, Protocol="sqs", Endpoint=queue.arn, Attributes=delivery | attributes
        )
        return answer.get("SubscriptionArn", "")

    def allow(self, queue: QueueUnderTest) -> None:
        """Allow the topic to send to a queue."""
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue.arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": self.arn}},
        }
        queue.set_attributes(Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))


class Resources:
    """Makes queues and topics for one test, with unique names, and deletes them.

    Args:
        prefix: unique among all tests that share the target.
        functions: a client of Lambda, for a test that plays a function.
    """

    def __init__(self, target: Target, sqs: Any, sns: Any, prefix: str, *, functions: Any = None) -> None:
        self.target, self._sqs, self._sns, self._prefix = target, sqs, sns, prefix
        self._lambda = functions
        self._mappings: list[Callable[[], object]] = []
        self._functions: list[Callable[[], object]] = []
        self._numbers = itertools.count(1)
        self._subscriptions: list[Callable[[], object]] = []
        self._topics: list[Callable[[], object]] = []
        self._queues: list[Callable[[], object]] = []
        sns.meta.events.register("after-call.sns.Subscribe", self._note_subscription)

    def standard_queue(
        self, *, hint: str = "q", dead_letters: QueueUnderTest | None = None, max_receive_count: int = 2
    ) -> QueueUnderTest:
        """Make a standard queue; arguments as for `fifo_queue`."""
        return self._queue(self.name(hint), self._redrive(dead_letters, max_receive_count))

    def name(self, hint: str) -> str:
        """Return a name that no other test uses, with `hint` in it."""
        return f"{self._prefix}-{hint}-{next(self._numbers)}"

    def fifo_queue(
        self,
        *,
        hint: str = "q",
        dead_letters: QueueUnderTest | None = None,
        max_receive_count: int = 2,
        **attributes: str,
    ) -> QueueUnderTest:
        """Make a FIFO queue.

        Args:
            hint: part of its name; `window3` asks for a short deduplication window.
            dead_letters: its DLQ.
            max_receive_count: receives before a message goes there.
            attributes: as for CreateQueue.
        """
        redrive = self._redrive(dead_letters, max_receive_count)
        return self._queue(f"{self.name(hint)}.fifo", {"FifoQueue": "true", **redrive, **attributes})

    def queue_with_dlq(self, *, max_receive_count: int = 2) -> tuple[QueueUnderTest, QueueUnderTest]:
        """Make a FIFO queue and its DLQ, and return both."""
        dead_letters = self.fifo_queue(hint="dlq")
        return self.fifo_queue(dead_letters=dead_letters, max_receive_count=max_receive_count), dead_letters

    @staticmethod
    def _redrive(dead_letters: QueueUnderTest | None, max_receive_count: int) -> Mapping[str, str]:
        if dead_letters is None:
            return {}
        policy = {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": max_receive_count}
        return {"RedrivePolicy": json.dumps(policy)}

    def create(self, name: str, *, tags: Mapping[str, str] | None = None, **attributes: str) -> str:
        """Ask for a queue, which may be refused, and return its URL; without attributes the parameter is left out."""
        answer = self._sqs.create_queue(
            QueueName=name, **_without_none({"Attributes": attributes or None, "tags": tags})
        )
        url: str = answer.get("QueueUrl", "")
        if url:
            self._queues.append(lambda: self._delete(url))
        return url

    def _delete(self, url: str) -> None:
        with contextlib.suppress(self._sqs.exceptions.QueueDoesNotExist):  # the test may have deleted it
            self._sqs.delete_queue(QueueUrl=url)

    def _queue(self, name: str, attributes: Mapping[str, str]) -> QueueUnderTest:
        url = self.create(name, tags=None, **attributes)
        arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        return QueueUnderTest(self._sqs, name, url, arn, self.target.patience_seconds)

    def fifo_topic(self, *queues: QueueUnderTest, **attributes: str) -> TopicUnderTest:
        """Make a FIFO topic with these queues subscribed."""
        topic = self.create_topic(f"{self.name('t')}.fifo", FifoTopic="true", **attributes)
        for queue in queues:
            topic.subscribe(queue)
        return topic

    def standard_topic(self) -> TopicUnderTest:
        return self.create_topic(self.name("t"))

    def create_topic(self, name: str, **attributes: str) -> TopicUnderTest:
        """Create a topic; the service may refuse it."""
        arn = self._sns.create_topic(Name=name, Attributes=attributes).get("TopicArn", "")
        if arn:
            self._topics.append(lambda: self._delete_topic(arn, is_archived="ArchivePolicy" in attributes))
        return TopicUnderTest(self._sns, arn)

    def _delete_topic(self, arn: str, *, is_archived: bool) -> None:
        with contextlib.suppress(self._sns.exceptions.NotFoundException):  # the test may have deleted it
            if is_archived:  # SNS deletes no topic with an archive
                self._sns.set_topic_attributes(TopicArn=arn, AttributeName="ArchivePolicy", AttributeValue="{}")
            self._sns.delete_topic(TopicArn=arn)

    def _note_subscription(self, parsed: Mapping[str, Any], **_: object) -> None:
        arn = parsed.get("SubscriptionArn")
        if arn is not None:
            self._subscriptions.append(lambda: self._unsubscribe(arn))

    def _unsubscribe(self, arn: str) -> None:
        with contextlib.suppress(ClientError):  # the test may have deleted it
            self._sns.unsubscribe(SubscriptionArn=arn)

    @property
    def plays_functions(self) -> bool:
        """Return whether it was made for a test that plays a function."""
        return self._lambda is not None

    def function(self, *, timeout_seconds: int = 20) -> FunctionUnderTest:
        """Make a Lambda function that the test plays."""
        assert self.target.functions is not None, "a test of a target that invokes no function is not selected"
        name = self.name("f")
        self._lambda.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role="arn:aws:iam::000000000000:role/played",
            Handler="played.handle",
            Code={"ZipFile": function_code()},
            Timeout=timeout_seconds,
            Environment={"Variables": dict(self.target.functions.variables(name))},
        )
        self._functions.append(lambda: self._delete_function(name))
        eventually(
            lambda: self._lambda.get_function_configuration(FunctionName=name)["State"],
            until=lambda state: state == "Active",
            timeout_seconds=self.target.patience_seconds,
            describe=f"{name} to be active",
        )
        return FunctionUnderTest(self._lambda, self.target.functions, name, self.target.patience_seconds)

    def mapping(self, queue: QueueUnderTest, function: FunctionUnderTest, **settings: Any) -> MappingUnderTest:
        """Map a queue to a function, which reports failures; return the mapping when it receives, or does not."""
        made = self.create_mapping(queue, function, **settings)
        mapping = MappingUnderTest(self._lambda, made["UUID"], self.target.patience_seconds)
        mapping.await_state("Enabled" if settings.get("Enabled", True) else "Disabled")
        return mapping

    def create_mapping(self, queue: QueueUnderTest, function: FunctionUnderTest, **settings: Any) -> dict[str, Any]:
        """Ask for a mapping, which may be refused; None leaves a parameter out."""
        params = {"FunctionResponseTypes": ["ReportBatchItemFailures"], **settings}
        made: dict[str, Any] = self._lambda.create_event_source_mapping(
            EventSourceArn=queue.arn, FunctionName=function.name, **_without_none(params)
        )
        if "UUID" in made:
            self._mappings.append(lambda: self._delete_mapping(made["UUID"]))
        return made

    def _delete_function(self, name: str) -> None:
        with contextlib.suppress(ClientError):  # the simulator may have been emptied
            self._lambda.delete_function(FunctionName=name)

    def _delete_mapping(self, id_: str) -> None:
        with contextlib.suppress(ClientError):  # the test may have deleted it
            self._lambda.delete_event_source_mapping(UUID=id_)

    def close(self) -> None:
        """Delete all mappings and functions, then subscriptions, topics, and queues.

        If a deletion fails, the others are still done, and its error is raised at the end.
        """
        self._sns.meta.events.unregister("after-call.sns.Subscribe", self._note_subscription)
        with contextlib.ExitStack() as stack:
            made = (self._queues, self._topics, self._subscriptions, self._functions, self._mappings)
            for undo in itertools.chain.from_iterable(made):  # the last is called first
                stack.callback(undo)
