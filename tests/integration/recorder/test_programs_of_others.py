"""`sluice record` on programs with packages that pin other versions of botocore, in an environment of their own."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.clock import eventually
from sluice.history.events import Kind, detail_of
from sluice.recorder.journal import SUFFIX, events_of, read_journal
from tests.support.command_line import KEYS
from tests.support.endpoints import fake_aws
from tests.support.histories.recorded_services import read_recording
from tests.support.project import PROJECT

_PACKAGES = ("aioboto3==15.5.0", "celery==5.7.0", "kombu[sqs]==5.7.0", "click", "numpy", "pyarrow", "rich")
_ASYNCHRONOUS = """
import asyncio, os, aioboto3, boto3
more = {"endpoint_url": os.environ["ENDPOINT"], "region_name": "us-east-1"}
async def main():
    sqs = boto3.client("sqs", **more)
    url, empty = (
        sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"] for name in ("q.fifo", "e.fifo")
    )
    async with aioboto3.Session().client("sqs", **more) as client:
        for number in range(4):
            entry = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
            events = ",".join('{"run":"r","group":"g","idx":%d}' % idx for idx in (1, 2))
            body = "b" if number else '{"sluice":2,"events":[' + events + "]}"
            await client.send_message(QueueUrl=url, MessageBody=body, **entry)
        try:
            await asyncio.wait_for(client.receive_message(QueueUrl=empty, WaitTimeSeconds=9), 1)
        except asyncio.TimeoutError:
            pass
    for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
asyncio.run(main())
"""
_TASKS = """
import os, boto3
from celery import Celery
endpoint = os.environ["ENDPOINT"]
queue = {"url": f"{endpoint}/000000000000/tasks.fifo", "access_key_id": "test", "secret_access_key": "test"}
app = Celery("tasks", broker=endpoint.replace("http://", "sqs://test:test@"))
app.conf.update(
    broker_transport_options={"is_secure": False, "region": "us-east-1", "predefined_queues": {"tasks.fifo": queue}},
    task_default_queue="tasks.fifo", broker_connection_retry_on_startup=True, worker_enable_remote_control=False,
)
@app.task
def add(number):
    sqs = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1")
    entry = {"MessageGroupId": "r", "MessageDeduplicationId": str(number)}
    sqs.send_message(QueueUrl=f"{endpoint}/000000000000/results.fifo", MessageBody="r", **entry)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    found = folder / "bin" / "python"
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", found, *_PACKAGES], check=True, timeout=250)
    return found


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    with fake_aws.running() as found:
        yield found


def _command(folder: Path, *program: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "sluice", "record", folder, "--", *program]


def _environment(endpoint: fake_aws.Endpoint, path: Path) -> dict[str, str]:
    return {**os.environ, **KEYS, "ENDPOINT": endpoint.url, "PYTHONPATH": f"{PROJECT}:{path}"}


def test_calls_of_aiobotocore_are_recorded_beside_those_of_boto3(
    python: Path, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """The program sends, receives and deletes five messages and cancels one poll."""
    subprocess.run(
        _command(tmp_path / "run", python, "-c", _ASYNCHRONOUS),
        check=True,
        env=_environment(endpoint, tmp_path),
        timeout=60,
    )

    kinds = Counter((event.kind, event.outcome) for event in read_recording(tmp_path / "run"))
    assert kinds["published", "ok"] == kinds["received", "ok"] == kinds["deleted", "ok"] == 5  # one of two events
    assert kinds["poll", "info"] == 1  # it was cancelled


def test_celerys_own_calls_are_named_and_its_children_close_their_journals(
    python: Path, endpoint: fake_aws.Endpoint, tmp_path: Path
) -> None:
    """Celery polls with a client of its own for HTTP: such a call is named as unseen, and is no violation."""
    (tmp_path / "tasks.py").write_text(_TASKS, encoding="utf-8")
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    for name in ("tasks.fifo", "results.fifo"):
        endpoint.answer("us-east-1", "sqs", "CreateQueue", {"QueueName": name, "Attributes": attributes})
    environment, published = _environment(endpoint, tmp_path), Counter[str]()
    order = "from tasks import add; [add.apply_async((number,)) for number in range(3)]"
    subprocess.run(_command(tmp_path / "orders", python, "-c", order), check=True, env=environment, timeout=60)

    worker = _command(tmp_path / "run", python, "-m", "celery", "-A", "tasks", "worker", "-c", "2", "-l", "ERROR")

    def count(operation: str) -> None:
        published[operation] += 1

    endpoint.fault = count
    with subprocess.Popen(worker, env=environment, stdout=subprocess.DEVNULL) as running:
        eventually(lambda: published["SendMessage"] == 3, timeout_seconds=60, describe="three results")
        running.send_signal(signal.SIGTERM)
        running.wait(30)

    journals = [events_of(read_journal(path)) for path in (tmp_path / "run").glob(f"*{SUFFIX}")]
    assert len(journals) > 1
    assert {journal[-1].kind for journal in journals} == {Kind.CLOSED}
    unseen = {detail_of(event.detail).get("unseen") for event in read_recording(tmp_path / "run")} - {None}
    assert unseen == {"ReceiveMessage was signed by a client of boto3, and sent by something else"}
