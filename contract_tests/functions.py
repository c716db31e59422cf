"""Lambda functions that a test plays, their invocations, and the mappings that invoke them."""

import json
from dataclasses import dataclass
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from contract_tests.targets.functions import FunctionHost, PlayedInvocation
from sluice.clock import eventually
from sluice.simulator.model.mapping import NoAnswer


class InvocationUnderTest:
    """An invocation of a function. Event and answer pass the hooks of the client's `Invoke`, so a saboteur sees them.

    Attributes:
        event: what the function is called with.
    """

    def __init__(self, client: Any, invocation: PlayedInvocation) -> None:
        self._events, self._model = client.meta.events, client.meta.service_model.operation_model("Invoke")
        self._invocation, self._context = invocation, dict[str, Any]()
        params = {"Payload": json.loads(json.dumps(invocation.event))}
        self._events.emit(
            "before-parameter-build.lambda.Invoke", params=params, model=self._model, context=self._context
        )
        self.event: dict[str, Any] = params["Payload"]

    @property
    def bodies(self) -> list[str]:
        """Return the bodies of its batch, in order."""
        return [record["body"] for record in self.event["Records"]]

    @property
    def receive_counts(self) -> list[int]:
        """Return how often each message of its batch was received, in order."""
        return [int(record["attributes"]["ApproximateReceiveCount"]) for record in self.event["Records"]]

    def record(self, body: str) -> dict[str, Any]:
        """Return the record of a message, by its body."""
        (found,) = [record for record in self.event["Records"] if record["body"] == body]
        return dict(found)

    def answer(self, payload: object) -> None:
        """Let the function return this payload."""
        self._finish({"StatusCode": 200, "Payload": payload})

    def report(self, *bodies: str) -> None:
        """Let the function return, and report the messages with these bodies as failed."""
        self.answer({"batchItemFailures": [{"itemIdentifier": self.record(body)["messageId"]} for body in bodies]})

    def fail(self) -> None:
        """Let the function fail by an exception or the end of its process: its caller cannot tell which."""
        self._finish({"StatusCode": 200, "FunctionError": "Unhandled", "Payload": None})

    def _finish(self, parsed: dict[str, Any]) -> None:
        self._events.emit(
            "after-call.lambda.Invoke",
            http_response=AWSResponse("", 200, {}, None),
            parsed=parsed,
            model=self._model,
            context=self._context,
        )
        self._invocation.finish(NoAnswer.ERROR if "FunctionError" in parsed else parsed["Payload"])


@dataclass(frozen=True, slots=True)
class FunctionUnderTest:
    """A Lambda function that the test plays."""

    client: Any
    host: FunctionHost
    name: str
    patience_seconds: float

    def await_invocation(self) -> InvocationUnderTest:
        """Wait until the function is invoked."""
        found = self.invocation_within(self.patience_seconds)
        assert found is not None, f"{self.name} was not invoked within {self.patience_seconds:g} s"
        return found

    def invocation_within(self, seconds: float) -> InvocationUnderTest | None:
        """Return the next invocation; None where none begins for so long."""
        found = self.host.next_invocation(self.name, seconds)
        return None if found is None else InvocationUnderTest(self.client, found)

    def throttle(self) -> None:
        """Reserve no concurrency for the function, so that every invocation is throttled."""
        self.client.put_function_concurrency(FunctionName=self.name, ReservedConcurrentExecutions=0)

    def release_throttle(self) -> None:
        """Remove the reservation, so that the function is invoked again."""
        self.client.delete_function_concurrency(FunctionName=self.name)


@dataclass(frozen=True, slots=True)
class MappingUnderTest:
    """An event source mapping."""

    client: Any
    id: str
    patience_seconds: float

    def enable(self) -> None:
        """Switch the mapping on, and wait until its state says so."""
        self.client.update_event_source_mapping(UUID=self.id, Enabled=True)
        self.await_state("Enabled")

    def disable(self) -> None:
        """Switch the mapping off, and wait until its state says so."""
        self.client.update_event_source_mapping(UUID=self.id, Enabled=False)
        self.await_state("Disabled")

    def await_state(self, state: str) -> None:
        """Wait until the mapping reports this state."""
        eventually(
            lambda: self.client.get_event_source_mapping(UUID=self.id).get("State"),
            until=lambda reported: reported == state,
            timeout_seconds=self.patience_seconds,
            describe=f"the mapping to be {state}",
        )

    def delete(self) -> None:
        """Delete the mapping, and wait until it is gone."""
        self.client.delete_event_source_mapping(UUID=self.id)
        eventually(self.is_gone, timeout_seconds=self.patience_seconds, describe="the mapping to be deleted")

    def is_gone(self) -> bool:
        """Return whether Lambda no longer knows the mapping."""
        try:
            self.client.get_event_source_mapping(UUID=self.id)
        except ClientError as error:
            return str(error.response["Error"]["Code"]) == "ResourceNotFoundException"
        return False
