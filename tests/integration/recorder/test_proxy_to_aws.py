"""`--to aws` from end to end: AWS's hosts by their names, TLS, and signatures that the other side computes again.

AWS is played by a way out (`HTTPS_PROXY`) that ends TLS for every host it is to connect to, and asks the simulator.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from sluice.history.events import Kind
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.engine import open_in_memory
from sluice.judge.recording import RecordedQueue, check
from sluice.recorder import record
from sluice.recorder.proxy import AWS, RecordingProxy
from tests.support.endpoints import fake_aws
from tests.support.endpoints.tls_postgres import Authority
from tests.support.histories.recorded_services import create_queue, read_recording, subscribe

_KEY, _SECRET = "AKIDPROXY", "of-the-proxy"
_HOSTS = {
    ("sqs", "eu-west-1"): "sqs.eu-west-1.amazonaws.com",
    ("sns", "eu-west-1"): "sns.eu-west-1.amazonaws.com",
    ("sqs", "cn-north-1"): "sqs.cn-north-1.amazonaws.com.cn",
}

pytestmark = pytest.mark.slow


class _WayOut(ThreadingHTTPServer):
    """Plays AWS behind CONNECT, and notes the hosts that were reached with a valid signature."""

    daemon_threads = True

    def __init__(self, authority: Authority, endpoint_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.endpoint_url, self.reached = endpoint_url, set[str]()
        self.contexts = {host: _tls_context(authority, host) for host in _HOSTS.values()}


def _tls_context(authority: Authority, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certify(host))
    return context


class _Tunnel(BaseHTTPRequestHandler):
    server: _WayOut

    def do_CONNECT(self) -> None:
        host = self.path.removesuffix(":443")
        self.send_response(200)
        self.end_headers()
        with self.server.contexts[host].wrap_socket(self.connection, server_side=True) as secure:
            _Aws(secure, host, self.server)
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


class _Aws(BaseHTTPRequestHandler):
    """Answers the requests of one connection to a host of AWS."""

    protocol_version = "HTTP/1.1"
    server: _WayOut
    client_address: str  # type: ignore[assignment] # it is given the host instead

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._is_signed(body):
            self._answer(403, b'{"__type": "SignatureDoesNotMatch"}', {})
            return
        self.server.reached.add(self.client_address)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")
        }
        with closing(HTTPConnection(urlsplit(self.server.endpoint_url).netloc, timeout=30)) as connection:
            connection.request("POST", self.path, body, headers)
            with connection.getresponse() as response:
                answer = response.read().replace(self.server.endpoint_url.encode(), f"https://{self._host}".encode())
                self._answer(response.status, answer, dict(response.getheaders()))

    @property
    def _host(self) -> str:
        return self.client_address

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_signed(self, body: bytes) -> bool:
        """Return whether the signature is that of the proxy's key for this very host, service, region and body."""
        scope, signed, signature = (part.split("=", 1)[1] for part in self.headers["Authorization"].split(", "))
        key, _, region, service, _ = scope.split("/")
        names = signed.split(";")
        request = AWSRequest(
            method="POST",
            url=f"https://{self._host}{self.path}",
            data=body,
            headers={name: value for name, value in self.headers.items() if name.lower() in names},
        )
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        signer = SigV4Auth(Credentials(_KEY, _SECRET), service, region)
        text = signer.string_to_sign(request, signer.canonical_request(request))
        is_for_host = _HOSTS.get((service, region)) == self._host == self.headers["Host"]
        return is_for_host and key == _KEY and signature == signer.signature(text, request)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _aws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_WayOut]:
    authority = Authority.make(folder)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with fake_aws.running() as endpoint, _WayOut(authority, endpoint.url) as way_out:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{way_out.server_port}")
        thread = threading.Thread(target=way_out.serve_forever)
        thread.start()
        yield way_out
        way_out.shutdown()
        thread.join()


def _client(service: str, region: str, proxy: RecordingProxy) -> Any:
    return boto3.client(
        service,
        endpoint_url=proxy.url,
        region_name=region,
        aws_access_key_id="anybody",
        aws_secret_access_key="anything",  # noqa: S106 (the proxy signs anew)
        config=Config(retries={"total_max_attempts": 1}, read_timeout=30),
    )


def test_calls_reach_the_hosts_of_aws_signed_for_each_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SNS, SQS and SQS in China have hosts of their own; the proxy's address is in the queue's URL."""
    folder = tmp_path / "run"
    with (
        _aws(tmp_path / "ca", monkeypatch) as aws,
        record((), folder, worker="proxy") as recording,
        RecordingProxy(recording, port=0, endpoint=AWS) as proxy,
    ):
        sns, sqs = _client("sns", "eu-west-1", proxy), _client("sqs", "eu-west-1", proxy)
        url = create_queue(sqs, "orders.fifo")
        topic_arn = sns.create_topic(Name="topic.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
        subscribe(sns, sqs, topic_arn=topic_arn, url=url, is_raw=True)
        sns.publish(TopicArn=topic_arn, Message="ä&=", MessageGroupId="g", MessageDeduplicationId="1")
        sqs.send_message(QueueUrl=url, MessageBody="b", MessageGroupId="h", MessageDeduplicationId="2")
        received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])
        for message in received["Messages"]:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        in_china = _client("sqs", "cn-north-1", proxy).list_queues()

    assert url == f"{proxy.url}/000000000000/orders.fifo"
    assert in_china["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert aws.reached == {*_HOSTS.values()}
    engine = open_in_memory(folder)
    assert engine is not None, "it is small"
    verdict = check(engine, folder, {"orders.fifo": RecordedQueue(visibility_timeout_seconds=30)}, "aws")[0]
    assert verdict.status is PropertyStatus.VALID


def test_a_signature_that_aws_refuses_is_answered_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's own secret is wrong: the client sees AWS's refusal, and the journal says that nothing was sent."""
    with _aws(tmp_path / "ca", monkeypatch) as aws, record((), tmp_path / "run", worker="proxy") as recording:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
        with (
            RecordingProxy(recording, port=0, endpoint=AWS) as proxy,
            pytest.raises(ClientError, match="SignatureDoesNotMatch"),
        ):
            _client("sqs", "eu-west-1", proxy).send_message(
                QueueUrl=f"{proxy.url}/1/orders.fifo", MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d"
            )

    assert aws.reached == set()
    (sent,) = (event for event in read_recording(tmp_path / "run") if event.kind == Kind.PUBLISHED)
    assert sent.outcome == "fail"
    assert sent.error == "SignatureDoesNotMatch"
