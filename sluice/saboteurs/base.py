"""Parts of every saboteur: the hook into a client, and hooks that serve for many."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient

from sluice.simulator import hook

_PARAMS = "sluice_saboteur"
SENDS = ("sqs.SendMessage", "sns.Publish")
BATCH_SENDS = {"sqs.SendMessageBatch": "Entries", "sns.PublishBatch": "PublishBatchRequestEntries"}
ALL_SENDS = (*SENDS, *BATCH_SENDS)
RECEIVE = ("sqs.ReceiveMessage",)
type Edit = Callable[[dict[str, Any]], object]
"""Changes parameters or an answer in place."""
QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES = "sqs.GetQueueAttributes", "sns.GetTopicAttributes"


def entries(operation: str, params: Any) -> list[dict[str, Any]]:
    """Return the messages of a send or publish, single or batch; changing them changes what is sent."""
    listed: list[dict[str, Any]] = params[BATCH_SENDS[operation]] if operation in BATCH_SENDS else [params]
    return listed


def address(params: Mapping[str, Any]) -> str:
    """Return the queue or topic that is sent to."""
    return str(params.get("QueueUrl") or params.get("TopicArn"))


def body(entry: Mapping[str, Any]) -> str:
    """Return the body of a message that is sent or published."""
    return str(entry.get("MessageBody") or entry.get("Message"))


def answer_with(**parsed: Any) -> tuple[AWSResponse, dict[str, Any]]:
    """Return what a `before-call` hook returns to answer in the service's place."""
    return AWSResponse("http://saboteur", 200, {}, None), parsed


def refuse_with(code: str, text: str) -> tuple[AWSResponse, dict[str, Any]]:
    """Return what a `before-call` hook returns to refuse in the service's place."""
    error = {"Code": code, "Message": text, "Type": "Sender"}
    metadata = {"HTTPStatusCode": 400, "HTTPHeaders": {}, "RetryAttempts": 0}
    return AWSResponse("http://saboteur", 400, {}, None), {"Error": error, "ResponseMetadata": metadata}


class Hook:
    """Does nothing yet; subclasses name the operations they listen to and override what they need.

    Args:
        every: n, if the hook strikes at each n-th opportunity only.
        operations: the operations it listens to; empty means those that the class names.
    """

    operations: tuple[str, ...] = ()

    def __init__(self, every: int, operations: tuple[str, ...] = ()) -> None:
        self.operations = operations or self.operations
        self._every = every
        self._opportunities = 0
        self.begin()

    def begin(self) -> None:
        """Set the attributes that hold what earlier calls showed; here there are none.

        `__init__` calls it once, before the hook is attached to a client. So a subclass that remembers something
        overrides this, and needs no `__init__` that repeats the parameters of this class.
        """

    def strikes(self) -> bool:
        """Count one opportunity and return whether it is to be used."""
        self._opportunities += 1
        return self._opportunities % self._every == 0

    def attach(self, client: BaseClient) -> None:
        """Listen to this client."""
        for event, heard in self._listeners(client):
            client.meta.events.register(event, heard)

    def detach(self, client: BaseClient) -> None:
        """Listen to this client no longer."""
        for event, heard in self._listeners(client):
            client.meta.events.unregister(event, heard)

    def _listeners(self, client: BaseClient) -> Iterator[tuple[str, Callable[..., Any]]]:
        service = client.meta.service_model.service_name
        for operation in self.operations:
            if operation.split(".")[0] == service:
                yield f"before-parameter-build.{operation}", self._before_build
                yield f"before-call.{operation}", self._before_call
                yield f"after-call.{operation}", self._after_call

    def _before_build(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        context[_PARAMS] = params
        self.rewrite(f"{model.service_model.service_name}.{model.name}", params)

    def _before_call(self, model: Any, context: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]] | None:
        return self.answer(f"{model.service_model.service_name}.{model.name}", context[_PARAMS])

    def _after_call(
        self, http_response: AWSResponse, parsed: dict[str, Any], context: dict[str, Any], **_: Any
    ) -> None:
        self.edit_answer(context[_PARAMS], parsed, http_response)

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        """Change the parameters in place."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        """Answer in the service's place, or return None to let the call go through."""
        return None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        """Change the answer in place."""


class SqsCaller(Hook):
    """Calls SQS by itself, through a client that neither recorder nor saboteur listens to.

    The client goes where the attached client of SQS goes, as whoever the last call was signed for.
    botocore: https://docs.aws.amazon.com/botocore/latest/topics/events.html (`before-sign`, read 2026-11-26).
    """

    def begin(self) -> None:
        self._client: BaseClient | None = None
        self._credentials: Any = None
        self._own: Any = None

    def attach(self, client: BaseClient) -> None:
        super().attach(client)
        if self._client is None or client.meta.service_model.service_name == "sqs":
            self._client, self._own = client, None

    def _listeners(self, client: BaseClient) -> Iterator[tuple[str, Callable[..., Any]]]:
        yield from super()._listeners(client)
        yield f"before-sign.{client.meta.service_model.service_name}", self._before_sign

    def _before_sign(self, request_signer: Any, signing_name: str, region_name: str, **_: Any) -> None:
        credentials = request_signer.get_auth_instance(signing_name, region_name).credentials
        if credentials != self._credentials:
            self._credentials, self._own = credentials, None

    @property
    def sqs(self) -> Any:
        """Return the client."""
        if self._own is None:
            assert self._client is not None, "nothing is attached"
            simulator = hook.of(self._client)
            self._own = simulator.client("sqs") if simulator else self._make_client(self._client.meta)
        return self._own

    def _make_client(self, meta: Any) -> BaseClient:
        return botocore.session.get_session().create_client(
            "sqs",
            endpoint_url=meta.endpoint_url,
            region_name=meta.region_name,
            aws_access_key_id=self._credentials.access_key,
            aws_secret_access_key=self._credentials.secret_key,
            aws_session_token=self._credentials.token,
        )


@dataclass(frozen=True, slots=True)
class Saboteur:
    """One saboteur. Its name, for `--sabotage` and `promises`, is its key in `SABOTEURS`.

    Args:
        does: what it does, one clause.
        make: builds it; argument is `every`.
        shows: the anomalies it makes a load test find; empty when it is of no use there.
    """

    does: str
    make: Callable[[int], Hook]
    shows: tuple[str, ...] = ()


class IgnoreCall(Hook):
    """Answers that all is well, and does not pass the call on."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if not self.strikes():
            return None
        if "Entries" in params:
            return answer_with(Successful=[{"Id": entry["Id"]} for entry in params["Entries"]], Failed=[])
        return answer_with(TaskHandle="ignored", ApproximateNumberOfMessagesMoved=0)


def ignore(*operations: str) -> Callable[[int], Hook]:
    """Return what makes hooks that confirm these calls and do not pass them on."""
    return lambda every: IgnoreCall(every, operations)


class _OnlyShow(Hook):
    """Shows a changed attribute from then on, and does not pass the change on."""

    def __init__(self, every: int, name: str, operations: tuple[str, ...]) -> None:
        super().__init__(every, operations)
        self._name = name
        self._shown: dict[str, str] = {}

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if ".Get" in operation:
            return None
        changes = params.get("Attributes") or {params["AttributeName"]: params.get("AttributeValue", "")}
        if self._name not in changes:
            return None
        self._shown[_resource(params)] = changes[self._name]
        return answer_with()

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        attributes, shown = parsed.get("Attributes", {}), self._shown.get(_resource(params))
        if shown is not None and (self._name in attributes or "AttributeNames" not in params):
            attributes[self._name] = shown


def _resource(params: Mapping[str, Any]) -> str:
    return str(params.get("QueueUrl") or params.get("SubscriptionArn") or params.get("TopicArn"))


def only_show(name: str, of: str) -> Callable[[int], Hook]:
    """Return what makes hooks that show a changed attribute of `sqs.Queue`, `sns.Topic` … and do not apply it."""
    service, resource = of.split(".")
    operations = tuple(f"{service}.{verb}{resource}Attributes" for verb in ("Get", "Set"))
    return lambda every: _OnlyShow(every, name, operations)


def _keep(_: dict[str, Any]) -> None:
    """Change nothing."""


class _Editor(Hook):
    """Edits the parameters of every call, or its answer where it is no refusal."""

    def __init__(self, every: int, operations: tuple[str, ...], *, params: Edit = _keep, answer: Edit = _keep) -> None:
        super().__init__(every, operations)
        self._edit_params, self._edit_answer = params, answer

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._edit_params(params)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if http_response.status_code < 300:
            self._edit_answer(parsed)


def change(edit: Edit, *operations: str) -> Callable[[int], Hook]:
    """Return what makes hooks that edit the parameters of these operations."""
    return lambda every: _Editor(every, operations, params=edit)


def misreport(edit: Edit, *operations: str) -> Callable[[int], Hook]:
    """Return what makes hooks that edit the answers of these operations, refusals apart."""
    return lambda every: _Editor(every, operations, answer=edit)


def omit(*names: str, of: str | tuple[str, ...]) -> Callable[[int], Hook]:
    """Return what makes hooks that leave these parameters or attributes out of these operations."""

    def edit(params: dict[str, Any]) -> None:
        for name in names:
            params.pop(name, None)
        if "Attributes" in params:
            params["Attributes"] = {name: value for name, value in params["Attributes"].items() if name not in names}

    return change(edit, *((of,) if isinstance(of, str) else of))


def of_each(listed: str, edit: Edit) -> Edit:
    """Return an edit of every element of a list in the answer."""

    def edit_each(parsed: dict[str, Any]) -> None:
        for element in parsed.get(listed, []):
            edit(element)

    return edit_each


def of_received(edit: Edit) -> Callable[[int], Hook]:
    """Return what makes hooks that edit every message received."""
    return misreport(of_each("Messages", edit), *RECEIVE)


def stamp(name: str, value: str) -> Callable[[int], Hook]:
    """Return what makes hooks that give every received message that has the system attribute another value."""

    def edit(message: dict[str, Any]) -> None:
        if name in message.get("Attributes", {}):
            message["Attributes"][name] = value

    return of_received(edit)


def report(of: str, **values: str) -> Callable[[int], Hook]:
    """Return what makes hooks that report other attributes of a queue, topic or subscription than it has."""
    return misreport(lambda parsed: parsed["Attributes"].update(values), of)


def conceal(of: str, *names: str) -> Callable[[int], Hook]:
    """Return what makes hooks that report a queue or topic without these attributes."""

    def edit(parsed: dict[str, Any]) -> None:
        for name in names:
            parsed["Attributes"].pop(name, None)

    return misreport(edit, of)
