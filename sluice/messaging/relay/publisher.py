"""Publishing to SNS: a batch is sent once, and each entry has its own outcome.

A response with HTTP 200 can contain failures; the entries beside a failed one are accepted. A response that never
arrived says nothing about its entries. A call that is refused as a whole is repeated entry by entry, so that one bad
entry cannot hold the others back. A refusal that is not caused by the message (rights, keys, throttling) is tried
again.

AWS: https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html, API_BatchResultErrorEntry.html (read 2026-11-21).
"""

import re
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sluice import limits, sdk
from sluice.aws.client import LIGHT, open_client
from sluice.error_codes import CREDENTIALS_REFUSED, is_throttled
from sluice.errors import ConfigError, EndpointError
from sluice.filter_cost import SENT_TYPE
from sluice.messaging.errors import TransientError
from sluice.messaging.outbox.store import Head, PublishOutcome, PublishRefusal, PublishRetry, PublishSuccess
from sluice.terminal.printable import printable

CALL_SECONDS_MAX = 12
"""A call that takes longer fails."""
CALLS_MAX = 16
"""The most publishing calls under way at once."""
# Error codes of a call that was refused as a whole because of one of its entries.
_CODES_OF_A_BAD_ENTRY = ("InvalidParameter", "Validation", "BatchRequestTooLong", "InvalidBatchEntryId")
# Error codes of an entry that SNS may accept later unchanged: rights, keys, a topic under creation.
_CODES_THAT_MAY_PASS = ("Auth", "AccessDenied", "KMS", "NotFound", "Expired", "InvalidClientToken", "Signature")
_TOPIC_ARN = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?")


def client(endpoint_url: str | None, region: str, *, kind: str = LIGHT) -> Any:
    """Return an SNS client that tries each call once, because the relay repeats calls itself."""
    config = sdk.config(answer_seconds=CALL_SECONDS_MAX - sdk.CONNECT_SECONDS, connections=CALLS_MAX)
    return open_client("sns", endpoint_url=endpoint_url, region=region, config=config, kind=kind)


def check_topic(sns: Any, topic_arn: str) -> None:
    """Refuse a topic that does not exist or is not FIFO.

    Raises:
        ConfigError: the ARN cannot be that of a FIFO topic.
        EndpointError: there is no such topic.
        TransientError: SNS could not answer now.

    AWS: https://docs.aws.amazon.com/sns/latest/api/API_GetTopicAttributes.html (read 2026-11-21).
    """
    shown = f"'{printable(topic_arn, characters_max=300)}'"
    found = _TOPIC_ARN.fullmatch(topic_arn)
    next_step = "correct --topic-arn"
    if found is None:
        raise ConfigError(
            f"topic is {shown}, allowed is an ARN such as arn:aws:sns:eu-central-1:123456789012:NAME.fifo; {next_step}"
        )
    if found[1] is None:  # the name has no `.fifo`, which every FIFO topic has
        raise ConfigError(
            f"topic {topic_arn} is a standard topic, allowed is a FIFO topic: it keeps order; {next_step}"
        )
    try:
        _ = sns.get_topic_attributes(TopicArn=topic_arn)["Attributes"]
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code.startswith("NotFound"):
            raise EndpointError(
                f"topic {topic_arn} is not at {sns.meta.endpoint_url}; deploy the environment's stacks there, or"
                " correct --topic-arn, --env or --endpoint-url"
            ) from error
        if code.startswith(("InvalidParameter", "Validation")):
            raise ConfigError(f"topic is {shown}, which SNS does not take ({printable(error)}); {next_step}") from error
        raise TransientError(printable(error)) from error
    except sdk.UNANSWERED as error:
        raise TransientError(printable(f"{type(error).__name__}: {error}")) from error


def lacks_credentials(error: BaseException | None) -> bool:
    """Return whether a call failed because there are no credentials, or because AWS refuses them.

    An error that is not botocore's comes from the source of the credentials: a file, a process, or its expiry time.
    """
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "")).startswith(CREDENTIALS_REFUSED)
    is_botocores = isinstance(error, BotoCoreError)
    return isinstance(error, sdk.NO_CREDENTIALS if is_botocores else (OSError, RuntimeError, ValueError))


class BatchRefusedError(Exception):
    """SNS refused a call of several entries because of one of them: each has to be published in a call of its own."""


class Publisher:
    """Publishes heads to one topic.

    Args:
        sns: a client that does not retry: one of boto3, which is not changed, or the light one of `client`.
    """

    def __init__(self, sns: Any, topic_arn: str) -> None:
        self._sns, self._topic_arn = sns, topic_arn.strip()

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Publish one batch of `batches`, and return the outcome of each head, in the order of `heads`.

        Raises:
            BatchRefusedError: SNS refused the whole call because of one entry, and does not name the entry. None was
                accepted.
        """
        entries = [_entry(str(position), head) for position, head in enumerate(heads)]
        try:
            answer = self._sns.publish_batch(TopicArn=self._topic_arn, PublishBatchRequestEntries=entries)
        except sdk.UNANSWERED as error:
            return [PublishRetry(f"{type(error).__name__}: {error}")] * len(heads)
        except ClientError as error:
            return _refusal_outcomes(heads, error)
        results = {
            success.get("Id"): PublishSuccess(success["MessageId"], success.get("SequenceNumber"))
            for success in answer.get("Successful", [])
            if "MessageId" in success
        }
        results |= {failure.get("Id"): _failure_outcome(failure) for failure in answer.get("Failed", [])}
        unanswered = PublishRetry("the answer does not name it")
        return [results.get(str(position), unanswered) for position, _ in enumerate(heads)]


class BoundedPublish:
    """Publishes through another publisher, and refuses a batch whose only event is too large, without a call.

    A bundle fitted when it was stored, and may have arrived: only SNS refuses it.
    """

    def __init__(self, publish: Any, event_bytes_max: int) -> None:
        self._publish, self._event_bytes_max = publish, event_bytes_max

    def publish(self, heads: Sequence[Head]) -> list[PublishOutcome]:
        """Publish one batch of `batches`, and return the outcome of each head, in the order of `heads`."""
        is_one_event = len(heads) == 1 and not heads[0].followers
        refused = too_large(heads, self._event_bytes_max) if is_one_event else None
        outcomes: list[PublishOutcome] = self._publish.publish(heads) if refused is None else refused
        return outcomes


def _refusal_outcomes(heads: Sequence[Head], error: ClientError) -> list[PublishOutcome]:
    """Return the outcomes of heads whose call was refused as a whole.

    Raises:
        BatchRefusedError: one of several entries is the cause, and SNS does not name it.
    """
    message = str(error)
    code = error.response.get("Error", {}).get("Code", "")  # a proxy's page may be XML and no error of AWS
    if not code.startswith(_CODES_OF_A_BAD_ENTRY) or "TopicArn" in message:
        return [PublishRetry(message)] * len(heads)
    if len(heads) > 1:
        raise BatchRefusedError(message) from error
    return [PublishRefusal(message)]


def batches(heads: Sequence[Head], event_bytes_max: int) -> list[list[Head]]:
    """Return the heads in batches that each fit one call: at most ten entries, and at most `event_bytes_max` together.

    A head that is too large has a batch of its own. AWS:
    https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html (read 2026-11-23, promise SNS-28).
    """
    made: list[list[Head]] = []
    room_bytes = 0
    for head in heads:
        size = head.message_bytes
        if not made or len(made[-1]) == limits.PUBLISH_BATCH_ENTRIES_MAX or size > room_bytes:
            made.append([])
            room_bytes = event_bytes_max
        made[-1].append(head)
        room_bytes -= size
    return made


def too_large(batch: Sequence[Head], event_bytes_max: int) -> list[PublishOutcome] | None:
    """Return the refusal of a batch whose only head is too large; None if the batch may be sent."""
    size = sum(head.message_bytes for head in batch)
    if size <= event_bytes_max:
        return None
    return [
        PublishRefusal(
            f"it has {size} bytes with its attributes, allowed are {event_bytes_max}; raise event_bytes_max of the"
            " environment and `sluice outbox unquarantine` it, or `sluice outbox skip` it"
        )
    ]


def _entry(id_: str, head: Head) -> dict[str, Any]:
    return {
        "Id": id_,
        "Message": head.message_body,
        "MessageGroupId": head.group_id,
        "MessageDeduplicationId": head.message_deduplication_id,
        "MessageAttributes": {
            name: {"DataType": SENT_TYPE, "StringValue": value} for name, value in head.attributes.items()
        },
    }


def _failure_outcome(failure: dict[str, Any]) -> PublishOutcome:
    code = failure.get("Code", "")
    found = f"{code}: {failure.get('Message', '')}"
    may_pass = code.startswith(_CODES_THAT_MAY_PASS) or is_throttled(code)
    return PublishRefusal(found) if failure.get("SenderFault") and not may_pass else PublishRetry(found)
