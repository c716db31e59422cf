"""`sluice simulator` and `sluice topology`: from a declaration to queues, without LocalStack, Docker or Node."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.simulator.server import SimulatorServer
from tests.support.command_line import Run, command_line

_DECLARATION = """
from sluice.declaration import Consumer, Environment

ENVIRONMENTS = (Environment(name="local", application="shop", consumers=(Consumer(name="billing"),)),)
"""
_DECLARED = ("--declaration", "environments.py")


@pytest.fixture
def sluice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    """Yield the command line, in a folder with a declaration."""
    (tmp_path / "environments.py").write_text(_DECLARATION)
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capsys) as run:
        yield run


def test_topology_is_applied_twice_with_the_same_result(sluice: Run) -> None:
    """The second call finds every queue and the topic as declared, and changes nothing."""
    with SimulatorServer(port=0) as server:
        once, again = (
            sluice("topology", "apply", *_DECLARED, "--endpoint-url", server.url, "--json") for _ in range(2)
        )

        assert once == again
        code, printed, _ = once
        assert code == 0
        assert json.loads(printed) == {
            "topic_arn": "arn:aws:sns:us-east-1:000000000000:shop-local-events.fifo",
            "queues": {"billing": f"{server.url}/000000000000/shop-local-billing.fifo"},
            "dead_letter_queues": {"billing": f"{server.url}/000000000000/shop-local-billing-dlq.fifo"},
            "undelivered_queues": {"billing": f"{server.url}/000000000000/shop-local-billing-undelivered-dlq.fifo"},
        }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    ids=["no endpoint", "AWS", "AWS in capitals", "AWS's other domain", "no URL", "unknown environment"],
    argvalues=[
        ((), "no endpoint is named"),
        (("--endpoint-url", "https://sqs.us-east-1.amazonaws.com"), "on AWS deploy the stacks"),
        (("--endpoint-url", "https://AMAZONAWS.COM."), "on AWS deploy the stacks"),
        (("--endpoint-url", "https://sqs.us-east-1.api.aws"), "on AWS deploy the stacks"),
        (("--endpoint-url", "nowhere"), "allowed is a URL"),
        (("--endpoint-url", "http://127.0.0.1:9", "--env", "nowhere"), "'nowhere'"),
    ],
)
def test_topology_is_refused_anywhere_but_on_an_emulator(
    sluice: Run, arguments: tuple[str, ...], expected: str
) -> None:
    """Queues that no stack knows must never be made in an account."""
    code, _, complaint = sluice("topology", "apply", *_DECLARED, *arguments)

    assert code == 3
    assert complaint.count("\n") == 1
    assert expected in complaint


def test_an_endpoint_that_does_not_answer_is_one_line(sluice: Run) -> None:
    """Nothing listens on port 9."""
    code, _, complaint = sluice("topology", "apply", *_DECLARED, "--endpoint-url", "http://127.0.0.1:9")

    assert code == 2
    assert complaint.count("\n") == 1


def test_a_program_finds_its_simulator_and_no_account(sluice: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables name an account's profile and AWS itself; the program's call must reach the simulator."""
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "https://sqs.us-east-1.amazonaws.com")
    program = (
        "import boto3, os; print(boto3.client('sqs').list_queues()['ResponseMetadata']['HTTPStatusCode']); exit(7)"
    )
    command = (sys.executable, "-m", "sluice", "simulator", "run", "--", sys.executable, "-c", program)

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 7, ended.stderr
    assert ended.stdout == "200\n", ended.stderr
    code, _, complaint = sluice("simulator", "run", "--", "no-such-program")
    assert code == 3
    assert "there is no program" in complaint
