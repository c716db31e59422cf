"""A chaos line harms its calls as the schedule says, and a short chaos run is valid unless its handlers are broken."""

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from emulator import localstack
from sluice.declaration import Commit
from sluice.judge.checker.verdict import PropertyStatus
from sluice.judge.databases import DatabaseAnomaly
from spark_load.faults.lines import Lines, make_answer
from spark_load.faults.shapes import FaultKind
from tests.chaos.run import Run
from tests.chaos.settings import SERVICES, Settings
from tests.chaos.system import database
from tests.support.endpoints import fake_aws

_SETTINGS = Settings(seed=11, commits=160, seconds=14, groups=12, producers=2)


def test_a_canned_answer_is_whole_http_and_a_cut_one_is_shorter() -> None:
    """After each of these answers the connection is closed."""
    for name in ("500", "503", "throttled", "garbage", "cut-short"):
        head, _, body = make_answer(name, is_json=True).partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert head.startswith(b"HTTP/1.1 ")
        assert head.endswith(b"Connection: close")
        assert (length > len(body)) == (name == "cut-short")
    assert b"ThrottlingException" in make_answer("throttled", is_json=True)
    assert b"<Code>Throttling</Code>" in make_answer("throttled", is_json=False)


def test_a_line_harms_its_calls_until_it_is_mended() -> None:
    """A call with a lost answer took effect.

    A call with a replaced answer took effect only if the fault says `after-`.
    """
    once = Config(retries={"total_max_attempts": 1})
    with fake_aws.running() as endpoint, Lines() as lines:
        url = lines.to_endpoint("relay-0:endpoint", endpoint.url)
        sqs = boto3.client("sqs", endpoint_url=url, region_name="us-east-1", config=once)

        def try_to_make(name: str) -> bool:
            with contextlib.suppress(BotoCoreError, ClientError):
                sqs.create_queue(QueueName=name)
            direct = boto3.client("sqs", endpoint_url=endpoint.url, region_name="us-east-1")
            return any(name in entry for entry in direct.list_queues().get("QueueUrls", []))

        assert try_to_make("before")
        lines.suffer("relay-0:endpoint", FaultKind.CUT)
        assert not try_to_make("cut")
        lines.suffer("all:endpoint", FaultKind.ANSWER, "503")
        assert not try_to_make("refused")
        lines.suffer("all:endpoint", FaultKind.ANSWER, "after-500")
        assert try_to_make("done-and-refused")
        lines.suffer("relay-0:endpoint", FaultKind.LOSE)
        assert try_to_make("done-and-lost")
        lines.suffer("relay-1:endpoint", FaultKind.CUT)
        lines.suffer("relay-0:endpoint", None)
        sqs.create_queue(QueueName="after")

    assert {**lines.counts, "connections cut": 0} == {"answers lost": 1, "answers replaced": 2, "connections cut": 0}


@pytest.mark.slow  # a load test has the same faults
@pytest.mark.parametrize("services", ["plain", "asyncio", "django"])
def test_a_short_run_is_valid(localstack_shared: localstack.Emulator, tmp_path: Path, services: str) -> None:
    """Every kind of fault once; everything committed is done once and in order for three consumers."""
    settings = replace(_SETTINGS, modules=SERVICES[services])
    with database.running() as started:
        report = Run(settings, localstack_shared, started, tmp_path, print).work()

    assert report.judgement.violations == ()
    assert report.judgement.unfinished == ()
    assert report.objections == []
    assert report.unknown is None
    assert report.commits == _SETTINGS.commits + _SETTINGS.groups
    assert report.done == dict.fromkeys(("audit", "ledger", "shipping"), report.events)
    assert sum(report.faults.values()) == len(_SETTINGS.faults)
    assert report.rolled_back > 0


@pytest.mark.slow
@pytest.mark.parametrize("services", ["plain", "asyncio", "django"])
def test_a_run_with_handlers_that_commit_by_themselves_is_invalid(
    localstack_shared: localstack.Emulator, tmp_path: Path, services: str
) -> None:
    """The same seed; a run that cannot be found invalid proves nothing."""
    broken = replace(_SETTINGS, modules=SERVICES[services].break_handlers(), drain_seconds=30)
    with database.running() as started:
        report = Run(broken, localstack_shared, started, tmp_path, print).work()

    assert report.judgement.status is PropertyStatus.INVALID
    assert {violation.anomaly for violation in report.judgement.violations} >= {
        DatabaseAnomaly.DOOMED,
        DatabaseAnomaly.DOUBLE,
    }


_BUNDLED = Settings(seed=664, commits=90, seconds=45, groups=6, bundle_events_max=50, commit=Commit.BUNDLE)


@pytest.mark.slow  # two to four minutes each
@pytest.mark.parametrize("commit", Commit)
def test_a_short_run_with_bundles_has_no_violation(
    localstack_shared: localstack.Emulator, tmp_path: Path, commit: Commit
) -> None:
    """Poison dies alone, and everything is done; it may be unknown if no handler failed on some place of a bundle."""
    with database.running() as started:
        report = Run(replace(_BUNDLED, commit=commit), localstack_shared, started, tmp_path, print).work()

    assert report.judgement.violations == ()
    assert report.judgement.unfinished == ()
    assert report.objections == []
    assert sum(report.died.values()) > 0
    assert sum(report.faults.values()) == len(_BUNDLED.faults)


@pytest.mark.slow  # two to four minutes each
@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("forget-boundaries", "different messages"),
        ("die-with-neighbours", "was in the DLQ without a death of its own"),
        ("acknowledge-after-the-first", "it has no effect, is in no queue and no DLQ"),
    ],
)
def test_a_run_whose_bundles_are_broken_is_invalid(
    localstack_shared: localstack.Emulator, tmp_path: Path, mistake: str, sentence: str
) -> None:
    """The same seed; what a redrive mends is found in the operators' audit."""
    broken = replace(_BUNDLED, modules=_BUNDLED.modules.make(mistake))
    with database.running() as started:
        report = Run(broken, localstack_shared, started, tmp_path, print).work()

    assert report.status is PropertyStatus.INVALID
    assert any(sentence in str(found) for found in (*report.judgement.violations, *report.objections))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["--plan", "--seed", "3"], 0, "", marks=pytest.mark.slow),
        (["--faults", "nonsense"], 3, "chaos: --faults is nonsense, allowed are kill"),
        pytest.param(["--commits", "0"], 3, "Invalid value for '--commits'", marks=pytest.mark.slow),
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
