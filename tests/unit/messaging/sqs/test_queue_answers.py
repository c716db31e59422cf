"""A queue ignores nulls in SQS's answers, and reports the answer of another kind of server in one line."""

import re

import boto3
import pytest
from botocore import exceptions

from sluice import sdk
from sluice.messaging.errors import TransientError
from sluice.messaging.sqs.queue import Queue, explaining_errors
from tests.support.endpoints.capturing_server import Reply, capturing


@pytest.mark.parametrize("body", [b'{"Successful":[null],"Failed":null}', b'{"Successful":null,"Failed":[null]}'])
def test_a_null_among_the_entries_names_none_of_them(body: bytes) -> None:
    """Every entry is tried again, and no error is raised that heartbeat and deleter do not know."""
    with capturing(lambda _: Reply(body=body)) as server:
        queue = _queue(server.url)
        outcomes = [*queue.extend([("a", 30), ("b", 30)]), *queue.delete_batch(["a", "b"])]

    assert [(type(outcome), str(outcome)) for outcome in outcomes] == [
        (TransientError, "the answer does not name it")
    ] * 4


def test_a_null_among_the_messages_is_ignored() -> None:
    """No real SQS answers so; the lane must not die of it."""
    with capturing(lambda _: Reply(body=b'{"Messages":[null]}')) as server:
        assert _queue(server.url).receive(attempt_id=None, wait_seconds=0) is None


@pytest.mark.parametrize("body", [b"<!DOCTYPE HTML>\n<title>Error response</title>", b""])
def test_a_page_of_another_server_is_one_line(body: bytes) -> None:
    """Another program may have LocalStack's port; its HTML tells an operator nothing."""
    with capturing(lambda _: Reply(501, body)) as server, pytest.raises(TransientError) as refused:
        _queue(server.url).attributes()

    assert str(refused.value) == "the queue answers with HTTP 501, and not as SQS does; look at --endpoint-url"


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (exceptions.ReadTimeoutError(endpoint_url="http://sqs"), "look at --endpoint-url"),
        (exceptions.ConnectTimeoutError(endpoint_url="http://sqs"), "look at --endpoint-url"),
        (exceptions.SSLError(endpoint_url="https://sqs", error="self-signed"), "look at AWS_CA_BUNDLE and"),
        (FileNotFoundError(2, "No such file or directory", "/token"), "look at that file"),
        (RuntimeError("refreshed credentials are still expired"), "set AWS_PROFILE"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_next_step_follows_from_what_ended_a_call(error: Exception, step: str) -> None:
    """A timeout is an OSError, too, but its next step is not to check a file."""
    with pytest.raises(TransientError, match=re.escape(f"); {step}")), explaining_errors():
        raise error


def _queue(url: str) -> Queue:
    """Return a queue at this server."""
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    return Queue(
        boto3.client("sqs", endpoint_url=url, region_name="eu-west-1", config=sdk.config(), **keys), f"{url}/q"
    )
