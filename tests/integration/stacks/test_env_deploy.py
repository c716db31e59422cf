"""`sluice env deploy` on a real LocalStack: a consumer is taken away while messages wait for it."""

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from emulator import localstack
from sluice.declaration.loading import VARIABLE
from tests.support.project import PROJECT

pytestmark = [pytest.mark.xdist_group("a localstack of its own"), pytest.mark.slow]
_SECONDS = 240
_APP = """
import os

import aws_cdk as cdk
from sluice.declaration import load_declaration
from sluice.stacks import MessagingStack

app = cdk.App()
environment = load_declaration().environment("tiny")
stage = cdk.Stage(app, "tiny", env=cdk.Environment(account=environment.account, region=environment.region))
messaging = MessagingStack(stage, "Messaging", environment=environment, database=None)
reader = cdk.Stack(stage, "Reader", stack_name="reader")
reader.add_stack_dependency(messaging)
cdk.CfnWaitConditionHandle(reader, "Handle")
if os.environ["IMPORTS"]:
    cdk.CfnOutput(reader, "Topic", value=messaging.fan_out.topic.topic_arn)
app.synth()
"""
_DECLARED = """
from sluice.declaration import Consumer, Environment

ENVIRONMENTS = (
    Environment(
        name="tiny", account="000000000000", silent=True, consumers=tuple(Consumer(name=name) for name in {names})
    ),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a project whose app has the messaging stack, and one that imports from it."""
    (tmp_path / "app.py").write_text(_APP, encoding="utf-8")
    (tmp_path / "cdk.json").write_text(f'{{"app": "{sys.executable} app.py"}}', encoding="utf-8")
    return tmp_path


def _deploy(
    folder: Path, *names: str, options: tuple[str, ...] = (), imports: str = "yes"
) -> subprocess.CompletedProcess[str]:
    declaration = folder / "environments.py"
    declaration.write_text(_DECLARED.format(names=names), encoding="utf-8")
    variables = {"CONFIRM": "tiny", "PYTHONPATH": str(PROJECT), VARIABLE: str(declaration), "IMPORTS": imports}
    return subprocess.run(
        [sys.executable, "-m", "sluice", "env", "deploy", "tiny", *options],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


@pytest.mark.timeout(900)
def test_removing_a_consumer_with_messages_needs_each_resource_named(
    empty: localstack.Emulator, tmp_path: Path, folder: Path
) -> None:
    """The refusal prints the options that allow the removal; with one of them left out it is still refused.

    The stack `reader` imports a value of the queue's stack, which must not be withdrawn either.
    """
    subprocess.run(
        ["cdk", "bootstrap", "--no-notices", "aws://000000000000/us-east-1"], cwd=tmp_path.parent, check=True
    )
    created = _deploy(folder, "billing", "audit")
    assert created.returncode == 0, created.stdout + created.stderr
    assert _subscribed_queues() == ["sluice-tiny-audit.fifo", "sluice-tiny-billing.fifo"]
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="sluice-tiny-billing.fifo")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="1")

    refused = _deploy(folder, "audit")

    assert refused.returncode == 3, refused.stdout + refused.stderr
    lines = [line for line in refused.stderr.splitlines() if " would be removed: " in line]
    assert len(lines) == 4  # three queues and the subscription
    assert any(" sluice-tiny-billing.fifo (" in line and "(about 1 now)" in line for line in lines), lines
    options = tuple(refused.stderr.rpartition("if it is meant, add ")[2].split())
    assert _deploy(folder, "audit", options=options[:-2]).returncode == 3
    assert len(_subscribed_queues()) == 2, "nothing may have been changed"

    allowed = _deploy(folder, "audit", options=options)

    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    assert _subscribed_queues() == ["sluice-tiny-audit.fifo"]
    again = _deploy(folder, "audit")
    assert again.returncode == 0, again.stdout + again.stderr
    withdrawn = _deploy(folder, "audit", imports="")
    assert withdrawn.returncode == 3, withdrawn.stdout + withdrawn.stderr
    assert "would be taken away or given another value: it is imported by reader;" in withdrawn.stderr


def _subscribed_queues() -> list[str]:
    """Return the names of the queues that are subscribed to a topic."""
    found = boto3.client("sns").list_subscriptions()["Subscriptions"]
    return sorted(subscription["Endpoint"].rpartition(":")[2] for subscription in found)
