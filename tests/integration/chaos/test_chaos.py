"""A chaos run: its schedule follows from its seed, its judge finds what is wrong, and a short one is valid."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from emulator import localstack
from sluice.errors import ConfigError
from sluice.history.checker.verdict import Status
from tests.chaos import database
from tests.chaos.judge import Anomaly, Committed, Done, Evidence, Judgement, Listed, Published, judge
from tests.chaos.lines import Lines, canned
from tests.chaos.producers import Task, tried
from tests.chaos.run import Run, Settings
from tests.chaos.schedule import POISONS, WIRE, Kind, chosen, schedule
from tests.support import fake_aws

_SETTINGS = Settings(
    seed=11,
    commits=160,
    seconds=14,
    groups=12,
    producers=2,
    poison_share=0.02,
)


# --- the schedule -----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    """A run that was found invalid can be run again."""
    assert _SETTINGS.faults == _SETTINGS.faults
    assert _SETTINGS.faults != replace(_SETTINGS, seed=12).faults


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_of_fault_comes_and_each_ends_in_time(seed: int) -> None:
    """A short schedule has no room for luck: what has a place in time comes at least once, where something is free."""
    settings = replace(_SETTINGS, seed=seed, seconds=60)
    faults = settings.faults

    assert {fault.kind for fault in faults} == {kind for kind in settings.kinds if kind not in POISONS}
    assert [fault for fault in faults if not 0 < fault.at_seconds <= fault.until_seconds <= 60] == []
    assert list(faults) == sorted(faults, key=lambda fault: fault.at_seconds)


@pytest.mark.parametrize("seed", range(20))
def test_no_two_faults_are_done_to_one_thing_at_once(seed: int) -> None:
    """The end of one would be the end of the other; what is done to all lines is done to each of them."""

    def meet(text: str, other: str) -> bool:
        (name, colon, end), (other_name, _, other_end) = text.partition(":"), other.partition(":")
        return text == other or bool(colon and end == other_end and "all" in (name, other_name))

    faults = replace(_SETTINGS, seed=seed, seconds=120, every_seconds=0.5).faults

    assert [
        (fault, other)
        for place, fault in enumerate(faults)
        for other in faults[place + 1 :]
        if meet(fault.target, other.target) and other.at_seconds < fault.until_seconds
    ] == []
    assert {fault.kind for fault in faults} >= set(WIRE)


def test_what_cannot_be_scheduled_is_refused_in_one_line() -> None:
    """A kind nobody knows, and a schedule without time."""
    with pytest.raises(ConfigError, match="--faults is nonsense, allowed are kill, terminate"):
        chosen(["kill", "nonsense"])
    with pytest.raises(ConfigError, match=r"--seconds is 1 with a fault every 1\.5 s, allowed is more than 1 s"):
        schedule(seed=1, seconds=1, every_seconds=1.5, kinds=(Kind.KILL,), targets=_SETTINGS.targets)


# --- the producers ----------------------------------------------------------------------------------------------------


def test_what_a_commit_holds_follows_from_seed_producer_and_number(tmp_path: Path) -> None:
    """Whatever was done to the producer before; poison is for one of the consumers, and of the chosen kinds."""
    task = Task(
        name="producer-0",
        seed=1,
        commits=500,
        begins_at_us=0,
        seconds=1,
        groups=("a", "b"),
        consumers=("audit", "ledger"),
        poisons=(Kind.REJECT,),
        poison_share=0.1,
        mended_at_seconds=(0.5,),
        topic="t.fifo",
        dsn="sqlite://",
        journal=tmp_path,
    )
    commits = [task.commit(number) for number in range(500)]

    assert commits == [replace(task, dsn="sqlite:///elsewhere.db").commit(number) for number in range(500)]
    assert commits != [replace(task, seed=2).commit(number) for number in range(500)]
    ill = [commit.poison for commit in commits if commit.poison is not None]
    assert 25 < len(ill) < 100
    assert {(entry["kind"], entry["consumer"]) for entry in ill} == {("reject", "audit"), ("reject", "ledger")}
    assert {entry["heals_after"] for entry in ill} == {1, 2, 3}
    assert {len(commit.groups) for commit in commits} == {1, 2}
    assert any(commit.is_tried_before for commit in commits)
    assert any(commit.has_savepoint for commit in commits)


def test_a_line_that_a_kill_cut_short_is_left_out_of_what_was_tried(tmp_path: Path) -> None:
    """The last thing known of each event counts."""
    (tmp_path / "producer-0.jsonl").write_text(
        '{"ids": ["a", "b"], "tried": "begun"}\n{"ids": ["a"], "tried": "committed"}\n{"ids": ["b"], "tri'
    )

    assert tried(tmp_path) == {"a": "committed", "b": "begun"}


# --- the wire ---------------------------------------------------------------------------------------------------------


def test_a_canned_answer_is_one_of_http_and_the_one_that_is_cut_is_shorter_than_it_says() -> None:
    """Each hangs up: what is left of the connection is nobody's."""
    for name in ("500", "503", "throttled", "garbage", "cut-short"):
        head, _, body = canned(name, is_json=True).partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert head.startswith(b"HTTP/1.1 ")
        assert head.endswith(b"Connection: close")
        assert (length > len(body)) == (name == "cut-short")
    assert b"ThrottlingException" in canned("throttled", is_json=True)
    assert b"<Code>Throttling</Code>" in canned("throttled", is_json=False)


@pytest.fixture
def endpoint() -> Iterator[fake_aws.Endpoint]:
    """Yield an endpoint that answers at once."""
    with fake_aws.running() as made:
        yield made


def test_a_line_does_to_its_calls_what_it_is_told_until_it_is_mended(endpoint: fake_aws.Endpoint) -> None:
    """Of an answer that is lost the call was done, of one that is replaced only after it was asked for so."""
    once = Config(retries={"total_max_attempts": 1})
    with Lines() as lines:
        url = lines.to_endpoint("relay-0:endpoint", endpoint.url)
        sqs = boto3.client("sqs", endpoint_url=url, region_name="us-east-1", config=once)

        def made(name: str) -> bool:
            with contextlib.suppress(BotoCoreError, ClientError):
                sqs.create_queue(QueueName=name)
            direct = boto3.client("sqs", endpoint_url=endpoint.url, region_name="us-east-1")
            return any(name in entry for entry in direct.list_queues().get("QueueUrls", []))

        assert made("before")
        lines.suffer("relay-0:endpoint", Kind.CUT)
        assert not made("cut")
        lines.suffer("all:endpoint", Kind.ANSWER, "503")
        assert not made("refused")
        lines.suffer("all:endpoint", Kind.ANSWER, "after-500")
        assert made("done-and-refused")
        lines.suffer("relay-0:endpoint", Kind.LOSE)
        assert made("done-and-lost")
        lines.suffer("relay-1:endpoint", Kind.CUT)
        lines.suffer("relay-0:endpoint", None)
        sqs.create_queue(QueueName="after")

    assert {**lines.counts, "connections cut": 0} == {"answers lost": 1, "answers replaced": 2, "connections cut": 0}


# --- the judge: negative controls -------------------------------------------------------------------------------------

_IDS = ("a1", "a2", "a3", "b1")


def _evidence() -> Evidence:
    """Return what a run left in which everything is right: a's commits 1 to 3, and b's; two consumers."""
    return Evidence(
        acknowledged=("a1", "a2", "a3"),  # the answer to b1 was lost
        rolled_back=("r1",),
        committed=tuple(
            Committed(event_id=id_, group=id_[0], payload=f"of {id_}", committed_at_us=at_us, position=0)
            for at_us, id_ in enumerate(_IDS, start=1)
        ),
        published=tuple(Published(event_id=id_, group=id_[0], seq=int(id_[1])) for id_ in _IDS),
        done=tuple(_done(consumer, id_) for consumer in ("audit", "ledger") for id_ in _IDS),
    )


def _done(consumer: str, id_: str, *, at_us: int | None = None, **more: object) -> Done:
    number = 10 * ("audit", "ledger").index(consumer) + _IDS.index(id_) if id_ in _IDS else 99
    done = Done(
        consumer=consumer,
        event_id=id_,
        group=id_[0],
        epoch=1,
        seq=int(id_[1]),
        payload=f"of {id_}",
        is_doomed=False,
        committed_at_us=100 + number if at_us is None else at_us,
        id=number,
    )
    return replace(done, **more)  # type: ignore[arg-type]


def _judged(evidence: Evidence) -> Judgement:
    return judge(evidence, {"audit": False, "ledger": True})


def _found(evidence: Evidence) -> set[tuple[Anomaly, str | None, str]]:
    return {(violation.anomaly, violation.consumer, violation.event_id) for violation in _judged(evidence).violations}


def _without(evidence: Evidence, consumer: str, id_: str) -> Evidence:
    return replace(evidence, done=[done for done in evidence.done if (done.consumer, done.event_id) != (consumer, id_)])


def _with(evidence: Evidence, *more: Done) -> Evidence:
    return replace(evidence, done=[*evidence.done, *more])


def _swapped(evidence: Evidence, consumer: str) -> Evidence:
    """Let a consumer do a2 behind a3."""
    return _with(_without(evidence, consumer, "a2"), _done(consumer, "a2", at_us=1_000))


def test_a_run_in_which_everything_is_right_is_valid() -> None:
    """Every event has one effect for each consumer, in order."""
    judgement = _judged(_evidence())

    assert judgement == Judgement(violations=(), unfinished=(), late_counts={"audit": 0, "ledger": 0})
    assert judgement.status is Status.VALID


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        pytest.param(
            lambda right: _without(right, "audit", "a2"), (Anomaly.LOST, "audit", "a2"), id="an effect is lost"
        ),
        pytest.param(
            lambda right: _with(right, _done("audit", "a3", id=50, at_us=999)),
            (Anomaly.DOUBLE, "audit", "a3"),
            id="an effect is double",
        ),
        pytest.param(
            lambda right: _swapped(right, "ledger"), (Anomaly.REORDERED, "ledger", "a2"), id="order with PARK and HALT"
        ),
        pytest.param(lambda right: _swapped(right, "audit"), (Anomaly.REORDERED, "audit", "a2"), id="order with SKIP"),
        pytest.param(
            lambda right: _with(right, _done("audit", "x1")),
            (Anomaly.INVENTED, "audit", "x1"),
            id="an effect of nothing",
        ),
        pytest.param(
            lambda right: _with(right, _done("ledger", "r1")),
            (Anomaly.ROLLED_BACK, "ledger", "r1"),
            id="an effect of what was rolled back",
        ),
        pytest.param(
            lambda right: replace(right, published=[*right.published, Published(event_id="r1", group="b", seq=2)]),
            (Anomaly.ROLLED_BACK, None, "r1"),
            id="what was rolled back is published",
        ),
        pytest.param(
            lambda right: replace(right, rolled_back=("a1",)),
            (Anomaly.ROLLED_BACK, None, "a1"),
            id="what was rolled back is there",
        ),
        pytest.param(
            lambda right: replace(right, acknowledged=("gone",)),
            (Anomaly.COMMIT_LOST, None, "gone"),
            id="what was acknowledged is not there",
        ),
        pytest.param(
            lambda right: replace(right, published=right.published[:-1]),
            (Anomaly.UNPUBLISHED, None, "b1"),
            id="no message of a commit",
        ),
        pytest.param(
            lambda right: replace(
                right,
                published=[replace(publish, seq={1: 2, 2: 1}.get(publish.seq, 3)) for publish in right.published[:3]]
                + [right.published[3]],
            ),
            (Anomaly.MISNUMBERED, None, "a2"),
            id="numbers against the order of commits",
        ),
        pytest.param(
            lambda right: replace(
                right,
                published=[
                    replace(publish, seq=publish.seq + 1) if publish.group == "b" else publish
                    for publish in right.published
                ],
            ),
            (Anomaly.MISNUMBERED, None, "b1"),
            id="numbers with a hole",
        ),
        pytest.param(
            lambda right: _with(_without(right, "audit", "a1"), _done("audit", "a1", is_doomed=True)),
            (Anomaly.DOOMED, "audit", "a1"),
            id="an attempt that failed was committed",
        ),
        pytest.param(
            lambda right: _with(_without(right, "audit", "a1"), _done("audit", "a1", payload="of a2")),
            (Anomaly.CHANGED, "audit", "a1"),
            id="another payload",
        ),
    ],
)
def test_one_thing_that_is_wrong_is_found_and_nothing_else(
    harm: Callable[[Evidence], Evidence], expected: tuple[Anomaly, str | None, str]
) -> None:
    """A judge that never objects proves nothing."""
    judgement = _judged(harm(_evidence()))

    assert [(violation.anomaly, violation.consumer, violation.event_id) for violation in judgement.violations] == [
        expected
    ]
    assert judgement.status is Status.INVALID


@pytest.mark.parametrize("state", ["filled", "redriven"])
def test_what_an_inbox_lists_as_late_may_be_out_of_order_but_not_with_park_and_halt(state: str) -> None:
    """The number is what counts: another number of the group stays where it belongs."""
    listed = [
        Listed(consumer=name, group="a", epoch=1, seq=2, through=2, state=state, reason=None)
        for name in ("audit", "ledger")
    ]

    late = replace(_swapped(_evidence(), "audit"), listed=listed)
    assert _judged(late).violations == ()
    assert _judged(late).late_counts == {"audit": 1, "ledger": 0}
    assert _found(replace(_swapped(_evidence(), "ledger"), listed=listed)) == {(Anomaly.REORDERED, "ledger", "a2")}
    others = [replace(item, seq=1, through=1) for item in listed]
    assert _found(replace(_swapped(_evidence(), "audit"), listed=others)) == {(Anomaly.REORDERED, "audit", "a2")}


@pytest.mark.parametrize(
    "known",
    [
        pytest.param({"dead": [("audit", "a2")]}, id="in the DLQ"),
        pytest.param({"parked": [("audit", "a2")]}, id="set aside"),
        pytest.param({"is_settled": False}, id="perhaps still in a queue"),
        pytest.param(
            {
                "listed": [
                    Listed(consumer="audit", group="a", epoch=1, seq=2, through=2, state="skipped", reason="agreed")
                ]
            },
            id="given up by an operator",
        ),
    ],
)
def test_what_somebody_still_has_is_not_lost_and_makes_the_run_unknown(known: dict[str, object]) -> None:
    """Neither a violation nor a proof."""
    judgement = _judged(replace(_without(_evidence(), "audit", "a2"), **known))  # type: ignore[arg-type]

    assert judgement.violations == ()
    assert judgement.unfinished == (("audit", "a2"),)
    assert judgement.status is Status.UNKNOWN


@pytest.mark.parametrize("state", ["gap", "dead"])
def test_what_an_inbox_only_knows_to_be_missing_or_dead_is_lost_when_it_is_nowhere(state: str) -> None:
    """A row is no message: when every queue and DLQ is empty nobody can bring it back; the row says why it died."""
    listed = [Listed(consumer="audit", group="a", epoch=1, seq=1, through=2, state=state, reason="no handler")]
    judgement = _judged(replace(_without(_evidence(), "audit", "a2"), listed=listed))

    (violation,) = judgement.violations
    assert (violation.anomaly, violation.event_id) == (Anomaly.LOST, "a2")
    assert f"its inbox says {state} of number 2 (no handler)" in str(violation)


def test_events_of_one_transaction_are_in_the_order_they_were_added() -> None:
    """They were committed at one instant."""
    right = _evidence()
    together = [replace(item, committed_at_us=1, position=place) for place, item in enumerate(right.committed)]

    assert _judged(replace(right, committed=together)).status is Status.VALID


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("localstack")
def test_a_short_run_is_valid(emulated: localstack.Running, tmp_path: Path) -> None:
    """Every kind of fault once; everything committed is done once and in order for three consumers."""
    with database.running() as started:
        report = Run(_SETTINGS, emulated, started, tmp_path, print).work()

    assert report.judgement.violations == ()
    assert (report.judgement.unfinished, report.unknown) == ((), None)
    assert report.commits == _SETTINGS.commits + _SETTINGS.groups
    assert report.done == dict.fromkeys(("audit", "ledger", "shipping"), report.events)
    assert sum(report.faults.values()) == len(_SETTINGS.faults)
    assert report.rolled_back > 0


@pytest.mark.slow
@pytest.mark.xdist_group("localstack")
def test_a_run_with_handlers_that_commit_by_themselves_is_invalid(emulated: localstack.Running, tmp_path: Path) -> None:
    """The same seed; a run that cannot be found invalid proves nothing."""
    broken = replace(_SETTINGS, handlers="tests.chaos.broken_handlers", drain_seconds=30, poison_share=0.1)
    with database.running() as started:
        report = Run(broken, emulated, started, tmp_path, print).work()

    assert report.judgement.status is Status.INVALID
    assert {violation.anomaly for violation in report.judgement.violations} >= {Anomaly.DOOMED, Anomaly.DOUBLE}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--plan", "--seed", "3"], 0, ""),
        (["--faults", "nonsense"], 3, "chaos: --faults is nonsense, allowed are kill"),
        (["--commits", "0"], 3, "Invalid value for '--commits'"),
        (["--endpoint-url", "http://127.0.0.1:1", "--folder", "{folder}"], 2, "chaos: nothing answers at"),
    ],
)
def test_the_command_prints_its_plan_or_says_what_is_wrong(
    arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    """0 done, 2 could not, 3 wrong usage; never a traceback."""
    given = [argument.format(folder=tmp_path) for argument in arguments]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *given], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == code, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ("kill" in ended.stdout) == (code == 0)
