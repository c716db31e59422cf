"""The parts of which saboteurs are made: the hook into a client, and factories of hooks that many saboteurs use.

A *factory* takes the number `every` and returns a `Hook`; each `Saboteur` has one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient

from sluice.simulator import hook

_PARAMS = "sluice_saboteur"  # the key of a call's parameters in botocore's context of the call
SENDS = ("sqs.SendMessage", "sns.Publish")
BATCH_SENDS = {"sqs.SendMessageBatch": "Entries", "sns.PublishBatch": "PublishBatchRequestEntries"}
ALL_SENDS = (*SENDS, *BATCH_SENDS)
RECEIVE = ("sqs.ReceiveMessage",)
type Edit = Callable[[dict[str, Any]], object]
"""Changes the parameters of a call, or an answer, in place."""
QUEUE_ATTRIBUTES, TOPIC_ATTRIBUTES = "sqs.GetQueueAttributes", "sns.GetTopicAttributes"


def entries(operation: str, params: Any) -> list[dict[str, Any]]:
    """Return the messages in the parameters of a send or publish; to change one of them changes the call."""
    messages: list[dict[str, Any]] = params[BATCH_SENDS[operation]] if operation in BATCH_SENDS else [params]
    return messages


def address(params: Mapping[str, Any]) -> str:
    """Return the queue's URL or the topic's ARN in the parameters of a send or publish."""
    return str(params.get("QueueUrl") or params.get("TopicArn"))


def body(entry: Mapping[str, Any]) -> str:
    """Return the body in the entry of a send or publish."""
    return str(entry.get("MessageBody") or entry.get("Message"))


def answer_with(**parsed: Any) -> tuple[AWSResponse, dict[str, Any]]:
    """Return a successful answer for a `before-call` hook, which then answers in the service's place."""
    return AWSResponse("http://saboteur", 200, {}, None), parsed


def refuse_with(code: str, text: str) -> tuple[AWSResponse, dict[str, Any]]:
    """Return an error for a `before-call` hook, which then refuses in the service's place."""
    error = {"Code": code, "Message": text, "Type": "Sender"}
    metadata = {"HTTPStatusCode": 400, "HTTPHeaders": {}, "RetryAttempts": 0}
    return AWSResponse("http://saboteur", 400, {}, None), {"Error": error, "ResponseMetadata": metadata}


class Hook:
    """Listens to some operations of a client, and changes nothing.

    A subclass names its operations, and overrides `rewrite`, `answer` or `edit_answer`.

    Args:
        every: n, to strike at each n-th opportunity only.
        operations: such as `sqs.SendMessage`; empty means those that the class names.
    """

    operations: tuple[str, ...] = ()

    def __init__(self, every: int, operations: tuple[str, ...] = ()) -> None:
        self.operations = operations or self.operations
        self._every = every
        self._opportunities = 0
        self.begin()

    def begin(self) -> None:
        """Set the attributes in which a subclass remembers earlier calls; this class has none.

        `__init__` calls it once, before the hook is attached to a client, so a subclass needs no `__init__` of its own.
        """

    def strikes(self) -> bool:
        """Count one opportunity, and return whether the saboteur uses it: each n-th one."""
        self._opportunities += 1
        return self._opportunities % self._every == 0

    def attach(self, client: BaseClient) -> None:
        """Listen to the calls of this client."""
        for event, listener in self._listeners(client):
            client.meta.events.register(event, listener)

    def detach(self, client: BaseClient) -> None:
        """Stop listening to the calls of this client."""
        for event, listener in self._listeners(client):
            client.meta.events.unregister(event, listener)

    def _listeners(self, client: BaseClient) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield (name of botocore's event, listener) for each operation of this client's service."""
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
        """Change the parameters of a call in place, before botocore validates them."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        """Return an answer in the service's place, or None to send the call to the service."""
        return None

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        """Change the service's answer in place.

        Args:
            params: of the call, after `rewrite`.
            parsed: the answer as boto3 will return it.
            http_response: its status decides whether boto3 raises an error: from 300 on.
        """


class SqsCaller(Hook):
    """A hook that makes calls of its own to SQS, through a client that neither recorder nor saboteur listens to.

    Its client has the endpoint of the attached SQS client, and the credentials of the last signed call.
    botocore: https://docs.aws.amazon.com/botocore/latest/topics/events.html (`before-sign`, read 2026-11-26).
    """

    def begin(self) -> None:
        self._attached: BaseClient | None = None
        self._credentials: Any = None
        self._own_client: Any = None

    def attach(self, client: BaseClient) -> None:
        """Listen to the calls of a client; one of SQS is the model for the own client, rather than one of SNS."""
        super().attach(client)
        if self._attached is None or client.meta.service_model.service_name == "sqs":
            self._attached, self._own_client = client, None

    def _listeners(self, client: BaseClient) -> Iterator[tuple[str, Callable[..., Any]]]:
        yield from super()._listeners(client)
        if hook.simulator_of(client) is None:  # whose clients sign nothing
            yield f"before-sign.{client.meta.service_model.service_name}", self._before_sign

    def _before_sign(self, request_signer: Any, signing_name: str, region_name: str, **_: Any) -> None:
        """Take the credentials of a call; when they change, the own client is made anew."""
        credentials = request_signer.get_auth_instance(signing_name, region_name).credentials
        if credentials != self._credentials:
            self._credentials, self._own_client = credentials, None

    @property
    def sqs(self) -> Any:
        """Return the hook's own client of SQS."""
        if self._own_client is None:
            assert self._attached is not None, "nothing is attached"
            simulator = hook.simulator_of(self._attached)
            self._own_client = simulator.client("sqs") if simulator else self._make_client(self._attached.meta)
        return self._own_client

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
    """One saboteur. Its name, for `--sabotage` and for promises, is its key in `SABOTEURS`.

    Args:
        does: its effect in a few words, without a subject: `delivers messages a second time`.
        make: takes `every`, and returns the hook.
        shows: the anomalies that a load test with it finds; empty if a load test cannot show its effect.
    """

    does: str
    make: Callable[[int], Hook]
    shows: tuple[str, ...] = ()


class IgnoreCall(Hook):
    """Confirms a call, and does not send it to the service."""

    def answer(self, operation: str, params: Mapping[str, Any]) -> tuple[AWSResponse, dict[str, Any]] | None:
        if not self.strikes():
            return None
        if "Entries" in params:
            return answer_with(Successful=[{"Id": entry["Id"]} for entry in params["Entries"]], Failed=[])
        return answer_with(TaskHandle="ignored", ApproximateNumberOfMessagesMoved=0)


def ignore(*operations: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that confirm these calls, and do not send them to the service."""
    return lambda every: IgnoreCall(every, operations)


class _OnlyShow(Hook):
    """Does not send a change of one attribute to the service, and reports the changed value from then on."""

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
    """Return the queue, subscription or topic whose attributes a call gets or sets."""
    return str(params.get("QueueUrl") or params.get("SubscriptionArn") or params.get("TopicArn"))


def only_show(name: str, of: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that report a changed attribute, but do not change it.

    Args:
        name: of the attribute.
        of: the kind of resource: `sqs.Queue`, `sns.Topic` or `sns.Subscription`.
    """
    service, resource = of.split(".")
    operations = tuple(f"{service}.{verb}{resource}Attributes" for verb in ("Get", "Set"))
    return lambda every: _OnlyShow(every, name, operations)


def _keep(_: dict[str, Any]) -> None:
    """Change nothing."""


class _Editor(Hook):
    """Edits the parameters of every call, or every answer that is no refusal."""

    def __init__(self, every: int, operations: tuple[str, ...], *, params: Edit = _keep, answer: Edit = _keep) -> None:
        super().__init__(every, operations)
        self._edit_params, self._edit_answer = params, answer

    def rewrite(self, operation: str, params: dict[str, Any]) -> None:
        self._edit_params(params)

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if http_response.status_code < 300:
            self._edit_answer(parsed)


def change(edit: Edit, *operations: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit the parameters of these operations."""
    return lambda every: _Editor(every, operations, params=edit)


def misreport(edit: Edit, *operations: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit the answers of these operations, unless they are refusals."""
    return lambda every: _Editor(every, operations, answer=edit)


def omit(*names: str, of: str | tuple[str, ...]) -> Callable[[int], Hook]:
    """Return a factory of hooks that leave parameters, or attributes, of these names out of the calls of `of`."""

    def edit(params: dict[str, Any]) -> None:
        for name in names:
            params.pop(name, None)
        if "Attributes" in params:
            params["Attributes"] = {name: value for name, value in params["Attributes"].items() if name not in names}

    return change(edit, *((of,) if isinstance(of, str) else of))


def of_each(list_name: str, edit: Edit) -> Edit:
    """Return an edit that applies `edit` to every element of a list in an answer, such as `Messages`."""

    def edit_each(parsed: dict[str, Any]) -> None:
        for element in parsed.get(list_name, []):
            edit(element)

    return edit_each


def of_received(edit: Edit) -> Callable[[int], Hook]:
    """Return a factory of hooks that edit every received message."""
    return misreport(of_each("Messages", edit), *RECEIVE)


def stamp(name: str, value: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that replace the value of a system attribute in every received message that has it."""

    def edit(message: dict[str, Any]) -> None:
        if name in message.get("Attributes", {}):
            message["Attributes"][name] = value

    return of_received(edit)


def report(of: str, **values: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that report these values of attributes, instead of the true ones.

    Args:
        of: the operation that reads the attributes, such as `sqs.GetQueueAttributes`.
        values: the false values, by the attribute's name.
    """
    return misreport(lambda parsed: parsed["Attributes"].update(values), of)


def conceal(of: str, *names: str) -> Callable[[int], Hook]:
    """Return a factory of hooks that leave these attributes out of what `of`, such as GetQueueAttributes, returns."""

    def edit(parsed: dict[str, Any]) -> None:
        for name in names:
            parsed["Attributes"].pop(name, None)

    return misreport(edit, of)
