"""`cdk` creates an environment, leaves it alone, updates it under load and destroys it, on a real LocalStack."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from emulator import localstack
from sluice.clock import eventually
from sluice.declaration import Consumer, naming
from tests.support.declaration import environment
from tests.support.project import PROJECT

pytestmark = pytest.mark.xdist_group("a localstack of its own")  # one at a time
LOCAL, STAGING = environment("local"), environment("staging")
PARTS = ("network", "database", "messaging", "consumers", "observability")
STACKS = tuple(naming.stack_name(LOCAL, part) for part in PARTS)
_TOOLKIT = "CDKToolkit"  # the stack of cdk bootstrap
_CDK_SECONDS = 240


def _run(*command: str | Path, cwd: Path = PROJECT, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_CDK_SECONDS,
        check=False,
    )


def _change(action: str, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return _run(sys.executable, "scripts/change.py", action, name, cwd=PROJECT, **variables)


def _cdk(*arguments: str) -> str:
    ended = _run("cdk", *arguments, "--no-notices", "--progress", "events", "--require-approval", "never")
    output = ended.stdout + ended.stderr
    assert ended.returncode == 0, output
    return output


def _update_times(*names: str) -> dict[str, Any]:
    """Return when each stack was last changed, by default each of ours; nothing for a stack that is not there."""
    pages = boto3.client("cloudformation").get_paginator("describe_stacks").paginate()
    stacks = [stack for page in pages for stack in page["Stacks"] if stack["StackName"] in (names or STACKS)]
    # AWS does not list deleted stacks; LocalStack does.
    there = [stack for stack in stacks if stack["StackStatus"] != "DELETE_COMPLETE"]
    return {entry["StackName"]: entry.get("LastUpdatedTime", entry["CreationTime"]) for entry in there}


def _names() -> set[str]:
    """Return the name of every queue, topic and alarm that is Sluice's."""
    urls = boto3.client("sqs").list_queues(QueueNamePrefix="sluice-").get("QueueUrls", [])
    topics = [topic["TopicArn"] for topic in boto3.client("sns").list_topics()["Topics"]]
    alarms = boto3.client("cloudwatch").describe_alarms(AlarmNamePrefix="sluice-")["MetricAlarms"]
    return (
        {url.rpartition("/")[2] for url in urls}
        | {arn.rpartition(":")[2] for arn in topics}
        | {alarm["AlarmName"] for alarm in alarms}
    )


def _publish(*bodies: str) -> None:
    for body in bodies:
        boto3.client("sns").publish(
            TopicArn=naming.topic_arn(LOCAL, "000000000000"),
            Message=body,
            MessageGroupId="g1",
            MessageDeduplicationId=body,
        )


def _attributes(consumer: str) -> dict[str, str]:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=naming.queue_name(LOCAL, Consumer(name=consumer)))["QueueUrl"]
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def _await_count(consumer: str, count: int) -> None:
    eventually(
        lambda: _attributes(consumer)["ApproximateNumberOfMessages"] == str(count),
        timeout_seconds=30,
        describe=f"{count} messages waiting for {consumer}",
    )


def _drain(consumer: str, count: int) -> list[str]:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=naming.queue_name(LOCAL, Consumer(name=consumer)))["QueueUrl"]
    bodies: list[str] = []

    def take() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", []):
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(bodies) >= count

    eventually(take, timeout_seconds=30, describe=f"{count} messages for {consumer}")
    return bodies


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_an_environment_is_created_left_alone_updated_under_load_and_destroyed(empty: localstack.Emulator) -> None:
    """A second deployment changes nothing. An update keeps queued messages in order. A destruction leaves nothing."""
    created = _change("deploy", "local")
    assert created.returncode == 0, created.stdout + created.stderr
    first, bootstrapped = _update_times(), _update_times(_TOOLKIT)
    assert sorted(bootstrapped) == [_TOOLKIT]
    assert sorted(first) == sorted(STACKS)
    _publish("one", "two", "three")
    for consumer in ("billing", "shipping", "audit"):
        _await_count(consumer, 3)

    again = _change("deploy", "local")

    assert again.returncode == 0
    assert (again.stdout + again.stderr).count("(no changes)") == len(STACKS)
    assert _update_times() == first
    assert _update_times(_TOOLKIT) == bootstrapped  # what cdk bootstrap says of it is shown if it fails only

    _cdk("deploy", "--app", f"{sys.executable} -m tests.integration.stacks.extended_app", "local/*")

    assert _attributes("billing")["ApproximateNumberOfMessages"] == "3"
    assert json.loads(_attributes("billing")["RedrivePolicy"])["maxReceiveCount"] == 7
    _publish("four")
    assert [_drain(item, 4) for item in ("billing", "shipping", "audit")] == [["one", "two", "three", "four"]] * 3
    assert _drain("search", 1) == ["four"]

    destroyed = _change("destroy", "local")

    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr
    assert _update_times() == {}
    assert _names() == set()


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_an_environment_with_keys_of_its_own_keeps_its_contracts(empty: localstack.Emulator) -> None:
    """Staging's topic, queues, keys and alarms are live as declared."""
    bootstrapped = _run(PROJECT / "scripts" / "deploy-local.sh")
    assert bootstrapped.returncode == 0, bootstrapped.stdout + bootstrapped.stderr
    _cdk("deploy", "--app", f"{sys.executable} -m tests.integration.stacks.staging_app", "staging/*")

    ended = _run(
        *(
            sys.executable,
            "-m",
            "pytest",
            "--quiet",
            "contract_tests/deployment/test_deployment.py",
            "--env",
            "staging",
        ),
        *("--endpoint-url", empty.endpoint_url, "-k", "not operator_hears"),
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "6 passed, 1 deselected" in ended.stdout


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_function_beside_tasks_is_deployed_and_keeps_its_contracts(
    empty: localstack.Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stacks are made: function, role, mapping and schedule. Each contract turns red under each of its saboteurs.

    This LocalStack makes functions without Docker, because a hook of ours plays them
    (`emulator/hooks/invoke_functions_by_http.py`). CloudFormation there makes no reserved concurrency.
    """
    for package in ("sluice", "examples"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / package, tmp_path / "build" / "function" / package, ignore=ignored)
    monkeypatch.setenv("PACKAGE_ROOT", str(tmp_path))
    bootstrapped = _run("cdk", "bootstrap", "aws://000000000000/us-east-1", "--no-notices", cwd=tmp_path)
    assert bootstrapped.returncode == 0, bootstrapped.stdout + bootstrapped.stderr
    _cdk("deploy", "--app", f"{sys.executable} -m tests.integration.stacks.mixed_app", "local/*")

    contracts = (sys.executable, "-m", "pytest", "--quiet", "contract_tests/deployment/test_functions.py")
    declared = ("--declaration", "examples/functions/environments.py", "--endpoint-url", empty.endpoint_url)
    honest = _run(*contracts, *declared)
    proven = _run(*contracts, *declared, "--prove")

    assert "4 passed" in honest.stdout, honest.stdout + honest.stderr
    assert "15 of 15 turned red" in proven.stdout, proven.stdout + proven.stderr


@pytest.mark.slow  # a minute
def test_a_change_to_an_account_wants_its_name_typed(empty: localstack.Emulator) -> None:
    """Without a terminal and without CONFIRM the command prints account, region and stacks, and refuses."""
    refused = _change("deploy", "prod")

    assert refused.returncode == 3, refused.stderr
    assert refused.stdout == "", refused.stderr
    assert refused.stderr == (
        "deploy prod: sluice-prod-network, sluice-prod-database, sluice-prod-messaging, sluice-prod-consumers,"
        " sluice-prod-observability\n"
        f"  in account 000000000000, region us-east-1, at {empty.endpoint_url}\n"
        "deploy: the confirmation is None, allowed is 'prod'; type it, or without a terminal set CONFIRM\n"
    )


def test_a_change_is_refused_when_another_environment_was_confirmed(empty: localstack.Emulator) -> None:
    """A CONFIRM left over from yesterday destroys nothing today."""
    refused = _change("destroy", "prod", CONFIRM="staging")

    assert refused.returncode == 3
    assert refused.stderr.endswith(
        "destroy: the confirmation is 'staging', allowed is 'prod'; type it, or without a terminal set CONFIRM\n"
    )


@pytest.mark.slow  # a deployment for one sentence
def test_a_difference_is_shown_without_asking(empty: localstack.Emulator) -> None:
    """Nothing of the environment dev is deployed, so everything is shown as added. Nothing is deployed."""
    shown = _change("diff", "dev")

    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "[+] AWS::SNS::Topic" in shown.stdout + shown.stderr
    assert not any(name.startswith("sluice-dev-") for name in _names())


@pytest.mark.parametrize(
    ("url", "message"),
    [("", "AWS_ENDPOINT_URL is ''"), ("https://sqs.us-east-1.amazonaws.com", "AWS_ENDPOINT_URL is 'https://sqs.us-")],
    ids=["empty", "AWS"],
)
def test_the_local_environment_never_goes_to_an_account(url: str, message: str) -> None:
    """The environment local is deployed to a LocalStack on this machine, or not at all."""
    refused = _change("deploy", "local", AWS_ENDPOINT_URL=url)

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"deploy: {message}")
    assert len(refused.stderr.splitlines()) == 1


def test_an_environment_nobody_declared_is_refused() -> None:
    """Exit code 3, and the names there are."""
    refused = _change("deploy", "nope")

    assert refused.returncode == 3
    assert refused.stderr == (
        "deploy: environment 'nope' is not declared, allowed is one of local, dev, staging, prod;"
        " declare it in tests/support/declarations/environments.py\n"
    )
