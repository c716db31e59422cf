"""The light client: on the wire as boto3's, with the same answers and errors, and botocore's own where it must be."""

import json
import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.endpoint import Endpoint
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.instrumentation.botocore import BotocoreInstrumentor

from sluice import sdk
from sluice.aws.client import OPERATIONS, fast_client, is_fast
from sluice.aws.connections import Connections, Route
from sluice.clock import eventually
from sluice.saboteurs import sabotage
from sluice.simulator.hook import Simulator
from tests.support.endpoints import fake_aws, raw_server
from tests.support.endpoints.capturing_server import Captured, Reply, capturing
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
_KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "wJalr/x+y", "aws_session_token": "t0/k"}


def _client(service: str, url: str, *, config: Config | None = None, **options: Any) -> Any:
    config = sdk.config(answer_seconds=_PATIENT_SECONDS) if config is None else config
    return boto3.Session(**_KEYS).client(service, endpoint_url=url, region_name="eu-west-1", config=config, **options)


def _both(service: str, url: str, **options: Any) -> tuple[Any, Any]:
    """Return a plain client, and a light one."""
    fast = fast_client(_client(service, url, **options))
    assert is_fast(fast, "PublishBatch" if service == "sns" else "ReceiveMessage")
    return _client(service, url, **options), fast


# What is sent

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
def pairs() -> dict[str, tuple[Any, Any]]:
    """Return clients whose requests never leave: what the plain ones would send is in `kept`."""
    found = {service: _both(service, "https://example.invalid/a%20b") for service in ("sns", "sqs")}
    for plain, _ in found.values():
        plain.kept = []
        plain.meta.events.register("before-send", lambda request, kept=plain.kept, **_: _keep(kept, request))
    return found


def _keep(kept: list[AWSPreparedRequest], request: AWSPreparedRequest) -> AWSResponse:
    kept.append(request)
    response = AWSResponse(request.url, 500, {}, None)
    response._content = b""
    return response


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_request_is_the_one_botocore_sends(
    operation: str, pairs: dict[str, tuple[Any, Any]], data: st.DataObject
) -> None:
    plain, fast = pairs["sns" if operation == "PublishBatch" else "sqs"]
    params = data.draw(st.fixed_dictionaries(PARAMS[operation]))
    with suppress(ClientError):
        plain._make_api_call(operation, params)
    expected = plain.kept.pop()

    call = fast._sluice_calls.find(operation)
    head, _, body = call.signer.request(call.encode(params)).partition(b"\r\n\r\n")

    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /a%20b HTTP/1.1"
    assert _meaning(headers) == _meaning({name.lower(): _text(its) for name, its in expected.headers.items()})
    assert body == (expected.body if isinstance(expected.body, bytes) else expected.body.encode())
    assert headers["host"] == "example.invalid"
    assert headers["authorization"].endswith(_signature("sns" if plain is pairs["sns"][0] else "sqs", headers, body))


def _text(header: Any) -> str:
    return header.decode() if isinstance(header, bytes) else str(header)


def _meaning(headers: dict[str, str]) -> dict[str, str]:
    only_once = ("x-amz-date", "authorization", "host", "accept-encoding", "amz-sdk-request", "amz-sdk-invocation-id")
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0]
    return {name: value for name, value in headers.items() if name not in only_once} | {"signed": signed}


def _signature(service: str, headers: dict[str, str], body: bytes) -> str:
    names = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest(
        "POST", "https://example.invalid/a%20b", headers={name: headers[name] for name in names}, data=body
    )
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", "wJalr/x+y"), service, "eu-west-1")
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))


# What is answered

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


def _published(successful: str, failed: str = "<Failed/>", more: str = "") -> str:
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
    "xml": (_http(_published(_MEMBER)), End.KEPT),
    "xml, failures": (_http(_published(_MEMBER, _SNS_FAILED)), End.KEPT),
    "xml, unknown": (_http(_published(_MEMBER.replace("<Id>", "<New>1</New><Id>"), more="<More>1</More>")), End.KEPT),
    "xml, two lists": (_http(_published(_MEMBER, "<Failed/><Failed/>")), End.KEPT),
    "xml, not a member": (_http(_published(_MEMBER.replace("member", "entry"))), End.KEPT),
    "xml, of another": (_http(_published(_MEMBER).replace("PublishBatch", "Publish")), End.KEPT),
    "xml, half": (_http(_published(_MEMBER)[:90]), End.KEPT),
    "xml, no metadata": (_http(_published(_MEMBER).replace("ResponseMetadata", "Other")), End.KEPT),
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
def served() -> Iterator[tuple[raw_server.Server, dict[tuple[str, bool], tuple[Any, Any]]]]:
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


@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_means_what_botocore_makes_of_it(
    service: str, case: str, served: tuple[raw_server.Server, dict[tuple[str, bool], tuple[Any, Any]]]
) -> None:
    server, pairs = served
    server.answer, server.end = ANSWERS[case]
    is_silent = server.end is End.SILENT
    plain, fast = pairs[service, is_silent]

    outcomes = []
    for client in (plain, fast, fast):
        ended_count = server.ended_count
        outcomes.append(_outcome(client, service))
        if server.end is not End.KEPT:  # who is faster, the next request or the end, is nobody's promise
            eventually(
                partial(_has_ended, server, ended_count), timeout_seconds=30, describe="the connection has ended"
            )
    server.answer, server.end = _http(_published(_MEMBER) if service == "sns" else "{}"), End.KEPT
    seconds = 30 if is_silent else 0  # a busy machine may not answer in a short time: such a client asks again
    afterwards = [
        eventually(partial(_outcome, client, service), timeout_seconds=seconds, describe="an answer", until=_is_answer)
        for client in (plain, fast)
    ]

    assert outcomes[1:] == [outcomes[0]] * 2
    assert afterwards[0] == afterwards[1]


@pytest.mark.parametrize("length", [10, None], ids=["of known length", "without a length"])
def test_an_answer_that_comes_byte_by_byte_is_given_up_when_its_time_is_over(length: int | None) -> None:
    """Botocore waits as long as it takes. The relay's lease goes by how long a call may take."""
    head = b"HTTP/1.1 200 OK\r\n" + (b"" if length is None else b"Content-Length: 10\r\n") + b"\r\n"
    with raw_server.serving() as server:
        server.answer, server.end = head + b"{" + b" " * 200 + b"}", End.SLOW
        client = fast_client(_client("sqs", server.url, config=sdk.config(answer_seconds=_SHORT_SECONDS)))
        outcome = _outcome(client, "sqs")
        client.close()

    assert outcome[0] == "ReadTimeoutError"


def test_a_request_whose_time_is_over_before_there_is_a_connection_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is resolved too late, for one."""
    with raw_server.serving() as server:
        address = urlsplit(server.url)
        route = Route(host=str(address.hostname), port=address.port or 0, connect_seconds=1, answer_seconds=1, tls=None)
        monkeypatch.setattr(Route, "ends_at", lambda _: 0.0)
        connections = Connections(route, idle_max=1)
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
        return getattr(client, name)(**params)
    except Exception as error:
        text = str(error) if not isinstance(error, ssl.SSLError) else ""
        return type(error).__qualname__, type(error).__module__, text, getattr(error, "response", None)


@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nobody.invalid", "http://[::1]:1"])
def test_nobody_there_is_what_botocore_says(service: str, url: str) -> None:
    plain, fast = _both(service, url)
    expected, came = _outcome(plain, service), _outcome(fast, service)

    assert came == expected
    assert came[0] == "EndpointConnectionError"


def test_a_connection_that_is_not_taken_is_what_botocore_says() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fill = [socket.socket() for _ in range(3)]
        for unanswered in fill:
            unanswered.settimeout(0)
            unanswered.connect_ex(full.getsockname())
        url, short = f"http://127.0.0.1:{full.getsockname()[1]}", sdk.config(answer_seconds=_SHORT_SECONDS)
        outcomes = [_outcome(client, "sqs") for client in _both("sqs", url, config=short)]
        for unanswered in fill:
            unanswered.close()

    assert outcomes[1] == outcomes[0]
    assert outcomes[0][0] == "ConnectTimeoutError"


# Whom it trusts

_OLD_ROOT = ("-subj", "/CN=Old root", "-addext", "basicConstraints=CA:TRUE", "-config", "root")


def _certified(folder: Path, name: str) -> Path:
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


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize(
    ("name", "bundle", "outcome"),
    [
        ("IP:127.0.0.1", "ca.pem", 200),
        ("IP:127.0.0.1", None, "SSLError"),
        ("DNS:another.invalid", "ca.pem", "SSLError"),
        ("DNS:another.invalid", False, 200),
    ],
)
def test_a_certificate_is_taken_where_botocore_takes_it(
    name: str, bundle: object, outcome: object, tmp_path: Path
) -> None:
    """A company's root may lack what RFC 5280 asks for, and Python's own default then refuses it; botocore does not."""
    certificate = _certified(tmp_path, name)
    verify = str(tmp_path / bundle) if isinstance(bundle, str) else bundle
    with capturing(lambda _: Reply(), certificate=certificate) as server:
        outcomes = [_outcome(client, "sqs") for client in _both("sqs", server.url, verify=verify)]

    assert [_status(came) for came in outcomes] == [outcome, outcome]


def _status(came: Any) -> Any:
    return came["ResponseMetadata"]["HTTPStatusCode"] if isinstance(came, dict) else came[0]


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_bundle_that_cannot_be_read_is_what_botocore_says(content: str | None, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    if content is not None:
        bundle.write_text(content, encoding="ascii")
    plain, fast = (_client("sqs", "https://127.0.0.1:1", verify=str(bundle)) for _ in range(2))

    assert _outcome(fast_client(fast), "sqs") == _outcome(plain, "sqs")


# When botocore does it


def _refused(params: dict[str, Any], client: Any, name: str) -> tuple[str, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (which it is, is compared)
        getattr(client, name)(**params)
    return type(caught.value).__qualname__, str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"QueueUrl": None},
        {"QueueUrl": 1},
        {"MaxNumberOfMessages": "1"},
        {"MaxNumberOfMessages": 1.5},
        {"MessageAttributeNames": "All"},
        {"MessageAttributeNames": [1]},
        {"Unknown": 1},
    ],
)
def test_parameters_that_botocore_refuses_are_refused_by_it(changed: dict[str, Any]) -> None:
    _check_refused("receive_message", RECEIVE | changed)


def test_a_parameter_that_is_missing_is_refused_by_botocore() -> None:
    _check_refused("delete_message", {"QueueUrl": QUEUE})


def _check_refused(name: str, params: dict[str, Any]) -> None:
    """Check that botocore refuses a call of both clients alike, and nothing is sent."""
    with capturing(lambda _: Reply()) as server:
        plain, fast = (_refused(params, client, name) for client in _both("sqs", server.url))

    assert fast == plain
    assert plain[0] == "ParamValidationError"
    assert server.captured == []


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x01"), "text"])
def test_what_botocore_takes_for_binary_is_taken(value: object) -> None:
    attribute = {"DataType": "Binary", "BinaryValue": value}
    entry = {"Id": "0", "MessageBody": "b", "MessageAttributes": {"a": attribute}}
    with capturing(lambda _: Reply(body=b'{"Successful":[],"Failed":[]}')) as server:
        for client in _both("sqs", server.url):
            client.send_message_batch(QueueUrl=QUEUE, Entries=[entry])
            client.close()

    assert server.captured[0].body == server.captured[1].body


def _listens(client: Any, _: pytest.MonkeyPatch) -> None:
    client.meta.events.register("before-send.sqs", lambda **_: None)


def _stubbed(client: Any, _: pytest.MonkeyPatch) -> None:
    Stubber(client).activate()


def _sabotaged(client: Any, _: pytest.MonkeyPatch) -> None:
    sabotage((client, client), "drop-messages", every=1)


def _simulated(client: Any, _: pytest.MonkeyPatch) -> None:
    Simulator().attach(client)


def _wrapped(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *_: {"wrapped": True})


def _instrumented(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    instrumentor = BotocoreInstrumentor()  # type: ignore[no-untyped-call]
    for name in ("_make_api_call",):
        monkeypatch.setattr(BaseClient, name, getattr(BaseClient, name))  # what is put back afterwards
    monkeypatch.setattr(Endpoint, "prepare_request", Endpoint.prepare_request)
    instrumentor.instrument()


def _debugged(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("botocore"), "level", logging.DEBUG)
    logging.getLogger("botocore")._cache.clear()  # type: ignore[attr-defined] # of levels


@pytest.mark.parametrize("listen", [_listens, _stubbed, _sabotaged, _simulated, _wrapped, _instrumented, _debugged])
def test_where_somebody_listens_botocore_does_it(
    listen: Callable[[Any, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = fast_client(_client("sqs", "https://example.invalid"))
    assert is_fast(client, "ReceiveMessage")

    listen(client, monkeypatch)
    is_fast_meanwhile = is_fast(client, "ReceiveMessage")
    monkeypatch.undo()
    logging.getLogger("botocore")._cache.clear()  # type: ignore[attr-defined] # of levels

    assert not is_fast_meanwhile


def test_who_listens_no_longer_does_not_slow_it() -> None:
    client = fast_client(_client("sqs", "https://example.invalid"))

    def listener(**_: Any) -> None:
        """Do nothing."""

    client.meta.events.register("before-send.sqs", listener)
    was_fast = is_fast(client, "ReceiveMessage")
    client.meta.events.unregister("before-send.sqs", listener)

    assert (was_fast, is_fast(client, "ReceiveMessage")) == (False, True)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": {"total_max_attempts": 2}},
        {"retries": {"total_max_attempts": 1, "mode": "adaptive"}},
        {"proxies": {"https": "http://127.0.0.1:9"}},
        {"client_cert": "cert.pem"},
        {"signature_version": "bearer"},
    ],
)
def test_what_is_configured_otherwise_stays_botocores(options: dict[str, Any]) -> None:
    config = Config(**({"retries": {"total_max_attempts": 1}} | options))

    assert not is_fast(fast_client(_client("sqs", "https://example.invalid", config=config)), "ReceiveMessage")


@pytest.mark.parametrize("path", ["", "/", "/a/b/", "/a%20b"])
def test_a_path_that_is_signed_as_it_is_written_is_no_hindrance(path: str) -> None:
    client = fast_client(_client("sqs", f"https://example.invalid{path}"))

    assert is_fast(client, "ReceiveMessage")


@pytest.mark.parametrize("path", ["//", "/a//b", "/a/../b", "/./", "/a b", "/ü"])
def test_a_path_that_is_signed_otherwise_than_it_is_written_stays_botocores(path: str) -> None:
    client = fast_client(_client("sqs", f"https://example.invalid{path}"))

    assert not is_fast(client, "ReceiveMessage")


def test_no_credentials_are_what_botocore_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    client = boto3.Session().client("sqs", region_name="eu-west-1", config=sdk.config())

    assert _outcome(fast_client(client), "sqs")[0] == "NoCredentialsError"


@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_how_botocore_would_retry_shows_in_the_answer_alike(mode: str) -> None:
    config = Config(retries={"total_max_attempts": 1, "mode": mode})
    with capturing(lambda _: Reply()) as server:
        plain, fast = _both("sqs", server.url, config=config)
        answers = [client.receive_message(**RECEIVE) for client in (plain, fast)]
        plain.close()
        fast.close()

    for answer in answers:
        del answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert answers[0] == answers[1]


def test_credentials_are_read_for_each_call() -> None:
    with capturing(lambda _: Reply()) as server:
        client = fast_client(_client("sqs", server.url))
        client.receive_message(**RECEIVE)
        client._request_signer._credentials.access_key = "ANOTHER"
        client.receive_message(**RECEIVE)
        client.close()

    assert ["Credential=ANOTHER/" in request.headers["authorization"] for request in server.captured] == [False, True]


def test_threads_have_a_connection_each() -> None:
    """The server answers nobody until all have asked."""
    everybody = threading.Barrier(12)

    def reply(_: Captured) -> Reply:
        everybody.wait(20)
        return Reply()

    with capturing(reply) as server:
        client = fast_client(_client("sqs", server.url, config=sdk.config(answer_seconds=20, connections=4)))
        with ThreadPoolExecutor(12) as threads:
            answers = list(threads.map(lambda _: client.receive_message(**RECEIVE), range(24)))
        client.close()

    assert {answer["ResponseMetadata"]["HTTPStatusCode"] for answer in answers} == {200}


def test_a_client_stays_what_it_was() -> None:
    client = _client("sqs", "https://example.invalid")

    assert fast_client(client) is client
    assert fast_client(client) is client
    assert isinstance(client, BaseClient)
    assert type(client).__name__ == "SQS"
    assert client.meta.service_model.service_name == "sqs"


def test_a_client_of_another_service_and_what_is_none_stay_what_they_were() -> None:
    sts, other = _client("sts", "https://example.invalid"), object()

    assert fast_client(sts) is sts
    assert not is_fast(sts, "GetCallerIdentity")
    assert fast_client(other) is other


def test_the_simulators_server_answers_alike() -> None:
    with fake_aws.running() as endpoint:
        plain, fast = (_client("sqs", endpoint.url) for _ in range(2))
        fast = fast_client(fast)
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
    assert (message["Body"], message["Attributes"]["MessageGroupId"]) == ("ü", "g")
    assert [entry["Id"] for entry in gone["Successful"]] == ["0"]
    assert [entry["Id"] for entry in gone["Failed"]] == ["1"]
