"""All transports send the same requests, write the same history, and record every intent before they send."""

import errno
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import accumulate, chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import boto3
import numpy as np
import pytest
from botocore.config import Config

from sluice.clock import SystemClock, utc, wall_us
from sluice.errors import ConfigError
from sluice.recorder.journal import Journal, read_journal
from sluice.recorder.recorder import Recorder
from spark_load.plan.plan import BodyTemplate
from spark_load.publish.transport import NAMES, OutgoingMessages, Transport, TransportAnswer, TransportCall
from spark_load.publish.transport.ledger import Ledger
from spark_load.publish.transport.opening import choose_transport, open_transport
from tests.support.endpoints.capturing_server import CapturedRequest, Reply, capturing

TOPIC = "arn:aws:sns:us-east-1:000000000000:t.fifo"
QUEUE = "http://localhost:4566/000000000000/q.fifo"
ADDRESSES = {"sns": TOPIC, "sqs": QUEUE}
BODY = BodyTemplate('{"run":"r","group":"g000001","idx":', ',"text":"ü"}')
NO_JSON = BodyTemplate("ü ", "")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set temporary credentials, so that the session token is signed, too."""
    for name, value in (
        ("ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("SECRET_ACCESS_KEY", "wJalr/x+y"),
        ("SESSION_TOKEN", "t0/k"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of whoever came first


@contextmanager
def _open(name: str, service: str, url: str, folder: Path, answer_seconds: float = 60) -> Iterator[Transport]:
    client = boto3.client(
        service,
        endpoint_url=url,
        region_name="eu-west-1",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=answer_seconds),
    )
    clock = SystemClock()
    with Journal(folder, name, common={"run": "r", "worker": "w"}, clock=clock) as journal:
        recorder = Recorder(journal, names={TOPIC: "t", QUEUE: "q"}, clock=clock)
        recorder.attach(client)
        ledger = Ledger(journal, names={TOPIC: "t", QUEUE: "q"}, run="r", service=service)
        transport = open_transport(name, client, recorder=recorder, ledger=ledger, clock=clock)
        try:
            yield transport
        finally:
            transport.close()


def _send(transport: Transport, *calls: TransportCall) -> list[TransportAnswer]:
    transport.send(calls)
    answers: list[TransportAnswer] = []
    while len(answers) < len(calls):
        answers += transport.answers(1)
    return answers


def _calls(address: str, *calls: Sequence[str], template: BodyTemplate = BODY) -> list[TransportCall]:
    """Return calls whose messages have these values in their bodies, numbered from 0."""
    values = list(chain.from_iterable(calls))
    count = len(values)
    messages = OutgoingMessages(
        idx=np.arange(count),
        publish_attempt=np.ones(count, np.int32),
        intended_at_us=np.full(count, 5_000),
        message_group_ids=["g000001"] * count,
        deduplication_ids=[f"r.{number}" for number in range(count)],
        phase="measure",
        template=template,
        values=[values],
    )
    ends = accumulate(map(len, calls))
    return [TransportCall(address, messages, end - len(call), end) for call, end in zip(calls, ends, strict=True)]


def _accepted_answer(request: CapturedRequest) -> Reply:
    if "x-amz-target" in request.headers:
        ids = [entry["Id"] for entry in json.loads(request.body)["Entries"]]
        taken = [{"Id": id_, "MessageId": f"m-{id_}", "SequenceNumber": f"1884949646046769612{id_}"} for id_ in ids]
        return Reply(body=json.dumps({"Successful": taken, "Failed": []}).encode())
    ids = [value for name, value in parse_qsl(request.body.decode()) if name.endswith(".Id")]
    return Reply(
        body=_publish_answer(
            "".join(_xml_member(Id=id_, MessageId=f"m-{id_}", SequenceNumber=f"1000{id_}") for id_ in ids)
        )
    )


def _xml_member(**fields: str) -> str:
    return f"<member>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in fields.items())}</member>"


def _publish_answer(successful: str, failed: str = "") -> bytes:
    return (
        '<?xml version="1.0"?><PublishBatchResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">'
        f"<PublishBatchResult><Failed>{failed}</Failed><Successful>{successful}</Successful></PublishBatchResult>"
        "<ResponseMetadata><RequestId>x</RequestId></ResponseMetadata></PublishBatchResponse>"
    ).encode()


AWKWARD = BodyTemplate('a "b" \\ & + = %41 %s ~ \0ü\u2028\x7f😀\r\n\t', "<x>;/?:@,$'-_.*" + "y" * 120_000)


@pytest.mark.parametrize("service", ["sns", "sqs"])
def test_all_transports_send_the_same_request(tmp_path: Path, service: str) -> None:
    """Bodies with awkward characters are escaped alike, and each request is signed with a current time."""
    lines = []
    with capturing(_accepted_answer) as server:
        for name in NAMES:
            with _open(name, service, server.url, tmp_path) as transport:
                _send(transport, *_calls(ADDRESSES[service], ["aB3-_.~", "-7"], template=AWKWARD))
            came = server.captured.pop()
            signed_at = datetime.strptime(f"{came.headers['x-amz-date']}+0000", "%Y%m%dT%H%M%SZ%z")
            assert abs(signed_at - utc(wall_us())) < timedelta(minutes=1), name
            lines.append(_request_fields(came))

    assert lines[0]["path"] == "/"
    assert lines[0]["headers"]["x-amz-security-token"] == "t0/k"
    assert lines[1:] == [lines[0]] * (len(NAMES) - 1)


def _request_fields(request: CapturedRequest) -> dict[str, Any]:
    """Return what a request means: without headers that only an SDK sends, and the body decoded."""
    by_sdk_only = ("user-agent", "amz-sdk-", "accept", "x-amz-date", "authorization", "content-length", "connection")
    is_json = "x-amz-target" in request.headers
    return {
        "method": request.method,
        "path": request.path,
        "headers": {name: value for name, value in request.headers.items() if not name.startswith(by_sdk_only)},
        "signed": request.headers["authorization"].split("SignedHeaders=")[1].split(",")[0],
        "body": json.loads(request.body) if is_json else parse_qsl(request.body.decode(), keep_blank_values=True),
    }


def _partly_failed_sqs_answer(_: CapturedRequest) -> Reply:
    answer = {
        "Successful": [{"Id": "1", "MessageId": "m", "SequenceNumber": "12"}],
        "Failed": [
            {"Id": "0", "Code": "InvalidParameterValue", "SenderFault": True},
            {"Id": "2", "Code": "InternalError", "SenderFault": False},
        ],
    }
    return Reply(body=json.dumps(answer).encode())


def _partly_failed_sns_answer(_: CapturedRequest) -> Reply:
    failed = _xml_member(Code="Invalid&Parameter", Message="<no>", Id="0", SenderFault="true")
    failed += _xml_member(Code="InternalError", Id="2", SenderFault="false")
    return Reply(body=_publish_answer(_xml_member(MessageId="m", Id="1", SequenceNumber="12"), failed))


def _refused_answer(status: int, code: str) -> Callable[[CapturedRequest], Reply]:
    def refuse(request: CapturedRequest) -> Reply:
        if "x-amz-target" in request.headers:
            headers = (("x-amzn-query-error", f"AWS.SimpleQueueService.{code};Sender"),) if code == "Gone" else ()
            return Reply(status, json.dumps({"__type": f"com.amazonaws.sqs#{code}"}).encode(), headers)
        return Reply(status, f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>".encode())

    return refuse


REPLIES: dict[str, Callable[[CapturedRequest], Reply]] = {
    "taken": _accepted_answer,
    "refused": _refused_answer(400, "Gone"),
    "throttled": _refused_answer(400, "ThrottlingException"),
    "unavailable": _refused_answer(503, "ServiceUnavailable"),
    "nothing": lambda _: Reply(500, b""),
    "a page": lambda _: Reply(502, b"<html>Bad gateway</html>"),
    "cut off": lambda _: Reply(0),
}


@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("case", [*REPLIES, "partly", "nobody", "no JSON"])
def test_all_transports_write_the_same_history(tmp_path: Path, service: str, case: str) -> None:
    """For each kind of answer: accepted, refused, throttled, partly failed, no HTTP at all."""
    reply = {"partly": _partly_failed_sns_answer if service == "sns" else _partly_failed_sqs_answer}.get(
        case
    ) or REPLIES.get(case, _accepted_answer)
    template = NO_JSON if case == "no JSON" else BODY
    with capturing(reply) as server:
        url = f"http://127.0.0.1:{_closed_port()}" if case == "nobody" else server.url
        histories, rows = zip(*(_written_rows(name, service, url, tmp_path, template) for name in NAMES), strict=True)

    assert [row["idx"] for row in rows[0]] == [0, 1, 2]
    assert rows[1:] == (rows[0],) * (len(NAMES) - 1)
    assert histories[1:] == (histories[0],) * (len(NAMES) - 1)


def _written_rows(
    name: str, service: str, url: str, folder: Path, template: BodyTemplate
) -> tuple[dict[int, str], list[dict[str, Any]]]:
    with _open(name, service, url, folder) as transport:
        answers = _send(transport, *_calls(ADDRESSES[service], "012", template=template))
    rows = read_journal(folder / f"{name}.arrows").to_pylist()[1:-1]
    return dict(answers[0].errors), [_without_times(row) for row in rows]


def _without_times(row: dict[str, Any]) -> dict[str, Any]:
    is_answered = row["responded_at_us"] is not None and row["responded_at_us"] >= row["invoked_at_us"]
    return row | {"call_id": "", "invoked_at_us": 0, "responded_at_us": is_answered}


def _closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
    return port


_GARBLED: dict[str, tuple[int, bytes]] = {
    "a null entry": (200, b'{"Successful":[null]}'),
    "a number for an entry": (200, b'{"Successful":[1]}'),
    "no list": (200, b'{"Successful":{"a":1}}'),
    "a list for an id": (200, b'{"Successful":[{"Id":["0"]}]}'),
    "compressed": (202, b"\x1f\x8b\x00"),
    "a refusal that is a list": (400, b"[]"),
    "a refusal that is not UTF-8": (503, b"\x8b"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", _GARBLED)
def test_after_a_garbled_answer_each_outcome_is_unknown(tmp_path: Path, case: str, name: str) -> None:
    """The messages may have been accepted. The history records `info`, which means unknown."""
    status, body = _GARBLED[case]
    with capturing(lambda _: Reply(status, body)) as server:
        errors, rows = _written_rows(name, "sqs", server.url, tmp_path, BODY)

    assert set(errors) == {0, 1, 2}
    assert set(errors.values()) <= {"NotInAnswer", "ResponseParserError"}
    assert {row["outcome"] for row in rows} == {"info"}


@pytest.mark.parametrize("name", NAMES)
def test_every_intent_is_on_disk_before_the_call_leaves(tmp_path: Path, name: str) -> None:
    """A publisher that dies in the call leaves a record of what may have been sent."""
    seen: list[list[tuple[int, str]]] = []

    def look(request: CapturedRequest) -> Reply:
        journal = read_journal(tmp_path / f"{name}.arrows").to_pylist()
        ids = [entry["MessageDeduplicationId"] for entry in json.loads(request.body)["Entries"]]
        seen.append([(row["idx"], row["outcome"]) for row in journal if row["deduplication_id"] in ids])
        return _accepted_answer(request)

    with capturing(look) as server, _open(name, "sqs", server.url, tmp_path) as transport:
        _send(transport, *_calls(QUEUE, "ab", "cd"))

    assert sorted(seen) == [[(0, "info"), (1, "info")], [(2, "info"), (3, "info")]]


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_is_reused_until_the_server_closes_it(tmp_path: Path, name: str) -> None:
    ends = iter([False, False, True, False, False, False])

    def reply(request: CapturedRequest) -> Reply:
        return _accepted_answer(request)._replace(headers=(("Connection", "close"),) if next(ends) else ())

    with capturing(reply) as server, _open(name, "sqs", server.url, tmp_path) as transport:
        answers = [_send(transport, *_calls(QUEUE, "a"))[0].errors for _ in range(6)]

    assert answers == [{}] * 6


def test_the_transport_by_sockets_refuses_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go past the proxy without a word."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    with (
        pytest.raises(ConfigError, match="knows no proxies; use boto3"),
        _open("sockets", "sqs", "http://example.invalid", tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("proxy", "saboteur", "named", "expected"),
    [
        (None, None, None, "sockets"),
        (None, None, "boto3", "boto3"),
        (None, "corrupt-bodies", None, "boto3"),
        ("http://127.0.0.1:9", None, None, "boto3"),
        ("http://127.0.0.1:9", None, "sockets", "sockets"),
    ],
)
def test_a_run_chooses_the_cheapest_transport_that_fits(
    monkeypatch: pytest.MonkeyPatch, proxy: str | None, saboteur: str | None, named: str | None, expected: str
) -> None:
    """Plain sockets cost least, but know no proxies, and a saboteur works inside boto3."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if proxy is not None:
        monkeypatch.setenv("HTTPS_PROXY", proxy)

    assert choose_transport(named, "https://sns.eu-west-1.amazonaws.com", saboteur) == expected


def test_a_saboteur_needs_boto3() -> None:
    """It changes boto3's requests and answers, so over sockets the run would not be sabotaged."""
    with pytest.raises(ConfigError, match="allowed is boto3"):
        choose_transport("sockets", "https://sns.eu-west-1.amazonaws.com", "corrupt-bodies")


@pytest.mark.parametrize(("named", "saboteur"), [("sockets", None), (None, "corrupt-bodies")])
def test_destination_outbox_allows_no_other_transport_and_no_saboteur(named: str | None, saboteur: str | None) -> None:
    """A relay publishes there, and the load test only commits."""
    url = "https://sns.eu-west-1.amazonaws.com"

    assert choose_transport(None, url, None, destination="outbox") == "outbox"
    with pytest.raises(ConfigError, match="allowed with destination 'outbox' is none"):
        choose_transport(named, url, saboteur, destination="outbox")


def test_many_calls_are_in_flight_at_once(tmp_path: Path) -> None:
    """The server answers only when forty calls have arrived, which needs forty connections."""
    everybody = threading.Barrier(40)

    def reply(request: CapturedRequest) -> Reply:
        everybody.wait(20)
        return _accepted_answer(request)

    with capturing(reply) as server, _open("sockets", "sqs", server.url, tmp_path) as transport:
        answers = _send(transport, *_calls(QUEUE, *"a" * 40))

    assert [answer.errors for answer in answers] == [{}] * 40


@pytest.mark.parametrize("name", NAMES)
def test_recorded_latencies_are_those_of_the_endpoint(tmp_path: Path, name: str) -> None:
    """The endpoint answers call n after n / 20 s; a recorded latency is never shorter."""

    def reply(request: CapturedRequest) -> Reply:
        SystemClock().sleep(json.loads(request.body)["Entries"][0]["MessageBody"].count("z") / 20)
        return _accepted_answer(request)

    with capturing(reply) as server, _open(name, "sqs", server.url, tmp_path) as transport:
        _send(transport, *_calls(QUEUE, *(["z" * index] for index in range(8))))

    rows = read_journal(tmp_path / f"{name}.arrows").to_pylist()[1:-1]
    excess = {row["idx"]: (row["responded_at_us"] - row["invoked_at_us"]) / 1e6 - row["idx"] / 20 for row in rows}
    assert len(excess) == 8
    assert all(over >= 0 for over in excess.values())
    assert sorted(excess.values())[4] < 1  # a busy machine is no fault of the recorder's; how exact it is: benchmarks


def test_a_call_that_is_never_answered_ends_with_an_unknown_outcome(tmp_path: Path) -> None:
    """Its outcome is `info`, with botocore's name of the error; the next call gets a new connection."""
    answer = threading.Event()

    def reply(request: CapturedRequest) -> Reply:
        answer.wait(10)
        return _accepted_answer(request)

    with capturing(reply) as server, _open("sockets", "sqs", server.url, tmp_path, answer_seconds=0.3) as transport:
        first = _send(transport, *_calls(QUEUE, "a"))[0]
        answer.set()
        second = _send(transport, *_calls(QUEUE, "b"))[0]

    assert first.errors == {0: "ReadTimeoutError"}
    assert second.errors == {}
    rows = read_journal(tmp_path / "sockets.arrows").to_pylist()[1:-1]
    assert [(row["outcome"], row["error"]) for row in rows] == [("info", "ReadTimeoutError"), ("ok", None)]


def test_an_https_url_to_a_server_without_tls_fails_the_call(tmp_path: Path) -> None:
    """Nothing is sent in clear text."""
    with capturing(_accepted_answer) as server:
        with _open("sockets", "sqs", server.url.replace("http:", "https:"), tmp_path) as transport:
            errors = _send(transport, *_calls(QUEUE, "a"))[0].errors

        assert errors[0] in {"SSLError", "EndpointConnectionError"}
        assert server.captured == []
    rows = read_journal(tmp_path / "sockets.arrows").to_pylist()[1:-1]
    assert rows[0]["outcome"] in {"info", "fail"}


@pytest.mark.parametrize("cut", [None, 1, 7, 40])
def test_an_answer_in_chunks_of_any_size_is_read(tmp_path: Path, cut: int | None) -> None:
    """Also one byte at a time; the connection can be used again."""

    def reply(request: CapturedRequest) -> Reply:
        return _accepted_answer(request)._replace(chunk_bytes=cut)

    with capturing(reply) as server, _open("sockets", "sqs", server.url, tmp_path) as transport:
        answers = [_send(transport, *_calls(QUEUE, "ab"))[0].errors for _ in range(2)]

    assert answers == [{}, {}]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("service", ["sns", "sqs"])
@pytest.mark.parametrize("kept_bytes", [0, 30])
def test_an_answer_that_is_cut_short_counts_as_none(tmp_path: Path, service: str, name: str, kept_bytes: int) -> None:
    """Its messages' outcome is unknown, because the server may have accepted them."""

    def reply(request: CapturedRequest) -> Reply:
        whole = _accepted_answer(request).body
        return Reply(body=whole[:kept_bytes], missing_bytes=len(whole) - kept_bytes)

    with capturing(reply) as server, _open(name, service, server.url, tmp_path) as transport:
        (answer,) = _send(transport, *_calls(ADDRESSES[service], "ab"))

    assert set(answer.errors) == {0, 1}
    rows = [row for row in read_journal(tmp_path / f"{name}.arrows").to_pylist() if row["kind"] == "published"]
    assert [(row["outcome"], row["responded_at_us"]) for row in rows if row["error"]] == [("info", None)] * 2


@pytest.mark.parametrize("name", NAMES)
def test_a_message_that_cannot_be_recorded_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The disk is full: a message without its record could not be judged."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        capturing(_accepted_answer) as server,
        suppress(OSError),
        _open(name, "sqs", server.url, tmp_path) as transport,
    ):
        monkeypatch.setattr(Journal, "flush", fail)
        with pytest.raises(OSError, match="No space left"):
            _send(transport, *_calls(QUEUE, "a"))

    assert server.captured == []
