"""Command lines of the AWS CLI, as an operator types them, replayed against LocalStack: a client that is not ours."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator import localstack
from sluice.clock import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("a localstack of its own")]
_AWS = Path(sys.executable).with_name("aws")
_ARN = "arn:aws:sqs:us-east-1:000000000000"
_NORMALISED = (
    (r"http://127\.0\.0\.1:\d+", "<endpoint>"),
    (r'(?<="ReceiptHandle": ")[^"]+', "<receipt handle>"),
    (r'(?<="TaskHandle": ")[^"]+', "<task handle>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
    (r'(?<="SequenceNumber": ")\d+', "<sequence number>"),
    (r'(?<=Timestamp": ")\d{13}', "<instant>"),
    (r'(?<="StartedTimestamp": )\d{13}', "<instant>"),
)

Aws = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """Yield a function that runs `aws sqs …` and returns its exit code and its output, with ids normalised."""
    log = tmp_path_factory.mktemp("localstack") / "localstack.log"
    with localstack.running(log=log) as running:
        environment = {**localstack.with_endpoint(running), "AWS_PAGER": ""}

        def run(*arguments: str) -> tuple[int, str]:
            ended = subprocess.run(
                [_AWS, "--endpoint-url", running.endpoint_url, "sqs", *arguments],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            printed = ended.stdout + ended.stderr
            for pattern, name in _NORMALISED:
                printed = re.sub(pattern, name, printed)
            return ended.returncode, printed.strip()

        def run_with_urls(*arguments: str) -> tuple[int, str]:
            url = f"{running.endpoint_url}/queue/us-east-1/000000000000/"
            return run(*[re.sub("^url:", url, argument) for argument in arguments])

        yield run_with_urls


def _message(body: str, md5: str, *, group: str) -> str:
    return f"""{{
    "Messages": [
        {{
            "MessageId": "<id>",
            "ReceiptHandle": "<receipt handle>",
            "MD5OfBody": "{md5}",
            "Body": "{body}",
            "Attributes": {{
                "SenderId": "000000000000",
                "SentTimestamp": "<instant>",
                "MessageGroupId": "{group}",
                "MessageDeduplicationId": "{body}",
                "SequenceNumber": "<sequence number>",
                "ApproximateReceiveCount": "1",
                "ApproximateFirstReceiveTimestamp": "<instant>"
            }}
        }}
    ]
}}"""


def test_the_aws_cli_sees_a_blocked_group_and_a_purged_queue(aws: Aws) -> None:
    created = aws("create-queue", "--queue-name", "orders.fifo", "--attributes", "FifoQueue=true")
    sent = [_send(aws, "m1", group="g1"), _send(aws, "m2", group="g1"), _send(aws, "m3", group="g2")]

    receive = ("receive-message", "--queue-url", "url:orders.fifo", "--visibility-timeout", "30")
    received = [aws(*receive, "--attribute-names", "All") for _ in range(4)]
    purged = aws("purge-queue", "--queue-url", "url:orders.fifo")
    left = aws(
        *("get-queue-attributes", "--queue-url", "url:orders.fifo", "--attribute-names"),
        *("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"),
    )

    assert created == (
        0,
        '{\n    "QueueUrl": "<endpoint>/queue/us-east-1/000000000000/orders.fifo"\n}',
    )
    assert sent == [
        _accepted_output("ae7be26cdaa742ca148068d5ac90eaca"),
        _accepted_output("aaf2f89992379705dac844c0a2a1d45f"),
        _accepted_output("9678f7a7939f457fa0d9353761e189c7"),
    ]
    assert received == [
        (0, _message("m1", "ae7be26cdaa742ca148068d5ac90eaca", group="g1")),
        (0, _message("m3", "9678f7a7939f457fa0d9353761e189c7", group="g2")),
        (0, ""),
        (0, ""),
    ]
    assert purged == (0, "")
    assert left == (
        0,
        """{
    "Attributes": {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0"
    }
}""",
    )


def _send(aws: Aws, body: str, *, group: str) -> tuple[int, str]:
    ids = ("--message-group-id", group, "--message-deduplication-id", body)
    return aws("send-message", "--queue-url", "url:orders.fifo", "--message-body", body, *ids)


def _accepted_output(md5: str) -> tuple[int, str]:
    return (
        0,
        f"""{{
    "MD5OfMessageBody": "{md5}",
    "MessageId": "<id>",
    "SequenceNumber": "<sequence number>"
}}""",
    )


def test_a_dead_letter_is_moved_to_a_destination_at_a_rate(aws: Aws) -> None:
    policy = f'{{"deadLetterTargetArn":"{_ARN}:paid-dlq.fifo","maxReceiveCount":"1"}}'
    attributes = f'{{"FifoQueue":"true","RedrivePolicy":"{policy.replace('"', '\\"')}"}}'
    aws("create-queue", "--queue-name", "paid-dlq.fifo", "--attributes", "FifoQueue=true")
    aws("create-queue", "--queue-name", "paid.fifo", "--attributes", attributes)
    aws("create-queue", "--queue-name", "replay.fifo", "--attributes", "FifoQueue=true")
    ids = ("--message-group-id", "g1", "--message-deduplication-id", "poison")
    aws("send-message", "--queue-url", "url:paid.fifo", "--message-body", "poison", *ids)
    receive = ("receive-message", "--visibility-timeout", "0", "--query", "Messages[].Body", "--queue-url")
    tries = [aws(*receive, "url:paid.fifo"), aws(*receive, "url:paid.fifo")]

    started = aws(
        *("start-message-move-task", "--source-arn", f"{_ARN}:paid-dlq.fifo"),
        *("--destination-arn", f"{_ARN}:replay.fifo", "--max-number-of-messages-per-second", "5"),
    )
    list_tasks = ("list-message-move-tasks", "--source-arn", f"{_ARN}:paid-dlq.fifo", "--max-results", "1")
    ended = eventually(
        lambda: next((item for item in [aws(*list_tasks)] if "RUNNING" not in item[1]), None),
        timeout_seconds=60,
        describe="the move task to end",
    )
    moved = aws(*receive, "url:replay.fifo")

    poison = (0, '[\n    "poison"\n]')
    assert tries == [poison, (0, "null")]
    assert started == (0, '{\n    "TaskHandle": "<task handle>"\n}')
    assert ended == (
        0,
        f"""{{
    "Results": [
        {{
            "Status": "COMPLETED",
            "SourceArn": "{_ARN}:paid-dlq.fifo",
            "DestinationArn": "{_ARN}:replay.fifo",
            "MaxNumberOfMessagesPerSecond": 5,
            "ApproximateNumberOfMessagesMoved": 1,
            "ApproximateNumberOfMessagesToMove": 1,
            "StartedTimestamp": <instant>
        }}
    ]
}}""",
    )
    assert moved == poison


def test_the_aws_cli_is_refused_a_move_task_from_no_dlq(aws: Aws) -> None:
    aws("create-queue", "--queue-name", "alone.fifo", "--attributes", "FifoQueue=true")

    refused = aws("start-message-move-task", "--source-arn", f"{_ARN}:alone.fifo")

    assert refused == (
        255,
        "An error occurred (InvalidParameterValue) when calling the StartMessageMoveTask operation: "
        "Source queue must be configured as a Dead Letter Queue.",
    )
