"""A Lambda function is paused by its event source mapping, with the row and the audit of any other consumer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from sqlalchemy import select
from sqlalchemy.event import listen, remove
from sqlalchemy.exc import OperationalError

from sluice.cli.consumer_pause import change_pause
from sluice.cli.targets import ConsumerTarget
from sluice.clock import VirtualClock
from sluice.declaration import Lambda, naming
from sluice.errors import EndpointError
from sluice.messaging.database import engines
from sluice.messaging.errors import DeadLetterError
from sluice.messaging.inbox.pause import PauseOperator
from sluice.messaging.inbox.tables import audit, metadata, pauses
from sluice.simulator.hook import Simulator
from tests.support.declaration import environment

LOCAL = environment("local")
BILLING = replace(LOCAL.consumers[0], handlers="examples.services.billing", runtime=Lambda())
ANN = PauseOperator(consumer=BILLING.name, actor="ann", reason="the bank is closed")


class PausedFunction:
    """A consumer's function with its mapping, and the inbox's database."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.aws, self.denied = Simulator(), set[str]()
        self.engine = engines.engine("sqlite://")
        metadata.create_all(self.engine)
        self.client = self.aws.client("lambda")
        self.client.meta.events.register("before-call.lambda.*", self._deny)
        patch.setattr(boto3, "client", lambda *_, **__: self.client)
        queue, name = naming.queue_name(LOCAL, BILLING), naming.function_name(LOCAL, BILLING)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "180"}
        url = self.aws.client("sqs").create_queue(QueueName=queue, Attributes=attributes)["QueueUrl"]
        arn = self.aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        self.client.create_function(FunctionName=name, Role="arn:aws:iam::000000000000:role/r", Code={}, Timeout=30)
        made = self.client.create_event_source_mapping(
            FunctionName=name, EventSourceArn=arn["Attributes"]["QueueArn"], BatchSize=1
        )
        self.mapping = made["UUID"]

    def _deny(self, model: Any, **_: Any) -> None:
        if model.name in self.denied:
            answer = {"Error": {"Code": "AccessDeniedException", "Message": "no right"}}
            raise ClientError(answer, model.name)

    def change(self, *, is_paused: bool = True, confirmed: bool = True) -> str:
        target = ConsumerTarget(environment=LOCAL, consumer=BILLING, database=self.engine, endpoint_url=None)
        return change_pause(target, ANN, is_paused=is_paused, confirmed=confirmed, clock=VirtualClock())

    def state(self) -> tuple[str, int, list[str]]:
        """Return the mapping's state, how many consumers are paused, and the actions of the audit."""
        with self.engine.connect() as connection:
            paused = connection.execute(select(pauses)).all()
            acts = list(connection.execute(select(audit.c.action).order_by(audit.c.id)).scalars())
        return self.client.get_event_source_mapping(UUID=self.mapping)["State"], len(paused), acts


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Iterator[PausedFunction]:
    """Yield a function whose mapping is enabled."""
    made = PausedFunction(monkeypatch)
    yield made
    made.engine.dispose()


def test_the_mapping_of_a_function_is_disabled_and_enabled_again(function: PausedFunction) -> None:
    tried = function.change(confirmed=False)
    assert function.state() == ("Enabled", 0, [])
    assert f"disable mapping {function.mapping} of function {naming.function_name(LOCAL, BILLING)}" in tried

    paused = function.change()
    assert function.state() == ("Disabled", 1, ["pause"])
    assert "its state is Disabled" in paused

    assert function.change(is_paused=False).endswith("its state is Enabled")
    assert function.state() == ("Enabled", 0, ["pause", "resume"])


@pytest.mark.parametrize(
    ("operation", "command"),
    [
        ("ListEventSourceMappings", "list-event-source-mappings --function-name"),
        ("UpdateEventSourceMapping", "update-event-source-mapping --uuid {} --no-enabled"),
    ],
)
def test_a_missing_right_changes_nothing_and_names_the_command(
    function: PausedFunction, operation: str, command: str
) -> None:
    function.denied = {operation}

    with pytest.raises(EndpointError, match="no right") as refused:
        function.change()

    assert f"aws lambda {command.format(function.mapping)}" in str(refused.value)
    assert function.state() == ("Enabled", 0, [])


def test_a_mapping_that_takes_its_time_is_waited_for(function: PausedFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute its present state is told."""
    monkeypatch.setattr(function.client, "get_event_source_mapping", lambda **_: {"State": "Disabling"})

    assert "its state is Disabling" in function.change()


def test_a_function_without_a_mapping_is_not_paused(function: PausedFunction) -> None:
    function.client.delete_event_source_mapping(UUID=function.mapping)

    with pytest.raises(EndpointError, match="no event source mapping invokes"):
        function.change()


@pytest.mark.parametrize("unanswered", ["the update", "the commit"])
@pytest.mark.parametrize("is_paused", [True, False])
def test_an_act_without_an_answer_is_unknown_and_can_be_repeated(
    function: PausedFunction, monkeypatch: pytest.MonkeyPatch, unanswered: str, *, is_paused: bool
) -> None:
    """The mapping was switched, and nothing says that nothing was done."""
    if not is_paused:
        function.change()
    update = function.client.update_event_source_mapping

    def update_and_say_nothing(**fields: Any) -> None:
        update(**fields)
        raise ReadTimeoutError(endpoint_url="https://lambda")

    def refuse_to_commit(_: object) -> None:
        raise OperationalError("COMMIT", {}, Exception("the server closed the connection"))

    with monkeypatch.context() as patched:
        if unanswered == "the update":
            patched.setattr(function.client, "update_event_source_mapping", update_and_say_nothing)
        else:
            listen(function.engine, "commit", refuse_to_commit)
        with pytest.raises(EndpointError, match=r"is not known \(.*\); do the same again"):
            function.change(is_paused=is_paused)
    if unanswered == "the commit":
        remove(function.engine, "commit", refuse_to_commit)
    switched, before = ("Disabled", 0) if is_paused else ("Enabled", 1)
    assert function.state()[:2] == (switched, before)

    function.change(is_paused=is_paused)
    assert function.state()[:2] == (switched, int(is_paused))


def test_a_mapping_that_is_disabled_without_a_pause_is_resumed(function: PausedFunction) -> None:
    """As an act leaves it whose row was not committed. An enabled one is refused."""
    function.client.update_event_source_mapping(UUID=function.mapping, Enabled=False)

    function.change(is_paused=False)
    assert function.state() == ("Enabled", 0, ["resume"])

    with pytest.raises(DeadLetterError, match="billing is not paused"):
        function.change(is_paused=False)
