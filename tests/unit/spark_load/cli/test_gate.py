"""A load test on AWS asks for confirmation, with account, region and cost; without a terminal it is refused."""

from collections.abc import Callable
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner, Result

from sluice.cost.prices import PRICE_DATE
from sluice.errors import ConfigError
from spark_load.cli.planning import require_confirmation
from spark_load.cli.run import run
from spark_load.profiles.profile import NamedProfile, Profile
from spark_load.runtime.deployment import LoadDeployment
from tests.support.declaration import environment

_STAGING = environment("staging")
_QUEUES = ("sluice-staging-billing.fifo", "sluice-staging-shipping.fifo", "sluice-staging-audit.fifo")
_SITE = LoadDeployment(
    endpoint_url=None,
    region="us-east-1",
    topic_arn="arn:aws:sns:us-east-1:123456789012:sluice-staging-events.fifo",
    topic="sluice-staging-events.fifo",
    queue_urls=dict.fromkeys(_QUEUES, "https://sqs"),
    dead_letter_queues={},
    visibility_timeout_seconds=dict.fromkeys(_QUEUES, 60),
    max_receive_count=dict.fromkeys(_QUEUES, 5),
    environment="staging",
)
_NAMED = NamedProfile("gate", Profile(messages_per_second=100, duration_seconds=1_000, group_count=500))


def _confirm_run(named: NamedProfile = _NAMED, *, is_terminal: bool = True, answer: str = "") -> Result:
    """Run a command that asks for confirmation of a load test, with this answer."""

    @click.command()
    def confirm() -> None:
        require_confirmation(_SITE, _STAGING, named, confirmed=False, is_terminal=is_terminal)
        click.echo("it runs")

    return CliRunner().invoke(confirm, input=answer)


def test_the_cost_is_shown_before_the_question() -> None:
    """With profile, environment, account, region, and the date of the prices."""
    result = _confirm_run(answer="y\n")

    assert result.exit_code == 0
    assert "gate on staging, account 123456789012, region us-east-1: 100,000 messages into 3 queue(s)" in result.stderr
    assert "USD 0." in result.stderr
    assert PRICE_DATE in result.stderr
    assert result.stdout == "it runs\n"


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_every_answer_other_than_yes_cancels_the_run(answer: str) -> None:
    result = _confirm_run(answer=answer)

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "it runs" not in result.stdout


def test_a_load_test_on_aws_without_a_terminal_needs_yes() -> None:
    """Nobody could answer the question, for instance in CI."""
    result = _confirm_run(is_terminal=False, answer="y\n")

    assert isinstance(result.exception, ConfigError)
    assert "a load test of 'staging' costs about USD 0." in str(result.exception)
    assert "add --yes to confirm (make load … YES=1)" in str(result.exception)


def test_a_profile_that_cannot_work_on_aws_is_refused_before_the_question() -> None:
    """90,000 messages a second are above SNS's quota."""
    eager = replace(_NAMED, profile=replace(_NAMED.profile, messages_per_second=90_000, duration_seconds=1))

    result = _confirm_run(eager, answer="y\n")

    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("profile 'gate' cannot work on AWS: ")


@pytest.mark.parametrize(
    ("fields", "consumer", "why"),
    [
        ("failure_share: 0.1", "worker", "failure_share is 0.1, allowed with consumer 'worker' is none"),
    ],
)
def test_a_consumer_that_cannot_do_what_the_profile_says_is_refused(
    tmp_path_factory: pytest.TempPathFactory, fields: str, consumer: str, why: str
) -> None:
    path = tmp_path_factory.mktemp("profiles") / "mine.yaml"
    path.write_text(f"messages_per_second: 1\nduration_seconds: 1\ngroup_count: 2\n{fields}\n", encoding="utf-8")
    invoke: Callable[..., Result] = CliRunner().invoke

    result = invoke(run, [str(path), "--consumer", consumer])

    assert isinstance(result.exception, ConfigError)
    assert f"profile 'mine' with --consumer worker: {why}" in str(result.exception)
