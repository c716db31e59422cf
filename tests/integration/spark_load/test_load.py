"""The load test on real parts: honest it is valid, sabotaged it is invalid with a witness, broken it is unknown."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import SparkSession

from emulator import localstack
from sluice.errors import EndpointError, HistoryError
from sluice.history.events import Kind
from sluice.judge import report
from sluice.judge.checker.verdict import PropertyState, PropertyStatus, Verdict
from sluice.recorder.journal import Journal, events_of, read_journal
from sluice.recorder.recorder import Recorder
from sluice.saboteurs import SABOTEURS
from spark_load.profiles import profile
from spark_load.run import driver
from spark_load.runtime import deployment
from spark_load.runtime.coordinator import TaskProgress
from tests.integration.spark_load.loads import LOCAL, anomalies_that, empty_queues, received_counts, run_load

TINY = profile.load("tiny")


pytestmark = pytest.mark.spark


def _tiny(**changes: Any) -> profile.NamedProfile:
    return replace(TINY, profile=replace(TINY.profile, **changes))


@pytest.fixture(scope="module")
def honest(
    spark: SparkSession, localstack_deployed: localstack.Emulator, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Verdict, Path]:
    """Return the verdict of a run nobody sabotages, and its folder, which is only read."""
    return run_load(spark, empty_queues(localstack_deployed), tmp_path_factory.mktemp("honest"), TINY)


@pytest.mark.slow  # the demo has an honest run
def test_an_honest_run_is_valid_and_exercises_what_it_claims(
    spark: SparkSession, honest: tuple[Verdict, Path], tmp_path: Path
) -> None:
    """A property HOLDS only if the run gave it an opportunity to be violated; a second judgement says the same."""
    verdict, folder = honest[0], shutil.copytree(honest[1], tmp_path / honest[1].name)

    fields = json.loads((folder / report.VERDICT_FILE).read_text(encoding="utf-8"))
    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()
    assert verdict.violations == ()
    assert fields == verdict.as_json()
    assert len(verdict.measures["queues"]) == 3
    assert received_counts(verdict) == {320}
    exercised = anomalies_that(verdict, PropertyState.HOLDS)
    assert exercised >= {"A1", "A2", "A3", "A4", "A6", "A8", "B1", "B7", "B8", "C1", "C4", "C5", "C7", "D1", "D2", "D5"}
    assert exercised >= {"E1", "E2", "F2", "G1", "G2", "G3", "H7"}
    assert anomalies_that(verdict, PropertyState.ALLOWED) == {"B5"}
    assert set(fields["run"]["known_deviations"]) == {"B5", "F6", "F8", "F11"}
    assert driver.rejudge(spark, driver.find_stored(folder)).as_json() == fields


@pytest.mark.slow
def test_an_honest_run_with_bundles_is_valid(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Received events of a bundle have ids of their own, and more than ten show that bundles were received."""
    verdict, folder = run_load(spark, empty, tmp_path, _tiny(bundle_events_max=5, duplicate_share=0))

    ids = [
        event.sqs_message_id or ""
        for journal in folder.rglob("*.arrows")
        for event in events_of(read_journal(journal))
        if event.kind == Kind.RECEIVED
    ]
    assert verdict.violations == ()
    assert verdict.status is PropertyStatus.VALID
    assert received_counts(verdict) == {320}
    assert sum(".1" in id_ for id_ in ids) > 10


def test_a_sabotaged_run_is_invalid_with_a_witness(
    spark: SparkSession, simulated_queues: deployment.LoadDeployment, tmp_path: Path
) -> None:
    verdict, _ = run_load(spark, simulated_queues, tmp_path, TINY, target="endpoint", saboteur="drop-messages")

    _assert_shown(verdict, "drop-messages")


@pytest.mark.slow
@pytest.mark.parametrize("saboteur", [name for name, saboteur in SABOTEURS.items() if saboteur.shows])
def test_a_run_under_any_saboteur_is_invalid_with_a_witness(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path, saboteur: str
) -> None:
    """Each saboteur breaks the promises in its `shows`, and the verdict has a witness for each of these."""
    named = _tiny(bundle_events_max=5, duplicate_share=0) if "bundle" in saboteur else TINY
    verdict, _ = run_load(spark, empty, tmp_path, named, saboteur=saboteur)

    _assert_shown(verdict, saboteur)


def _assert_shown(verdict: Verdict, saboteur: str) -> None:
    shown = {violation.anomaly: violation for violation in verdict.violations}
    assert verdict.status is PropertyStatus.INVALID
    assert set(SABOTEURS[saboteur].shows) <= set(shown)
    assert all(violation.witness for violation in shown.values())


@pytest.mark.slow
def test_a_damaged_history_is_unknown_never_valid_and_never_a_false_alarm(
    spark: SparkSession, honest: tuple[Verdict, Path], tmp_path: Path
) -> None:
    """One journal is torn, empty or missing; one with a flipped bit is refused as damaged."""
    folder = shutil.copytree(honest[1], tmp_path / honest[1].name)
    journals = folder / "journals"
    whole = {path.name: path.read_bytes() for path in journals.iterdir()}

    def judge_with(name: str, content: bytes | None) -> Verdict:
        for path, data in whole.items():
            (journals / path).write_bytes(data)
        if content is None:
            (journals / name).unlink()
        else:
            (journals / name).write_bytes(content)
        return driver.rejudge(spark, driver.find_stored(folder))

    torn = whole["publish-0-0.arrows"][: len(whole["publish-0-0.arrows"]) * 3 // 4]
    verdicts = [
        judge_with("publish-0-0.arrows", torn),
        judge_with("consume-1-0.arrows", b""),
        judge_with("consume-2-0.arrows", None),
    ]

    assert [(verdict.status, verdict.violations) for verdict in verdicts] == [(PropertyStatus.UNKNOWN, ())] * 3
    assert [verdict.unknowns[0] for verdict in verdicts] == [
        "1 recorder(s) did not finish: publish-0",
        "1 recorder(s) did not finish: consume-1",
        "1 recorder(s) did not finish: consume-2",
    ]
    flipped = bytearray(whole["consume-1-0.arrows"])
    flipped[len(flipped) // 2] ^= 1
    with pytest.raises(HistoryError, match=rf"^{journals}/consume-1-0\.arrows is damaged: what stands at byte "):
        judge_with("consume-1-0.arrows", bytes(flipped))


@pytest.mark.slow
def test_a_run_that_did_not_drain_stays_unknown_when_judged_again(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """A consumer still holds a message, and nothing moves any more.

    The run's folder keeps what went wrong while it ran.
    """
    hurried = _tiny(duration_seconds=2, drain_timeout_seconds=3)
    held: list[object] = []

    def hold(phase: str, _progress: list[TaskProgress]) -> None:
        if phase == "publishing" and not held:
            url = empty.queue_urls["sluice-local-billing.fifo"]
            held.extend(empty.client("sqs").receive_message(QueueUrl=url, VisibilityTimeout=600).get("Messages", []))

    verdict, folder = run_load(spark, empty, tmp_path, hurried, watch=hold)
    again = driver.rejudge(spark, driver.find_stored(folder))

    assert held
    assert verdict.unknowns[0] == "the queues were not drained, and for 3 s nothing more was consumed"
    assert verdict.status == PropertyStatus.UNKNOWN
    assert again.status == PropertyStatus.UNKNOWN
    assert again.unknowns == verdict.unknowns


@pytest.mark.slow
def test_large_messages_are_published_in_calls_that_can_hold_them(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Ten messages of 60,000 bytes do not fit into one PublishBatch."""
    large = _tiny(payload_bytes=60_000, duration_seconds=2, publish_linger_seconds=1)

    verdict, _ = run_load(spark, empty, tmp_path, large)

    assert verdict.status == PropertyStatus.VALID
    assert verdict.unknowns == ()


@pytest.mark.slow
def test_a_strangers_message_is_left_alone_and_makes_the_verdict_unknown(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Somebody sends into the queue during the run; the load test's consumers do not delete that message."""
    url = empty.queue_urls["sluice-local-billing.fifo"]
    sqs = empty.client("sqs")

    def intrude(phase: str, _progress: list[TaskProgress]) -> None:
        if phase == "publishing":
            sqs.send_message(
                QueueUrl=url,
                MessageBody="theirs",
                MessageGroupId="theirs",
                MessageDeduplicationId="order.98765432109876543210",
            )

    verdict, _ = run_load(spark, empty, tmp_path, TINY, watch=intrude)

    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    left = int(attributes["ApproximateNumberOfMessages"]) + int(attributes["ApproximateNumberOfMessagesNotVisible"])
    assert left == 1
    assert verdict.status == PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    assert verdict.unknowns[0] == "the queues were not empty at the end: see who else uses them"
    assert "of another run were received: the run was not isolated" in verdict.unknowns[1]


@pytest.mark.slow
def test_a_generator_that_is_late_makes_the_verdict_unknown(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """A budget of a microsecond makes every publish late."""
    strict = _tiny(lateness_budget_seconds=1e-6, duration_seconds=2)

    verdict, _ = run_load(spark, empty, tmp_path, strict)

    assert verdict.status is PropertyStatus.UNKNOWN
    assert anomalies_that(verdict, PropertyState.UNKNOWN) == {"H7"}
    assert len(verdict.unknowns) == 1
    assert verdict.unknowns[0].startswith("the generator was late: 99 % of publishes within")


@pytest.mark.slow
def test_an_endpoint_that_goes_away_makes_the_verdict_unknown(
    spark: SparkSession, empty: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """Nothing listens on port 9, so no call of the run has an answer."""
    gone = replace(empty, endpoint_url="http://127.0.0.1:9")
    hurried = _tiny(duration_seconds=1, drain_timeout_seconds=1)

    verdict, _ = run_load(spark, gone, tmp_path, hurried)

    assert verdict.status is PropertyStatus.UNKNOWN
    assert verdict.violations == ()
    (why,) = [reason for reason in verdict.unknowns if "nothing to judge" in reason]
    assert why.startswith("0 message(s) acknowledged and 0 received: nothing to judge (")
    assert why.endswith(" calls failed with EndpointConnectionError)")


def test_queues_that_are_not_empty_are_refused(simulated_queues: deployment.LoadDeployment) -> None:
    """The message is somebody else's, and stays in the queue."""
    url = simulated_queues.queue_urls["sluice-local-billing.fifo"]
    sqs = simulated_queues.client("sqs")
    sqs.send_message(QueueUrl=url, MessageBody="theirs", MessageGroupId="g", MessageDeduplicationId="theirs")

    with pytest.raises(EndpointError, match=r"queue sluice-local-billing.fifo holds 1 message\(s\); a load test needs"):
        deployment.find(LOCAL, endpoint_url=simulated_queues.endpoint_url)

    assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)["Messages"][0]["Body"] == "theirs"


# --- the recorder ----------------------------------------------------------------------------------------------------


def test_the_recorder_writes_each_call_with_its_outcome(
    simulated_queues: deployment.LoadDeployment, tmp_path: Path
) -> None:
    """One publish, one receive, a refused delete and a delete: each is an event of its own in the journal."""
    sns, sqs = simulated_queues.client("sns"), simulated_queues.client("sqs")
    url = simulated_queues.queue_urls["sluice-local-audit.fifo"]
    with Journal(tmp_path, "r-0", common={"run": "r", "worker": "r-0"}) as journal:
        recorder = Recorder(journal, names=simulated_queues.names())
        recorder.attach(sns)
        recorder.attach(sqs)
        recorder.plan(deduplication_id="r.4", intended_at_us=123, publish_attempt=1)
        body = '{"run":"r","group":"g1","idx":4}'
        published = sns.publish(
            TopicArn=simulated_queues.topic_arn, Message=body, MessageGroupId="g1", MessageDeduplicationId="r.4"
        )
        (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10, MessageSystemAttributeNames=["All"])[
            "Messages"
        ]
        with pytest.raises(ClientError):
            sqs.delete_message(QueueUrl=url, ReceiptHandle="garbage")
        sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "0", "ReceiptHandle": message["ReceiptHandle"]}])

    opened, publish, poll, receive, refused, delete, closed = events_of(read_journal(journal.path))

    assert [e.kind for e in (opened, poll, closed)] == [Kind.OPENED, Kind.POLL, Kind.CLOSED]
    assert publish.kind == "published"
    assert publish.outcome == "ok"
    assert publish.queue == "sluice-local-events.fifo"
    assert publish.idx == 4
    assert publish.intended_at_us == 123
    assert publish.publish_attempt == 1
    assert publish.sns_message_id == published["MessageId"]
    assert publish.sns_sequence_number == published["SequenceNumber"].zfill(39)
    assert receive.kind == "received"
    assert receive.queue == "sluice-local-audit.fifo"
    assert receive.idx == 4
    assert receive.message_run == "r"
    assert receive.message_group_id == "g1"
    assert receive.receive_count == 1
    assert receive.sqs_message_id == message["MessageId"]
    assert receive.body_hash == publish.body_hash
    assert receive.md5_ok is True
    assert refused.kind == "deleted"
    assert refused.outcome == "fail"
    assert refused.error == "ReceiptHandleIsInvalid"
    assert refused.idx is None
    assert delete.kind == "deleted"
    assert delete.outcome == "ok"
    assert delete.idx == 4
    assert delete.receipt_handle_hash == receive.receipt_handle_hash
    assert poll.call_id == receive.call_id
    times = [t for e in (publish, receive, refused, delete) for t in (e.invoked_at_us, e.responded_at_us)]
    assert times == sorted(times, key=lambda t: t or 0)
