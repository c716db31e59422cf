"""`sluice env deploy` on a real LocalStack: a consumer is taken away while messages wait for it."""

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from emulator import localstack
from tests.support.project import PROJECT

pytestmark = [pytest.mark.xdist_group("a localstack of its own"), pytest.mark.slow]
_SECONDS = 240
_DECLARED = """
from sluice.declaration import Consumer, Environment, NewNetwork, Removal

ENVIRONMENTS = (
    Environment(
        name="tiny",
        account="000000000000",
        removal=Removal.RETAIN,
        silent=True,
        image="worker:1",
        network=NewNetwork(restrict_default_security_group=False),
        consumers=tuple(Consumer(name=name) for name in {names}),
    ),
)
"""


def _run(folder: Path, names: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    declaration = folder / "environments.py"
    declaration.write_text(_DECLARED.format(names=names))
    return subprocess.run(
        [sys.executable, "-m", "sluice", "env", "deploy", "tiny", "--declaration", str(declaration), *options],
        cwd=PROJECT,
        env={**os.environ, "CONFIRM": "tiny"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


@pytest.mark.timeout(900)
def test_a_consumer_with_messages_is_taken_away_only_if_each_resource_is_named(
    empty: localstack.Running, tmp_path: Path
) -> None:
    subprocess.run(["cdk", "bootstrap", "aws://000000000000/us-east-1", "--no-notices"], cwd=tmp_path, check=True)
    created = _run(tmp_path, ("billing", "audit"))
    assert created.returncode == 0, created.stdout + created.stderr
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="sluice-tiny-billing.fifo")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="1")

    refused = _run(tmp_path, ("audit",), "--check")

    assert refused.returncode == 3, refused.stdout + refused.stderr
    lines = [line for line in refused.stderr.splitlines() if " would be " in line]
    assert len(lines) == 4  # three queues and the subscription
    assert any("sluice-tiny-billing.fifo (" in line and "(about 1 now)" in line for line in lines), lines
    options = refused.stderr.rpartition("if it is meant, add ")[2].split()
    assert _run(tmp_path, ("audit",), *options[:-2]).returncode == 3
    assert "sluice-tiny-billing.fifo" in _subscribed(), "nothing may have been changed"

    allowed = _run(tmp_path, ("audit",), *options)

    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    assert _subscribed() == ["sluice-tiny-audit.fifo"]
    assert _run(tmp_path, ("audit",)).returncode == 0  # nothing is left to change


def _subscribed() -> list[str]:
    return sorted(
        found["Endpoint"].rpartition(":")[2] for found in boto3.client("sns").list_subscriptions()["Subscriptions"]
    )
