"""The light client sends the same bytes as boto3, with the same answers and errors, or leaves it to botocore."""

import json
import logging
import os
import socket
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
import pytest
from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.instrumentation.botocore import BotocoreInstrumentor

from sluice import sdk
from sluice.aws import codec
from sluice.aws.client import BOTO3, LightSns, LightSqs, address_of, open_client
from sluice.aws.connections import Connections
from sluice.aws.http import Address
from sluice.aws.operation import AwsOperation
from sluice.aws.signing import SigningKeys
from sluice.clock import eventually, wall_us
from sluice.errors import ConfigError
from sluice.messaging.sqs.dead_letter_queue import DeadLetterSender
from sluice.messaging.sqs.queue import Queue
from sluice.saboteurs import sabotage
from tests.support.endpoints import fake_aws, raw_server
from tests.support.endpoints.capturing_server import CapturedRequest, Reply, capturing
from tests.support.endpoints.raw_server import End

TOPIC = "arn:aws:sns:us-east-1:000000000000:t.fifo"
QUEUE = "http://localhost:4566/000000000000/q.fifo"
RECEIVE: dict[str, Any] = {
    "QueueUrl": QUEUE,
    "MaxNumberOfMessages": 1,
    "WaitTimeSeconds": 1,
    "MessageAttributeNames": ["All"],
}
DELETE = {"QueueUrl": QUEUE, "ReceiptHandle": "h"}
PUBLISH: dict[str, Any] = {
    "TopicArn": TOPIC,
    "PublishBatchRequestEntries": [
        {"Id": "0", "Message": "a", "MessageGroupId": "g", "MessageDeduplicationId": "d"},
        {"Id": "1", "Message": "b", "MessageGroupId": "h", "MessageDeduplicationId": "e"},
    ],
}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {"sns": ("publish_batch", PUBLISH), "sqs": ("receive_message", RECEIVE)}
_PATIENT_SECONDS, _SHORT_SECONDS = 30, 0.1  # a busy machine answers within the first; the second is for silence alone
_URL = "https://example.invalid/a%20b"
_KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "wJalr/x+y", "aws_session_token": "t0/k"}


def _client(service: str, url: str, *, config: Config | None = None, **options: Any) -> Any:
    config = sdk.config(answer_seconds=_PATIENT_SECONDS) if config is None else config
    return boto3.Session(**_KEYS).client(service, endpoint_url=url, region_name="eu-west-1", config=config, **options)


def _light(service: str, url: str, **options: Any) -> Any:
    session = boto3.Session(**_KEYS)
    kind = {"sns": LightSns, "sqs": LightSqs}[service]
    return kind(_client(service, url, **options), session)


def _both(service: str, url: str, **options: Any) -> tuple[Any, Any]:
    """Return a plain client, and a light one."""
    return _client(service, url, **options), _light(service, url, **options)


# Requests

_texts = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.sampled_from(
        ['a "b" \\ & + = %41 ~', "ü\u2028\x7f😀\r\n\t", "<x>;/?:@,$'&amp;", "-_.*", "%%25+ ", "y" * 262_144]
    ),
    st.binary(min_size=50, max_size=200).map(lambda content: content.decode("latin-1")),
)
_numbers = st.integers(0, 43_200)
_attributes = st.dictionaries(
    _texts,
    st.one_of(
        st.fixed_dictionaries({"DataType": st.just("String"), "StringValue": _texts}),
        st.fixed_dictionaries({"DataType": st.just("Binary"), "BinaryValue": st.binary(min_size=1, max_size=30)}),
    ),
    max_size=3,
)
_queue = {"QueueUrl": _texts}


def _entries(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return st.lists(st.fixed_dictionaries({"Id": _texts, **required}, optional=optional or {}), min_size=1, max_size=10)


_ids = {"MessageGroupId": _texts, "MessageDeduplicationId": _texts, "MessageAttributes": _attributes}
_names = st.lists(_texts, max_size=3)
PARAMS: dict[str, Any] = {
    "PublishBatch": {
        "TopicArn": _texts,
        "PublishBatchRequestEntries": _entries({"Message": _texts}, _ids | {"Subject": _texts}),
    },
    "SendMessageBatch": _queue | {"Entries": _entries({"MessageBody": _texts}, _ids | {"DelaySeconds": _numbers})},
    "DeleteMessage": _queue | {"ReceiptHandle": _texts},
    "DeleteMessageBatch": _queue | {"Entries": _entries({"ReceiptHandle": _texts})},
    "ChangeMessageVisibility": _queue | {"ReceiptHandle": _texts, "VisibilityTimeout": _numbers},
    "ChangeMessageVisibilityBatch": _queue
    | {"Entries": _entries({"ReceiptHandle": _texts}, {"VisibilityTimeout": _numbers})},
    "ReceiveMessage": _queue
    | {
        "MaxNumberOfMessages": _numbers,
        "WaitTimeSeconds": _numbers,
        "ReceiveRequestAttemptId": _texts,
        "MessageSystemAttributeNames": _names,
        "MessageAttributeNames": _names,
    },
}


@pytest.fixture(scope="module")
def plain_clients() -> dict[str, Any]:
    """Return boto3's clients whose requests are never sent; `kept` has the requests."""
    found = {service: _client(service, _URL) for service in ("sns", "sqs")}
    for plain in found.values():
        plain.kept, plain.address = [], address_of(plain, botocore.session.Session())
        plain.meta.events.register("before-send", lambda request, kept=plain.kept, **_: _keep(kept, request))
    return found


def _keep(kept: list[AWSPreparedRequest], request: AWSPreparedRequest) -> AWSResponse:
    kept.append(request)
    response = AWSResponse(request.url, 500, {}, None)
    response._content = b""
    return response


@pytest.mark.parametrize("name", PARAMS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_request_is_the_request_that_botocore_sends(
    name: str, plain_clients: dict[str, Any], data: st.DataObject
) -> None:
    service = "sns" if name == "PublishBatch" else "sqs"
    plain = plain_clients[service]
    params = data.draw(st.fixed_dictionaries(PARAMS[name]))
    with suppress(ClientError):
        getattr(plain, xform_name(name))(**params)
    expected = plain.kept.pop()

    operation = AwsOperation(
        name,
        meta=plain.meta,
        exceptions=plain.exceptions,
        address=plain.address,
        keys=lambda: SigningKeys(*_KEYS.values()),
        now_us=wall_us,
    )
    head, _, body = operation.sign(operation.encode(params)).partition(b"\r\n\r\n")

    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /a%20b HTTP/1.1"
    assert _comparable_headers(headers) == _comparable_headers(
        {name.lower(): _text(its) for name, its in expected.headers.items()}
    )
    assert body == (expected.body if isinstance(expected.body, bytes) else expected.body.encode())
    assert headers["host"] == "example.invalid"
    assert headers["authorization"].endswith(_signature(service, headers, body))


def _text(header: Any) -> str:
    return header.decode() if isinstance(header, bytes) else str(header)


def _comparable_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers that both clients send with the same value, and which of them are signed."""
    differing = {"x-amz-date", "authorization", "host", "accept-encoding", "user-agent"}
    differing |= {"amz-sdk-request", "amz-sdk-invocation-id"}
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0]
    return {name: value for name, value in headers.items() if name not in differing} | {"signed": signed}


def _signature(service: str, headers: dict[str, str], body: bytes) -> str:
    names = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest("POST", _URL, headers={name: headers[name] for name in names}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", "wJalr/x+y"), service, "eu-west-1")
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


# Answers

_SQS_OK = {
    "Messages": [
        {
            "MessageId": "m",
            "ReceiptHandle": "h",
            "MD5OfBody": "0",
            "Body": "ü\u2028<>&",
            "Attributes": {"ApproximateReceiveCount": "2", "MessageGroupId": "g"},
            "MessageAttributes": {
                "a": {"DataType": "String", "StringValue": "x", "Unknown": 1},
                "b": {"DataType": "Binary", "BinaryValue": "AAH/", "StringValue": None, "StringListValues": ["q"]},
            },
            "Unknown": {"a": 1},
        }
    ],
    "Unknown": 1,
}


def _http(body: bytes | str, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    size = len(content) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", "x-amzn-RequestId: r-1", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def _publish_response(successful: str, failed: str = "<Failed/>", more: str = "") -> str:
    return (
        '<?xml version="1.0"?><PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">'
        f"<PublishBatchResult>{failed}<Successful>{successful}</Successful>{more}</PublishBatchResult>"
        "<ResponseMetadata><RequestId>x-1</RequestId></ResponseMetadata></PublishBatchResponse>"
    )


_MEMBER = "<member><Id>0</Id><MessageId>m</MessageId><SequenceNumber>1</SequenceNumber></member>"
_SNS_FAILED = (
    "<Failed><member><Id>1</Id><Code>Invalid&amp;</Code><Message>&lt;no&gt;</Message><SenderFault>true</SenderFault>"
    "</member><member><Id>2</Id><Code>InternalError</Code><SenderFault>false</SenderFault><Message/></member></Failed>"
)
_PAGE = "<html><body>Bad gateway</body></html>"
_ERROR = '{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}'
_XML_ERROR = (
    "<ErrorResponse><Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic &lt;t&gt;</Message></Error>"
    "<RequestId>y</RequestId></ErrorResponse>"
)
ANSWERS: dict[str, tuple[bytes, End]] = {
    "json": (_http(json.dumps(_SQS_OK), "200 OK", "Content-Type: application/x-amz-json-1.0"), End.KEPT),
    "json, nothing in it": (_http("{}"), End.KEPT),
    "json, nulls": (_http('{"Messages":null,"Failed":[],"Successful":[{"Id":null}]}'), End.KEPT),
    "json, a list": (_http("[]"), End.KEPT),
    "json, a number": (_http("1"), End.KEPT),
    "json, no list": (_http('{"Messages":{"a":1}}'), End.KEPT),
    "json, bad base64": (_http(json.dumps(_SQS_OK).replace("AAH/", "A")), End.KEPT),
    "json, not utf-8": (_http(b'{"Messages":[{"Body":"\xff"}]}'), End.KEPT),
    "json, half": (_http(json.dumps(_SQS_OK)[:40]), End.KEPT),
    "xml": (_http(_publish_response(_MEMBER)), End.KEPT),
    "xml, failures": (_http(_publish_response(_MEMBER, _SNS_FAILED)), End.KEPT),
    "xml, unknown": (
        _http(_publish_response(_MEMBER.replace("<Id>", "<New>1</New><Id>"), more="<More>1</More>")),
        End.KEPT,
    ),
    "xml, one indented": (_http(_publish_response(_MEMBER + _MEMBER.replace("><", ">\n <"))), End.KEPT),
    "xml, the first indented": (_http(_publish_response(_MEMBER.replace("><", ">\n <") + _MEMBER)), End.KEPT),
    "xml, a raw >": (_http(_publish_response(_MEMBER.replace(">m<", ">m>n<"))), End.KEPT),
    "xml, two lists": (_http(_publish_response(_MEMBER, "<Failed/><Failed/>")), End.KEPT),
    "xml, not a member": (_http(_publish_response(_MEMBER.replace("member", "entry"))), End.KEPT),
    "xml, of another": (_http(_publish_response(_MEMBER).replace("PublishBatch", "Publish")), End.KEPT),
    "xml, half": (_http(_publish_response(_MEMBER)[:90]), End.KEPT),
    "xml, no metadata": (_http(_publish_response(_MEMBER).replace("ResponseMetadata", "Other")), End.KEPT),
    "refused, json": (_http(_ERROR, "400 Bad Request", "x-amzn-query-error: AWS.Old.Gone;Sender"), End.KEPT),
    "refused, new json": (_http(_ERROR, "400 Bad Request"), End.KEPT),
    "refused, xml": (_http(_XML_ERROR, "404 Not Found"), End.KEPT),
    "throttled": (_http('{"__type":"ThrottlingException"}', "400 Bad Request"), End.KEPT),
    "throttled, xml": (_http(_XML_ERROR.replace("NotFound", "Throttling"), "503 Slow"), End.KEPT),
    "server error": (_http(_ERROR.replace("QueueDoesNotExist", "InternalError"), "500 Oops"), End.KEPT),
    "server error, nothing": (_http("", "500 Oops"), End.KEPT),
    "a page": (_http(_PAGE, "502 Bad Gateway", "Content-Type: text/html"), End.CLOSED),
    "a page of 200": (_http(_PAGE), End.KEPT),
    "a page that is no xml": (_http("<!doctype html><br>", "503 Sorry"), End.KEPT),
    "nothing of 200": (_http(""), End.KEPT),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", End.CLOSED),
    "moved": (_http("", "307 Moved", "Location: http://127.0.0.1:1/"), End.KEPT),
    "301": (_http("", "301 Moved", "Location: http://127.0.0.1:1/"), End.KEPT),
    "a header twice": (_http("{}", "200 OK", "A: 1", "a: 2"), End.KEPT),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + _http("{}"), End.CLOSED),
    "closes": (_http("{}", "200 OK", "Connection: close"), End.CLOSED),
    "closes, says nothing": (_http("{}"), End.CLOSED),
    "old": (_http("{}").replace(b"1.1", b"1.0"), End.CLOSED),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\n\r\n",
        End.KEPT,
    ),
    "in chunks, cut": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", End.CLOSED),
    "without a length": (b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n" + json.dumps(_SQS_OK).encode(), End.CLOSED),
    "ends after its head": (b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n", End.CLOSED),
    "a gap after a name": (_http("{", length=2).replace(b"Length:", b"Length :"), End.CLOSED),
    "two lengths": (_http("{}", "200 OK", "Content-Length: 3"), End.CLOSED),
    "not a length": (_http("{}").replace(b"Length: 2", b"Length: x"), End.CLOSED),
    "cut": (_http(json.dumps(_SQS_OK), length=9_999), End.CLOSED),
    "cut, a refusal": (_http(_ERROR, "400 Bad", length=9_999), End.CLOSED),
    "cut in its head": (_http("{}")[:30], End.CLOSED),
    "cut in its first line": (b"HTTP/1.1 2", End.CLOSED),
    "reset in it": (_http("{}", length=9_999), End.RESET),
    "silent in it": (_http("{}", length=9_999), End.SILENT),
    "silent in its head": (b"HTTP/1.1 200 OK\r\nA", End.SILENT),
    "silent, without a length": (b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\n{", End.SILENT),
    "silent in a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", End.SILENT),
    "silent": (b"", End.SILENT),
    "closed": (b"", End.CLOSED),
    "reset": (b"", End.RESET),
    "not http": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", End.CLOSED),
    "a strange status": (_http("{}", "2x0 OK"), End.CLOSED),
    "a folded header": (_http("{}", "200 OK", "A: 1", " 2"), End.KEPT),
    "long": (_http(json.dumps({"Messages": [{"Body": "y" * 3_000_000}]})), End.KEPT),
}


@pytest.fixture(scope="module")
def server_and_clients() -> Iterator[tuple[raw_server.Server, dict[tuple[str, bool], tuple[Any, Any]]]]:
    """Yield a server and the pairs of clients by service and whether they wait for a short time only."""
    with raw_server.serving() as server:
        pairs = {
            (service, is_short): _both(service, server.url, config=sdk.config(answer_seconds=seconds))
            for service in CALLS
            for is_short, seconds in ((False, _PATIENT_SECONDS), (True, _SHORT_SECONDS))
        }
        yield server, pairs
        for client in (client for pair in pairs.values() for client in pair):
            client.close()


_CUT = ("cut", "cut, a refusal", "cut in its head", "two lengths", "not a length", "a gap after a name")
_NO_JSON = (
    *(case for case in ANSWERS if case.startswith("xml")),
    *("json, a list", "json, a number", "json, not utf-8", "json, half", "a page of 200", "ends after its head"),
)
"""Answers of 200 that are no object of JSON, of which botocore makes one that has nothing in it, or a traceback."""
_ANOTHER_FORM = ("json, no list", "json, bad base64")
"""Answers of which botocore makes a traceback of its own or of Python's."""


def _expected_result(service: str, case: str, of_boto3: Any) -> Any:
    """Return the expected result of the light client; it is stricter than boto3 with incomplete answers."""
    if case in _CUT:
        return "ConnectionClosedError"
    return "ResponseParserError" if service == "sqs" and case in (*_NO_JSON, *_ANOTHER_FORM) else of_boto3


@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_parsed_as_botocore_parses_it(
    service: str, case: str, server_and_clients: tuple[raw_server.Server, dict[tuple[str, bool], tuple[Any, Any]]]
) -> None:
    """boto3 and the light client have the same outcome of an answer, good or broken.

    The light client asks twice, because it keeps its connection. After a broken answer both clients still work.
    """
    server, pairs = server_and_clients
    server.answer, server.end = ANSWERS[case]
    is_silent = server.end is End.SILENT
    plain, fast = pairs[service, is_silent]

    outcomes = []
    for client in (plain, fast, fast):
        ended_count = server.ended_count
        outcomes.append(_outcome(client, service))
        if server.end is not End.KEPT:  # the next request could come before the connection ends, or after it
            eventually(
                partial(_has_ended, server, ended_count), timeout_seconds=30, describe="the connection has ended"
            )
    server.answer, server.end = _http(_publish_response(_MEMBER) if service == "sns" else "{}"), End.KEPT
    seconds = 30 if is_silent else 0  # a busy machine may not answer in a short time: such a client asks again
    afterwards = [
        eventually(partial(_outcome, client, service), timeout_seconds=seconds, describe="an answer", until=_is_answer)
        for client in (plain, fast)
    ]

    expected = _expected_result(service, case, outcomes[0])
    errors_or_answers = [came[0] if isinstance(expected, str) else came for came in outcomes[1:]]
    assert errors_or_answers == [expected] * 2
    assert afterwards[0] == afterwards[1]


@pytest.mark.parametrize("length", [10, None], ids=["of known length", "without a length"])
def test_a_slow_answer_is_given_up_when_its_time_is_over(length: int | None) -> None:
    """Botocore waits without a limit, but the relay's lease relies on the longest time of a call."""
    head = b"HTTP/1.1 200 OK\r\n" + (b"" if length is None else b"Content-Length: 10\r\n") + b"\r\n"
    with raw_server.serving() as server:
        server.answer, server.end = head + b"{" + b" " * 200 + b"}", End.SLOW
        client = _light("sqs", server.url, config=sdk.config(answer_seconds=_SHORT_SECONDS))
        outcome = _outcome(client, "sqs")
        client.close()

    assert outcome[0] == "ReadTimeoutError"


def test_a_request_that_is_overdue_before_it_connects_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's name, for example, was resolved too late."""
    monkeypatch.setattr(Connections, "_end", lambda _: 0.0)
    with raw_server.serving() as server:
        connections = Connections(Address.of(server.url, connect_seconds=1, answer_seconds=1), idle_max=1)
        with pytest.raises(TimeoutError):
            connections.post(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        connections.close()
        eventually(lambda: server.ended_count == 1, timeout_seconds=10, describe="the connection's end")

        assert server.requests_count == 0


def _is_answer(outcome: object) -> bool:
    return isinstance(outcome, dict)


def _has_ended(server: raw_server.Server, ended_count: int) -> bool:
    return server.ended_count > ended_count


def _outcome(client: Any, service: str) -> Any:
    name, params = CALLS[service]
    try:
        return _without_retries(getattr(client, name)(**params))
    except Exception as error:
        text = str(error).replace(" (reached max retries: 0)", "")
        return (
            type(error).__qualname__,
            type(error).__module__,
            text,
            _without_retries(getattr(error, "response", None) or {}),
        )


def _without_retries(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what the newer mode of retries says of the only try."""
    answer.get("ResponseMetadata", {}).pop("MaxAttemptsReached", None)
    return answer


@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nobody.invalid", "http://[::1]:1"])
def test_an_unreachable_endpoint_raises_the_error_of_botocore(service: str, url: str) -> None:
    plain, fast = _both(service, url)
    expected, came = _outcome(plain, service), _outcome(fast, service)

    assert came == expected
    assert came[0] == "EndpointConnectionError"


def test_a_connection_timeout_raises_the_error_of_botocore() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fill = [socket.socket() for _ in range(3)]  # they fill the kernel's queue of connections
        for unanswered in fill:
            unanswered.settimeout(0)
            unanswered.connect_ex(full.getsockname())
        url, short = f"http://127.0.0.1:{full.getsockname()[1]}", sdk.config(answer_seconds=_SHORT_SECONDS)
        outcomes = [_outcome(client, "sqs") for client in _both("sqs", url, config=short)]
        for unanswered in fill:
            unanswered.close()

    assert outcomes[1] == outcomes[0]
    assert outcomes[0][0] == "ConnectTimeoutError"


# Certificates

_OLD_ROOT = ("-subj", "/CN=Old root", "-addext", "basicConstraints=CA:TRUE", "-config", "root")


def _make_certificate(folder: Path, name: str) -> Path:
    """Return a file with a server's key and certificate; `ca.pem` is its root, as tools made them long ago."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    (folder / "root").write_text("[req]\ndistinguished_name=name\n[name]\n", encoding="ascii")
    (folder / "names").write_text(f"subjectAltName={name}\n", encoding="ascii")
    for arguments in (
        ("req", "-x509", *key, *_OLD_ROOT, "-keyout", "ca.key", "-out", "ca.pem"),
        ("req", *key, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr"),
        ("x509", "-req", "-in", "server.csr", *signed, "-out", "server.crt"),
    ):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)
    both = folder / "server.pem"
    both.write_bytes((folder / "server.key").read_bytes() + (folder / "server.crt").read_bytes())
    return both


@pytest.mark.parametrize(
    ("name", "bundles", "outcome"),
    [
        ("IP:127.0.0.1", {"AWS_CA_BUNDLE": "ca.pem"}, 200),
        ("IP:127.0.0.1", {"REQUESTS_CA_BUNDLE": "ca.pem"}, 200),
        ("IP:127.0.0.1", {"AWS_CA_BUNDLE": "ca.pem", "REQUESTS_CA_BUNDLE": "another.pem"}, 200),
        ("IP:127.0.0.1", {}, "SSLError"),
        ("DNS:another.invalid", {"AWS_CA_BUNDLE": "ca.pem"}, "SSLError"),
    ],
)
def test_a_certificate_is_accepted_where_botocore_accepts_it(
    name: str, bundles: dict[str, str], outcome: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A company's root certificate may lack fields of RFC 5280.

    Python's default then refuses it, and botocore does not.
    """
    certificate = _make_certificate(tmp_path, name)
    for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    for variable, bundle in bundles.items():
        monkeypatch.setenv(variable, str(tmp_path / bundle))
    with capturing(lambda _: Reply(), certificate=certificate) as server:
        outcomes = [_outcome(client, "sqs") for client in _both("sqs", server.url)]

    assert [_status(came) for came in outcomes] == [outcome, outcome]


def test_the_bundle_is_that_of_the_sessions_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds also if a program names the profile `default` and the environment another one."""
    certificate = _make_certificate(tmp_path, "IP:127.0.0.1")
    keys = "aws_access_key_id=a\naws_secret_access_key=b\n"
    config = tmp_path / "config"
    config.write_text(f"[default]\n{keys}ca_bundle={tmp_path / 'ca.pem'}\n[profile other]\n{keys}", encoding="ascii")
    for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "other")
    boto3.setup_default_session(profile_name="default")
    with capturing(lambda _: Reply(), certificate=certificate) as server:
        client = _open(server.url)
        outcome = _outcome(client, "sqs")

    assert isinstance(client, LightSqs)
    assert _status(outcome) == 200


def _status(came: Any) -> Any:
    return came["ResponseMetadata"]["HTTPStatusCode"] if isinstance(came, dict) else came[0]


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_unreadable_bundle_raises_the_error_of_botocore(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content, encoding="ascii")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    client = _open("https://127.0.0.1:1")

    assert isinstance(client, BaseClient)
    assert _outcome(client, "sqs") == _outcome(_client("sqs", "https://127.0.0.1:1"), "sqs")


# Parameters


def _refusal_of(params: dict[str, Any], client: Any, name: str) -> tuple[str, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (which it is, is compared)
        getattr(client, name)(**params)
    return type(caught.value).__qualname__, str(caught.value)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("receive_message", RECEIVE | {"QueueUrl": None}),
        ("receive_message", RECEIVE | {"QueueUrl": 1}),
        ("receive_message", RECEIVE | {"MaxNumberOfMessages": "1"}),
        ("receive_message", RECEIVE | {"MaxNumberOfMessages": 1.5}),
        ("receive_message", RECEIVE | {"MessageAttributeNames": "All"}),
        ("receive_message", RECEIVE | {"MessageAttributeNames": [1]}),
        ("receive_message", RECEIVE | {"Unknown": 1}),
        ("delete_message", {"QueueUrl": QUEUE}),  # the receipt handle is missing
    ],
)
def test_invalid_parameters_are_refused_by_botocore(name: str, params: dict[str, Any]) -> None:
    """The refusal is that of boto3's own client, and nothing is sent."""
    with capturing(lambda _: Reply()) as server:
        plain, fast = (_refusal_of(params, client, name) for client in _both("sqs", server.url))

    assert fast == plain
    assert plain[0] == "ParamValidationError"
    assert server.captured == []


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x01"), "text"])
def test_binary_values_are_accepted_as_botocore_accepts_them(value: object) -> None:
    attribute = {"DataType": "Binary", "BinaryValue": value}
    entry = {"Id": "0", "MessageBody": "b", "MessageAttributes": {"a": attribute}}
    with capturing(lambda _: Reply(body=b'{"Successful":[],"Failed":[]}')) as server:
        for client in _both("sqs", server.url):
            client.send_message_batch(QueueUrl=QUEUE, Entries=[entry])
            client.close()

    assert server.captured[0].body == server.captured[1].body


def test_an_answer_as_sns_writes_it_is_read_without_botocore() -> None:
    """The answer is the usual one, with SNS's line breaks and without."""
    operation = (
        boto3.Session().client("sns", region_name="eu-west-1").meta.service_model.operation_model("PublishBatch")
    )
    body = _publish_response(_MEMBER)
    indented = body.replace("><", ">\n  <")

    answers = [codec.answer(operation)(text.encode(), {}) for text in (body, indented)]

    entry = {"Id": "0", "MessageId": "m", "SequenceNumber": "1"}
    assert [(answer["Successful"], answer["Failed"]) for answer in answers] == [([entry], [])] * 2
    assert [answer["ResponseMetadata"]["RequestId"] for answer in answers] == ["x-1"] * 2


# The choice between the light client and boto3's


@pytest.fixture(autouse=True)
def environment_without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials and no proxy, and let each test have a default session of its own."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in _KEYS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def _open(url: str | None = "https://example.invalid", *, kind: str = "light", **options: Any) -> Any:
    config = sdk.config().merge(Config(**options))
    return open_client("sqs", endpoint_url=url, region="eu-west-1", config=config, kind=kind)


def _instrument(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((BaseClient, "_make_api_call"), (Endpoint, "prepare_request")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # what is put back afterwards
    instrumentor = BotocoreInstrumentor()  # type: ignore[no-untyped-call]
    monkeypatch.setattr(instrumentor, "_is_instrumented_by_opentelemetry", False)
    instrumentor.instrument()


def _log_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("botocore"), "level", logging.DEBUG)
    logging.getLogger("botocore")._cache.clear()  # type: ignore[attr-defined] # of levels


def _set_variable(name: str, value: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "configure",
    [
        _instrument,
        _log_debug,
        _set_variable("HTTPS_PROXY", "http://127.0.0.1:9"),
        _set_variable("AWS_RETRY_MODE", "adaptive"),
        _set_variable("AWS_USE_FIPS_ENDPOINT", "true"),
        _set_variable("AWS_AUTH_SCHEME_PREFERENCE", "sigv4a"),
        _set_variable("AWS_LAMBDA_FUNCTION_NAME", "f"),
        _set_variable("SLUICE_RECORD", "folder"),
    ],
)
def test_a_program_that_needs_boto3s_hooks_is_given_its_client(
    configure: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_light_before = isinstance(_open(None), LightSqs)
    configure(monkeypatch)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    client = _open(None)
    monkeypatch.undo()
    logging.getLogger("botocore")._cache.clear()  # type: ignore[attr-defined] # of levels

    assert is_light_before
    assert isinstance(client, BaseClient)


@pytest.mark.parametrize(
    "options",
    [
        {"proxies": {"https": "http://127.0.0.1:9"}},
        {"client_cert": "cert.pem"},
        {"signature_version": "bearer"},
        {"kind": BOTO3},
    ],
)
def test_a_configuration_that_the_light_client_lacks_needs_boto3(options: dict[str, Any]) -> None:
    assert isinstance(_open(**options), BaseClient)


@pytest.mark.parametrize(
    ("paths", "kind"),
    [(["", "/", "/a/b/", "/a%20b"], LightSqs), (["//", "/a//b", "/a/../b", "/./", "/a b", "/ü"], BaseClient)],
)
def test_a_path_that_is_normalised_before_signing_needs_boto3(paths: list[str], kind: type) -> None:
    """SigV4 signs the second paths in another form than the one that is sent."""
    clients = {path: _open(f"https://example.invalid{path}") for path in paths}

    assert [path for path, client in clients.items() if not isinstance(client, kind)] == []


def test_a_saboteur_cannot_be_attached_to_a_light_client() -> None:
    """A recorder or a saboteur would miss its calls, and say nothing."""
    with pytest.raises(AttributeError, match="events"):
        sabotage([_open()], "drop-messages")


@pytest.mark.parametrize("service", ["sns", "sqs"])
def test_requests_go_where_boto3_sends_them_in_every_region(service: str) -> None:
    """The endpoint's URL is read from the client's `meta`; the rules for endpoints have the last word in botocore."""
    session = boto3.Session()
    regions = {
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions(service, partition)
    }
    name, params = CALLS[service]
    differing = {}
    for region in sorted(regions):
        client = session.client(service, region_name=region, config=sdk.config())
        kept: list[AWSPreparedRequest] = []
        client.meta.events.register("before-send", lambda request, kept=kept, **_: _keep(kept, request))
        with suppress(ClientError):
            getattr(client, name)(**params)
        if urlsplit(kept[0].url)[:2] != urlsplit(client.meta.endpoint_url)[:2]:
            differing[region] = (kept[0].url, client.meta.endpoint_url)

    assert differing == {}


def test_missing_credentials_raise_the_error_of_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    assert _outcome(_open(), "sqs")[0] == "NoCredentialsError"


def test_credentials_are_read_for_each_call() -> None:
    session = boto3.Session(**_KEYS)
    with capturing(lambda _: Reply()) as server:
        client = LightSqs(_client("sqs", server.url), session)
        client.receive_message(**RECEIVE)
        session.get_credentials().access_key = "ANOTHER"
        client.receive_message(**RECEIVE)
        client.close()

    assert ["Credential=ANOTHER/" in request.headers["authorization"] for request in server.captured] == [False, True]


def test_an_empty_session_token_counts_as_no_token() -> None:
    """A file of credentials may contain an empty token; botocore sends none, and AWS refuses an empty one."""
    session = boto3.Session(**_KEYS | {"aws_session_token": ""})
    with capturing(lambda _: Reply()) as server:
        client = LightSqs(_client("sqs", server.url), session)
        client.receive_message(**RECEIVE)
        client.close()

    assert "x-amz-security-token" not in server.captured[0].headers


def test_threads_have_a_connection_each() -> None:
    """The server answers no request before it has twelve; the pool keeps only four idle connections."""
    everybody = threading.Barrier(12)

    def reply(_: CapturedRequest) -> Reply:
        everybody.wait(20)
        return Reply()

    with capturing(reply) as server:
        client = _light("sqs", server.url, config=sdk.config(answer_seconds=20, connections=4))
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda _: client.receive_message(**RECEIVE), range(24)))
        client.close()

    assert {answer["ResponseMetadata"]["HTTPStatusCode"] for answer in answers} == {200}


def test_a_forked_child_has_connections_of_its_own() -> None:
    """Over a shared connection, parent and child would get each other's answers."""
    request = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    with raw_server.serving() as server:
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        connections = Connections(Address.of(server.url, connect_seconds=5, answer_seconds=5), idle_max=1)
        connections.post(request)
        with warnings.catch_warnings(action="ignore"):  # that threads and fork do not go together
            child = os.fork()
        if child == 0:
            os._exit(0 if connections.post(request).status == 200 else 1)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        eventually(lambda: server.ended_count == 1, timeout_seconds=10, describe="the child's connection to end")
        assert connections.post(request).body == b"{}"
        connections.close()


def test_the_light_client_works_with_the_simulators_server() -> None:
    with fake_aws.running() as endpoint:
        plain, fast = _both("sqs", endpoint.url)
        url = plain.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        entries = [{"Id": "0", "MessageBody": "ü", "MessageGroupId": "g", "MessageDeduplicationId": "d"}]

        sent = fast.send_message_batch(QueueUrl=url, Entries=entries)
        (message,) = fast.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])["Messages"]
        gone = fast.delete_message_batch(
            QueueUrl=url,
            Entries=[{"Id": "0", "ReceiptHandle": message["ReceiptHandle"]}, {"Id": "1", "ReceiptHandle": "no"}],
        )
        with pytest.raises(plain.exceptions.QueueDoesNotExist):
            plain.receive_message(QueueUrl=f"{url}x")
        with pytest.raises(fast.exceptions.QueueDoesNotExist):
            fast.receive_message(QueueUrl=f"{url}x")
        plain.close()
        fast.close()

    assert [entry["Id"] for entry in sent["Successful"]] == ["0"]
    assert message["Body"] == "ü"
    assert message["Attributes"]["MessageGroupId"] == "g"
    assert [entry["Id"] for entry in gone["Successful"]] == ["0"]
    assert [entry["Id"] for entry in gone["Failed"]] == ["1"]


def test_the_light_client_sends_dead_events_to_the_dlq() -> None:
    """Sending one is no hot call: boto3's client does it, as any other."""
    with fake_aws.running() as endpoint:
        plain, fast = _both("sqs", endpoint.url)
        fifo = {"FifoQueue": "true"}
        dlq_url = plain.create_queue(QueueName="dlq.fifo", Attributes=fifo)["QueueUrl"]
        arn = plain.get_queue_attributes(QueueUrl=dlq_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 9})}
        url = plain.create_queue(QueueName="q.fifo", Attributes=fifo | policy)["QueueUrl"]
        plain.send_message(QueueUrl=url, MessageBody="{}", MessageGroupId="g", MessageDeduplicationId="d")
        received = Queue(fast, url).receive(attempt_id=None, wait_seconds=0)
        assert received is not None

        is_sent = DeadLetterSender(Queue(fast, url)).send(received, body="dead", deduplication_id="d.0")
        (dead,) = plain.receive_message(QueueUrl=dlq_url)["Messages"]
        plain.close()
        fast.close()

    assert is_sent
    assert dead["Body"] == "dead"


def test_an_unknown_kind_of_client_is_refused() -> None:
    with pytest.raises(ConfigError, match="client is 'bot3', allowed are light and boto3"):
        _open(kind="bot3")
