"""A target says what it can do, and what a run on AWS costs, without AWS."""

import re
from pathlib import Path

import boto3
import pytest

from contract_tests.byo_queues import WITH_DLQ, WITH_QUEUE, WITH_TOPIC, ByoQueueResources, ByoQueues
from contract_tests.promises import PROMISES
from contract_tests.resources import NotArrangedError, Resources, bodies
from contract_tests.targets import aws as account
from contract_tests.targets import binding
from sluice.clock import VirtualClock
from sluice.errors import ConfigError, EndpointError
from sluice.localstack import MODIFIED
from sluice.simulator.hook import ENDPOINT_URL, Simulator
from tests.support.project import PROJECT

_ESTIMATE = account.SuiteEstimate(tests=260, workers=8)


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the machine's region and credentials, and the terminal."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set keys, which are not checked here."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")


def test_an_estimate_is_worked_out_from_tests_and_workers() -> None:
    assert str(_ESTIMATE) == ("at most 260 tests with 8 worker(s): about 33 min, up to 10,400 requests, at most $0.01")


def test_aws_without_region_is_refused(credentials: None) -> None:
    session = boto3.Session()

    with pytest.raises(EndpointError, match="target aws has no region; set AWS_DEFAULT_REGION"):
        account.require_region(session, _ESTIMATE, is_agreed=True)


def test_aws_without_credentials_is_refused() -> None:
    with pytest.raises(EndpointError, match="target aws has no credentials; set AWS_PROFILE"):
        account.require_region(boto3.Session(region_name="eu-west-1"), _ESTIMATE, is_agreed=True)


def test_aws_is_refused_until_somebody_agrees_to_the_estimate(credentials: None) -> None:
    session = boto3.Session(region_name="eu-west-1")

    with pytest.raises(ConfigError) as refused:
        account.require_region(session, _ESTIMATE, is_agreed=False)

    assert str(refused.value) == f"target aws costs money: {_ESTIMATE}; agree with --i-will-pay or SLUICE_AWS=1"
    assert account.require_region(session, _ESTIMATE, is_agreed=True) == "eu-west-1"


def test_on_aws_only_a_successful_change_waits_to_settle() -> None:
    """A creation waits 1 second and a change of attributes 60; a send and a refused change do not wait."""
    clock, simulator = VirtualClock(), Simulator()
    sqs = account.settling(simulator.client("sqs"), clock)

    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    after_creation = clock.monotonic()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "7"})
    after_change = clock.monotonic()
    sqs.send_message(QueueUrl=url, MessageBody="m1", MessageGroupId="g1", MessageDeduplicationId="m1")
    with pytest.raises(sqs.exceptions.ClientError):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "false"})

    assert [after_creation, after_change, clock.monotonic()] == [1, 61, 61]


def test_every_change_that_settles_is_an_operation_of_boto3(credentials: None) -> None:
    """The target would never wait after a misspelt operation."""
    for operation in account.SETTLES_SECONDS:
        service, name = operation.split(".")
        client = boto3.client(service, region_name="us-east-1")
        assert name in client.meta.service_model.operation_names


@pytest.mark.parametrize("is_modified", [True, False])
def test_only_a_localstack_with_our_hooks_has_the_short_window(
    monkeypatch: pytest.MonkeyPatch, *, is_modified: bool
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ENDPOINT_URL)
    monkeypatch.delenv(MODIFIED, raising=False)
    if is_modified:
        monkeypatch.setenv(MODIFIED, "1")

    flags = {name: bind(ENDPOINT_URL, patience_seconds=1).has_short_window for name, bind in binding.BINDINGS.items()}

    assert flags == {
        "localstack": is_modified,
        "localemu": is_modified,
        "endpoint": False,
        "simulator": False,
        "aws": False,
    }


def test_aws_is_given_more_patience_than_an_emulator() -> None:
    """AWS's counts and attributes settle slowly. A longer patience that the caller gives is kept."""
    patience = {
        name: bind(ENDPOINT_URL, patience_seconds=4).patience_seconds for name, bind in binding.BINDINGS.items()
    }

    assert patience == {"localstack": 4, "localemu": 4, "endpoint": 4, "simulator": 4, "aws": 120}
    assert binding.aws("eu-west-1", patience_seconds=500).patience_seconds == 500


def test_subscriptions_are_deleted_before_topics_and_topics_before_queues() -> None:
    target = binding.simulator(ENDPOINT_URL, patience_seconds=1)
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    resources = Resources(target, sqs, sns, prefix="ct-0123456789")
    topic = resources.fifo_topic(resources.fifo_queue())
    late = resources.fifo_queue()
    topic.subscribe(late)
    late.delete_queue()
    called: list[str] = []
    for client in (sqs, sns):
        client.meta.events.register("before-call", lambda model, **_: called.append(model.name))

    resources.close()

    assert called == [*["Unsubscribe"] * 2, "DeleteTopic", *["DeleteQueue"] * 2]
    assert "QueueUrls" not in sqs.list_queues()
    assert sns.list_topics()["Topics"] == []
    assert sns.list_subscriptions()["Subscriptions"] == []


def test_a_dead_letter_that_cannot_be_made_is_no_failed_expectation() -> None:
    """The queue has no DLQ, so the part that the test is about has not begun."""
    target = binding.simulator(ENDPOINT_URL, patience_seconds=1)
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    queue = Resources(target, sqs, sns, prefix="ct-0123456789").fifo_queue()

    with pytest.raises(NotArrangedError, match="more than one receive was allowed"):
        queue.dead_letter("m1")


def test_promises_for_the_users_own_queues_exist() -> None:
    """Each promise is listed once, and none needs more than a queue, its DLQ and a topic."""
    assert WITH_QUEUE.keys() | WITH_DLQ.keys() | WITH_TOPIC <= PROMISES.keys()
    assert not WITH_QUEUE.keys() & WITH_DLQ.keys()
    assert not (WITH_QUEUE.keys() | WITH_DLQ.keys()) & WITH_TOPIC


def test_a_foreign_message_ends_the_test_and_stays_in_the_queue() -> None:
    """The test that receives it releases it, and so does the clean-up, which deletes the test's own message."""
    target = binding.simulator(ENDPOINT_URL, patience_seconds=1)
    owner = target.make_client("sqs")
    url = owner.create_queue(QueueName="theirs.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs, sns = target.make_client("sqs"), target.make_client("sns")
    lent = ByoQueueResources(target, ByoQueues(queue_url=url), sqs, sns, number=1)
    queue = lent.fifo_queue()
    queue.send_each("ours")
    owner.send_message(QueueUrl=url, MessageBody="theirs", MessageGroupId="g1", MessageDeduplicationId="m1")

    for meets in (lambda: queue.receive(most=10), lent.close):
        with pytest.raises(EndpointError, match=r"of somebody else \(group 'g1'\); it was given back"):
            meets()

    left = owner.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert bodies(left) == ["theirs"]


def test_every_option_and_marker_is_documented() -> None:
    """Each has a row on the page about the contract tests, and each marker on the page marks a test."""
    page = (PROJECT / "docs" / "contract-tests.md").read_text(encoding="utf-8")
    rim = (PROJECT / "contract_tests" / name for name in ("options.py", "conftest.py"))
    code = "".join(path.read_text("utf-8") for path in rim)
    options = re.findall(r'addoption\(\s*"(--[a-z-]+)"', code)
    tests = "".join(path.read_text("utf-8") for path in (PROJECT / "contract_tests").rglob("*.py"))
    markers = set(re.findall(r"pytest\.mark\.(\w+)\b(?!\()", tests))  # those without an argument choose tests

    rows = [line for line in page.splitlines() if line.startswith("| `")]
    missing = [name for name in options if not any(f"`{name}" in row for row in rows)]
    table = page.partition("## Markers\n")[2].partition("\n## ")[0]

    assert len(options) >= 10
    assert missing == []
    assert markers == set(re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE))
