"""The recording proxy on the loopback: what it writes, what clients see of it, and what it refuses."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from sluice import limits
from sluice.clock import SystemClock, eventually
from sluice.errors import ConfigError
from sluice.history.events import HistoryEvent, Kind
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.engine import open_in_memory
from sluice.judge.recording import RecordedQueue, check
from sluice.messaging.bundle import write_bundle
from sluice.messaging.envelope import Envelope, any_event
from sluice.recorder import record
from sluice.recorder.proxy import AWS, RecordingProxy
from tests.support.command_line import KEYS
from tests.support.endpoints import fake_aws
from tests.support.endpoints.capturing_server import Reply, capturing
from tests.support.endpoints.raw_server import serving
from tests.support.histories.recorded_services import create_queue, read_recording, subscribe
from tests.support.project import PROJECT

_QUEUE = "orders.fifo"
_OF_A_CALL = {"clock_id", "host", "worker", "call_id", "invoked_at_us", "responded_at_us"}
_NPM = PROJECT / ".venv/node/lib/node_modules/npm/bin/npm-cli.js"  # the wheel's own `npm` does not start
_AWS = PROJECT / ".venv/bin/aws"
_SIGNED = "AWS4-HMAC-SHA256 Credential=anybody/20261126/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
_FORM_TYPE = "Content-Type: application/x-www-form-urlencoded"
_PUBLISH = {
    "Action": "Publish",
    "Version": "2010-03-31",
    "TopicArn": "arn:aws:sns:eu-west-1:000000000000:topic.fifo",
    "MessageGroupId": "g",
    "MessageDeduplicationId": "d",
    "Message": "half a mess",
}
_JSON = {"Content-Type": "application/x-amz-json-1.0", "Authorization": _SIGNED}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@contextmanager
def _recording(folder: Path, endpoint: str) -> Iterator[RecordingProxy]:
    with record((), folder, worker="proxy") as recording, RecordingProxy(recording, port=0, endpoint=endpoint) as proxy:
        yield proxy


@contextmanager
def _recorded_service(folder: Path) -> Iterator[tuple[RecordingProxy, fake_aws.Endpoint]]:
    with fake_aws.running() as endpoint, _recording(folder, endpoint.url) as proxy:
        yield proxy, endpoint


def _client(service: str, url: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="anybody",
        aws_secret_access_key="anything",  # noqa: S106 (the proxy signs anew)
        config=Config(retries={"total_max_attempts": 1}, read_timeout=10),
    )


def _trade(url: str) -> None:
    """Do everything that is recorded, in every form."""
    sns, sqs = _client("sns", url), _client("sqs", url)
    queue_url = create_queue(sqs, _QUEUE)
    topic_arn = sns.create_topic(Name="topic.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    subscribe(sns, sqs, topic_arn=topic_arn, url=queue_url, is_raw=False)
    attributes = {"raw": {"DataType": "Binary", "BinaryValue": b"\xff\0"}}
    sns.publish(
        TopicArn=topic_arn,
        Message="ä&=+%",
        MessageGroupId="g",
        MessageDeduplicationId="1",
        MessageAttributes=attributes,
    )
    entries = [{"Id": f"e{n}", "MessageGroupId": "h", "MessageDeduplicationId": f"h{n}"} for n in range(3)]
    sns.publish_batch(TopicArn=topic_arn, PublishBatchRequestEntries=[entry | {"Message": "m"} for entry in entries])
    sqs.send_message_batch(QueueUrl=queue_url, Entries=[entry | {"MessageBody": "n"} for entry in entries])
    sqs.send_message(
        QueueUrl=queue_url,
        MessageBody="s",
        MessageGroupId="s",
        MessageDeduplicationId="s",
        MessageAttributes=attributes,
    )
    bundle = write_bundle([Envelope(event=any_event(type="t", group="b", data=0), seq=n, epoch=1).body for n in (1, 2)])
    sns.publish(TopicArn=topic_arn, Message=bundle, MessageGroupId="b", MessageDeduplicationId="b")
    with pytest.raises(ClientError, match="ReceiptHandleIsInvalid"):
        sqs.delete_message(QueueUrl=queue_url, ReceiptHandle="none")
    messages = sqs.receive_message(
        QueueUrl=queue_url,
        MaxNumberOfMessages=10,
        VisibilityTimeout=30,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
    )["Messages"]
    handles = [message["ReceiptHandle"] for message in messages]
    sqs.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=handles[0], VisibilityTimeout=40)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=handles[0])
    entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate(handles[1:])]
    sqs.delete_message_batch(QueueUrl=queue_url, Entries=entries)
    sqs.purge_queue(QueueUrl=queue_url)


def _comparable(events: list[HistoryEvent]) -> list[dict[str, Any]]:
    rows = [asdict(event) for event in events]
    return [{name: value for name, value in row.items() if name not in _OF_A_CALL} for row in rows]


def test_proxy_writes_what_the_recorder_in_the_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run, seen from both sides of the connection."""
    seen = record((), tmp_path / "inside" / "run")
    make_client = _client

    def make_recorded(service: str, url: str) -> Any:
        client = make_client(service, url)
        seen.attach(client)
        return client

    monkeypatch.setattr(sys.modules[__name__], "_client", make_recorded)
    with _recorded_service(tmp_path / "outside" / "run") as (proxy, _), seen:
        _trade(proxy.url)

    inside, outside = (_comparable(read_recording(tmp_path / side / "run")) for side in ("inside", "outside"))
    assert outside == inside
    assert len({row["kind"] for row in outside}) == 9
    of_bundle = [row["kind"] for row in outside if row["message_group_id"] == "b" and row["outcome"] == "ok"]
    assert of_bundle == ["published"] * 2 + ["received"] * 2 + ["deleted"] * 2


def test_queue_urls_lead_back_to_the_proxy_and_on_to_the_endpoint(tmp_path: Path) -> None:
    """The JavaScript SDK sends a queue's calls to the host of its URL."""
    with _recorded_service(tmp_path) as (proxy, endpoint):
        sqs = _client("sqs", proxy.url.replace("127.0.0.1", "localhost"))
        url = create_queue(sqs, _QUEUE)
        by_address = _client("sqs", proxy.url)
        by_address.send_message(QueueUrl=url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d")

        assert url == f"{proxy.url.replace('127.0.0.1', 'localhost')}/000000000000/{_QUEUE}"
        assert by_address.list_queues()["QueueUrls"] == [f"{proxy.url}/000000000000/{_QUEUE}"]
        assert by_address.get_queue_url(QueueName=_QUEUE)["QueueUrl"] == f"{proxy.url}/000000000000/{_QUEUE}"
        assert _client("sqs", endpoint.url).list_queues()["QueueUrls"] == [f"{endpoint.url}/000000000000/{_QUEUE}"]


def test_a_long_poll_delays_no_other_call(tmp_path: Path) -> None:
    """Twelve polls of nine seconds are open while the messages that end them are sent."""
    with _recorded_service(tmp_path) as (proxy, _):
        sqs, found = _client("sqs", proxy.url), []
        url = create_queue(sqs, _QUEUE)
        began = SystemClock().monotonic()
        polls = [
            threading.Thread(
                target=lambda: found.extend(
                    _client("sqs", proxy.url).receive_message(QueueUrl=url, WaitTimeSeconds=9).get("Messages", [])
                )
            )
            for _ in range(12)
        ]
        for poll in polls:
            poll.start()
        for group in range(12):
            sqs.send_message(
                QueueUrl=url, MessageBody="b", MessageGroupId=str(group), MessageDeduplicationId=str(group)
            )
        for poll in polls:
            poll.join()

        assert len(found) == 12
        assert SystemClock().monotonic() - began < 8


def test_requests_are_signed_anew(tmp_path: Path) -> None:
    """The signature is by the proxy's credentials, for the client's region.

    Other headers stay as the client sent them.
    """
    with capturing(lambda _: Reply()) as server, _recording(tmp_path, server.url) as proxy:
        _post(proxy, "{}", **_JSON, **{"X-Amz-Target": "AmazonSQS.ListQueues", "amz-sdk-request": "attempt=2"})
        (request,) = server.captured

    headers = request.headers
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
    assert "/eu-west-1/sqs/aws4_request" in headers["authorization"]
    assert headers["host"] == urlsplit(server.url).netloc
    assert headers["amz-sdk-request"] == "attempt=2"
    assert headers["accept-encoding"] == "identity"
    assert "accept-encoding" not in headers["authorization"]  # signed beside the client's it would have two values


def _post(proxy: RecordingProxy, body: str | bytes, **headers: str) -> tuple[int, bytes]:
    with closing(HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)) as connection:
        connection.request("POST", "/", body, headers)
        with connection.getresponse() as response:
            return response.status, response.read()


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    ids=[
        "unsigned",
        "region -",
        "region 123",
        "long region",
        "region with a dot",
        "other host",
        "broken host",
        "other service",
        "CBOR",
        "too large",
        "negative length",
        "chunked",
    ],
    argvalues=[
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Authorization": ""}, 403, b"MissingAuthenticationToken"),
        *(
            (
                {"X-Amz-Target": "AmazonSQS.ListQueues", "Authorization": _SIGNED.replace("eu-west-1", no_region)},
                403,
                b"MissingAuthenticationToken",
            )
            for no_region in ("-", "123", "a" * 64, "example.com")
        ),
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Host": "evil.example"}, 403, b"AccessDenied"),
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Host": "["}, 403, b"AccessDenied"),
        ({"X-Amz-Target": "DynamoDB_20120810.GetItem"}, 501, b"NotImplemented"),
        ({"Content-Type": "application/cbor"}, 501, b"NotImplemented"),
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Length": str(1 << 30)}, 413, b"RequestEntityTooLarge"),
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Length": "-1"}, 411, b"MissingContentLength"),
        ({"X-Amz-Target": "AmazonSQS.ListQueues", "Transfer-Encoding": "chunked"}, 411, b"MissingContentLength"),
    ],
)
def test_other_requests_are_refused_and_never_sent_on(
    tmp_path: Path, headers: dict[str, str], status: int, code: bytes
) -> None:
    """The proxy signs what it sends on with its own credentials, so it sends on nothing that it cannot read."""
    with capturing(lambda _: Reply()) as server, _recording(tmp_path, server.url) as proxy:
        answered, body = _post(proxy, "{}", **_JSON | headers)

        assert answered == status
        assert server.captured == []
    assert code in body


def test_a_request_that_was_cut_is_never_sent_on(tmp_path: Path) -> None:
    """Half a form is a form, too: signed anew, it would publish half a message."""
    head = (
        f"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {_SIGNED}\r\n{_FORM_TYPE}\r\nContent-Length: 999\r\n\r\n"
    )
    with capturing(lambda _: Reply()) as server, _recording(tmp_path, server.url) as proxy:
        address = urlsplit(proxy.url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as client:
            client.sendall(f"{head}{urlencode(_PUBLISH)}".encode())
            client.shutdown(socket.SHUT_WR)
            answered = client.recv(1_000)

        assert answered == b""
        assert server.captured == []
    assert Kind.PUBLISHED not in {event.kind for event in read_recording(tmp_path)}


@pytest.mark.parametrize(
    "more",
    ["\u00ff", "&MessageAttributes.entry.1.Value.DataType=String", "&MessageAttributes.entry.one.Name=n"],
    ids=["no UTF-8", "attribute without a name", "number in words"],
)
def test_a_malformed_form_is_sent_on_and_answered_by_the_endpoint(tmp_path: Path, more: str) -> None:
    """The proxy is no judge of a request: the answer 400 is the endpoint's."""
    with capturing(lambda _: Reply(status=400)) as server, _recording(tmp_path, server.url) as proxy:
        headers = {"Authorization": _SIGNED, "Content-Type": "application/x-www-form-urlencoded"}
        assert _post(proxy, (urlencode(_PUBLISH) + more).encode("latin-1"), **headers)[0] == 400
        assert len(server.captured) == 1


@pytest.mark.parametrize("name", ["MessageBody", "MessageGroupId", "QueueUrl"])
def test_an_invalid_text_stops_no_recording(tmp_path: Path, name: str) -> None:
    """JSON can hold half of a pair of UTF-16, which nothing else can: SQS refuses it, and recording goes on."""
    params = {"QueueUrl": f"http://localhost/1/{_QUEUE}", "MessageBody": "b", "MessageGroupId": "g"}
    send = _JSON | {"X-Amz-Target": "AmazonSQS.SendMessage"}
    with capturing(lambda _: Reply(status=400)) as server, _recording(tmp_path, server.url) as proxy:
        assert _post(proxy, json.dumps(params | {name: "\ud800"}), **send)[0] == 400
        assert _post(proxy, json.dumps(params), **send)[0] == 400
        assert proxy.recording.is_on

    assert Kind.PUBLISHED in {event.kind for event in read_recording(tmp_path)}


@pytest.mark.parametrize("seconds", [1 << 31, -(10**30), True])
def test_a_number_that_is_none_of_sqs_stops_no_recording(tmp_path: Path, seconds: float) -> None:
    """The first poll's visibility timeout is impossible; both polls are refused, and recording goes on."""
    params = {"QueueUrl": f"http://localhost/1/{_QUEUE}"}
    with capturing(lambda _: Reply(status=400)) as server, _recording(tmp_path, server.url) as proxy:
        for more in ({"VisibilityTimeout": seconds}, {}):
            body = json.dumps(params | more)
            assert _post(proxy, body, **_JSON, **{"X-Amz-Target": "AmazonSQS.ReceiveMessage"})[0] == 400

    (poll,) = {event.call_id: event for event in read_recording(tmp_path) if event.kind == Kind.POLL}.values()
    assert poll.outcome == "fail"
    assert poll.visibility_timeout_seconds is None


def test_an_answer_that_is_no_object_is_passed_on_unread(tmp_path: Path) -> None:
    """The client gets the list as it came; whether the message was sent is on record as unknown."""
    body = json.dumps({"QueueUrl": f"http://localhost/1/{_QUEUE}", "MessageBody": "b", "MessageGroupId": "g"})
    with capturing(lambda _: Reply(body=b"[]")) as server, _recording(tmp_path, server.url) as proxy:
        assert _post(proxy, body, **_JSON, **{"X-Amz-Target": "AmazonSQS.SendMessage"}) == (200, b"[]")

    assert {event.outcome for event in read_recording(tmp_path) if event.kind == Kind.PUBLISHED} == {"info"}


def test_ten_messages_of_the_largest_size_come_in_one_answer(tmp_path: Path) -> None:
    """SQS: a message has up to 1 MiB, and a receive brings up to ten; JSON writes a line break with two bytes."""
    messages = [{"Body": "\n" * limits.MESSAGE_BYTES_MAX} for _ in range(10)]
    body = json.dumps({"Messages": messages}).encode()
    receive = json.dumps({"QueueUrl": f"http://localhost/1/{_QUEUE}"})
    with capturing(lambda _: Reply(body=body)) as server, _recording(tmp_path, server.url) as proxy:
        answered = _post(proxy, receive, **_JSON, **{"X-Amz-Target": "AmazonSQS.ReceiveMessage"})

    assert answered == (200, body)


def test_expired_credentials_are_answered_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy started with valid credentials, which cannot be renewed when they end."""
    keys = {"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "secret", "SessionToken": "token"}
    file, config = tmp_path / "keys.json", tmp_path / "config"
    soon, past = (datetime.fromtimestamp(SystemClock().now_us() / 1e6 + seconds, UTC) for seconds in (60, -60))
    file.write_text(json.dumps(keys | {"Expiration": soon.isoformat()}))
    config.write_text(f"[default]\ncredential_process = cat {file}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with capturing(lambda _: Reply()) as server, _recording(tmp_path / "run", server.url) as proxy:
        file.write_text(json.dumps(keys | {"Expiration": past.isoformat()}))
        status, body = _post(proxy, "{}", **_JSON, **{"X-Amz-Target": "AmazonSQS.ListQueues"})

    assert status == 502
    assert server.captured == []
    assert b"set AWS_PROFILE" in body


def test_a_call_unreadable_to_the_proxy_works_with_an_unknown_verdict(tmp_path: Path) -> None:
    """SDKs before 2023 send SQS's calls as forms, which the proxy cannot read."""
    form = urlencode({"Action": "ReceiveMessage", "Version": "2012-11-05", "QueueUrl": "http://localhost/1/q.fifo"})
    refused = {"Action": "SendMessage", "Version": "2012-11-05"}
    with (
        capturing(lambda _: Reply(body=b"<ReceiveMessageResponse/>")) as server,
        _recording(tmp_path, server.url) as proxy,
    ):
        kind = {"Authorization": _SIGNED, "Content-Type": "application/x-www-form-urlencoded"}
        assert _post(proxy, form, **kind) == (200, b"<ReceiveMessageResponse/>")
        server.reply = lambda _: Reply(status=400)
        assert _post(proxy, urlencode(refused), **kind)[0] == 400

    verdict = _verdict(tmp_path)
    assert verdict.status is PropertyStatus.UNKNOWN
    assert verdict.unknowns[0] == (
        "calls were made that no recorder can see: ReceiveMessage in a form that the proxy does not read;"
        " what is absent may have been there"
    )
    assert "SendMessage" not in str(verdict.unknowns)


def _verdict(folder: Path, *queues: str) -> Any:
    named = {name: RecordedQueue(visibility_timeout_seconds=30) for name in queues}
    engine = open_in_memory(folder)
    assert engine is not None, "it is small"
    return check(engine, folder, named, "aws")[0]


def test_receives_that_went_past_the_proxy_make_the_verdict_unknown(tmp_path: Path) -> None:
    """The first of three messages is received and deleted at the endpoint itself."""
    with _recorded_service(tmp_path / "run") as (proxy, endpoint):
        sqs, past = _client("sqs", proxy.url), _client("sqs", endpoint.url)
        url = create_queue(sqs, _QUEUE)
        for number in range(3):
            sqs.send_message(QueueUrl=url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId=str(number))
        (message,) = past.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert len(messages) == 2
    assert _verdict(tmp_path / "run", _QUEUE).status is PropertyStatus.UNKNOWN


def test_an_answer_that_is_cut_reaches_the_client_as_cut(tmp_path: Path) -> None:
    """Nobody knows which messages such a receive has leased, and the same holds for an answer that never comes."""
    body = json.dumps({"QueueUrl": f"http://localhost/1/{_QUEUE}"})
    receive = _JSON | {"X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    cut = Reply(body=b'{"Messages": [', missing_bytes=9)
    with capturing(lambda _: cut) as server, _recording(tmp_path, server.url) as proxy:
        with pytest.raises(IncompleteRead):
            _post(proxy, body, **receive)
        server.reply = lambda _: Reply(status=0)
        assert _post(proxy, body, **receive)[0] == 502

    polls = [event for event in read_recording(tmp_path) if event.kind == Kind.POLL]
    assert [(poll.outcome, poll.error) for poll in polls] == [
        ("info", "IncompleteRead"),
        ("info", "ConnectionClosedError"),
    ]


def test_a_call_to_an_absent_endpoint_had_no_effect(tmp_path: Path) -> None:
    """Nothing listens there: no connection was made, so the message was surely not sent."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = f"http://127.0.0.1:{free.getsockname()[1]}"
    with _recording(tmp_path, gone) as proxy, pytest.raises((ClientError, HTTPClientError)):
        _client("sqs", proxy.url).send_message(
            QueueUrl=f"{proxy.url}/1/{_QUEUE}", MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d"
        )

    (sent,) = (event for event in read_recording(tmp_path) if event.kind == Kind.PUBLISHED)
    assert sent.outcome == "fail"
    assert sent.error == "EndpointConnectionError"


def test_aws_is_reached_by_the_proxy_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTPS_PROXY names a socket, which sees the CONNECT and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as way_out:
        way_out.settimeout(10)
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{way_out.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with _recording(tmp_path, AWS) as proxy, ThreadPoolExecutor() as threads:
            answered = threads.submit(_post, proxy, "{}", **_JSON, **{"X-Amz-Target": "AmazonSQS.ListQueues"})
            connected, _ = way_out.accept()
            with connected:
                request = connected.recv(1_000)

        assert request.startswith(b"CONNECT sqs.eu-west-1.amazonaws.com:443 ")
        assert answered.result()[0] == 502


def test_a_taken_port_and_absent_credentials_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are noticed when the proxy is built, before a client can call it."""
    with record((), tmp_path) as recording, serving() as server:
        port = urlsplit(server.url).port or 0
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1"):
            RecordingProxy(recording, port=port, endpoint=server.url)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
        with pytest.raises(ConfigError, match="no credentials to sign with; set AWS_PROFILE"):
            RecordingProxy(recording, port=0, endpoint=server.url)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_journal_with_a_poll_under_way(tmp_path: Path, number: signal.Signals) -> None:
    """The poll may have leased messages that nobody saw: it is on record as one without an answer."""
    with fake_aws.running() as endpoint:
        url = create_queue(_client("sqs", endpoint.url), _QUEUE)
        begun = threading.Event()
        endpoint.fault = lambda operation: begun.set() if operation == "ReceiveMessage" else None
        command = [sys.executable, "-m", "sluice", "record", "--proxy", "0", "--to", endpoint.url, str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as proxy:
            assert proxy.stderr is not None
            line = proxy.stderr.readline()
            sqs = _client("sqs", line.split()[1])
            poll = threading.Thread(target=_poll, args=(sqs, url), daemon=True)
            poll.start()
            eventually(begun.is_set, timeout_seconds=20, describe="the poll begins")
            proxy.send_signal(number)
            ended = proxy.stderr.read()
            code = proxy.wait(20)

    assert code == 0
    assert ended == f"journal in {tmp_path}; judge it: sluice check {tmp_path} --queue NAME=SECONDS\n"
    (poll_event,) = (event for event in read_recording(tmp_path) if event.kind == Kind.POLL)
    assert poll_event.outcome == "info"
    assert poll_event.responded_at_us is None
    assert [event.kind for event in read_recording(tmp_path)][-1] == Kind.CLOSED


@pytest.mark.slow
def test_a_service_in_javascript_is_recorded_and_valid(tmp_path: Path) -> None:
    """The SDK is from npm; it sends calls to the host in the queue's URL."""
    folder = tmp_path / "javascript"
    shutil.copytree(PROJECT / "tests" / "support" / "javascript", folder)
    install = ["node", str(_NPM), "ci", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=200)
    with _recorded_service(tmp_path / "run") as (proxy, endpoint):
        topic_arn = _subscribed_topic(endpoint.url)
        own = {"AWS_ENDPOINT_URL_SQS": proxy.url, "AWS_ENDPOINT_URL_SNS": proxy.url, "AWS_REGION": "us-east-1"}
        ended = subprocess.run(
            ["node", "orders.mjs", _QUEUE, topic_arn],
            cwd=folder,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.strip() == urlsplit(proxy.url).netloc, ended.stderr

    _require_six_orders_on_record(tmp_path / "run")


@pytest.mark.slow
def test_the_aws_cli_is_recorded_and_valid(tmp_path: Path) -> None:
    """Version 1, which is on PyPI, sends SQS's calls as JSON, as version 2 does.

    Version 1 alone prefers AWS's old address of SQS to AWS_ENDPOINT_URL_SQS
    (awscli/customizations/overridesslcommonname.py in 1.46.2): --endpoint-url counts.
    """

    def aws(service: str, operation: str, *options: str) -> Any:
        """Return what a command printed, which is JSON or nothing."""
        command = [str(_AWS), "--endpoint-url", proxy.url, "--region", "us-east-1", service, operation, *options]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout or "{}")

    with _recorded_service(tmp_path / "run") as (proxy, endpoint):
        topic_arn = _subscribed_topic(endpoint.url)
        url = aws("sqs", "get-queue-url", "--queue-name", _QUEUE)["QueueUrl"]
        text = json.dumps({"kind": {"DataType": "String", "StringValue": "first"}})
        first = ("--message-group-id", "g0", "--message-deduplication-id", "d0", "--message-attributes", text)
        aws("sns", "publish", "--topic-arn", topic_arn, "--message", "order 0", *first)
        batch = [
            {"Id": f"e{n}", "Message": f"order {n} ä&=+%", "MessageGroupId": f"g{n}", "MessageDeduplicationId": f"d{n}"}
            for n in range(1, 5)
        ]
        entries = json.dumps(batch)
        aws("sns", "publish-batch", "--topic-arn", topic_arn, "--publish-batch-request-entries", entries)
        last = ("--message-group-id", "g5", "--message-deduplication-id", "d5")
        aws("sqs", "send-message", "--queue-url", url, "--message-body", "direct", *last)
        everything = ("--message-system-attribute-names", "All", "--message-attribute-names", "All")
        most = ("--max-number-of-messages", "10", *everything)
        messages = aws("sqs", "receive-message", "--queue-url", url, *most)["Messages"]
        handle, *others = (message["ReceiptHandle"] for message in messages)
        given = ("--queue-url", url, "--receipt-handle", handle)
        aws("sqs", "change-message-visibility", *given, "--visibility-timeout", "60")
        aws("sqs", "delete-message", *given)
        deleted = json.dumps([{"Id": str(place), "ReceiptHandle": other} for place, other in enumerate(others)])
        aws("sqs", "delete-message-batch", "--queue-url", url, "--entries", deleted)

        assert urlsplit(url).netloc == urlsplit(proxy.url).netloc

    _require_six_orders_on_record(tmp_path / "run")


def _subscribed_topic(endpoint_url: str) -> str:
    """Make the queue and a topic that sends to it, past the proxy; return the topic's ARN."""
    sns, sqs = _client("sns", endpoint_url), _client("sqs", endpoint_url)
    url = create_queue(sqs, _QUEUE)
    topic_arn = str(sns.create_topic(Name="topic.fifo", Attributes={"FifoTopic": "true"})["TopicArn"])
    subscribe(sns, sqs, topic_arn=topic_arn, url=url, is_raw=True)
    return topic_arn


def _require_six_orders_on_record(folder: Path) -> None:
    """Fail unless six orders were published, received as published, and deleted, and the verdict is VALID."""
    events = read_recording(folder)
    assert [sum(event.kind == kind for event in events) for kind in (Kind.PUBLISHED, Kind.RECEIVED, Kind.DELETED)] == [
        6,
        6,
        6,
    ]
    assert {event.outcome for event in events} == {"ok"}
    published, received = (
        {(event.deduplication_id, event.body_hash, event.attributes_hash) for event in events if event.kind == kind}
        for kind in (Kind.PUBLISHED, Kind.RECEIVED)
    )
    assert published == received
    assert _verdict(folder, _QUEUE).status is PropertyStatus.VALID


def _poll(sqs: Any, url: str) -> None:
    with pytest.raises((HTTPClientError, ClientError)):
        sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
