"""`sluice env` shows the declared environments, and the names that follow from them."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sluice.cli.main import cli
from sluice.cost.bill import MonthlyMessages, bill
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS


def _output_of(*arguments: str) -> str:
    """Return the output of `sluice env` with these arguments."""
    ended = CliRunner().invoke(cli, ["env", *arguments], catch_exceptions=False, standalone_mode=False)
    return ended.stdout


def test_every_environment_is_listed_with_its_consumers() -> None:
    listed = json.loads(_output_of("--json"))

    assert [row["environment"] for row in listed] == list(ENVIRONMENTS)
    assert listed[0] == {
        "environment": "local",
        "account": "000000000000",
        "region": "us-east-1",
        "consumers": ["billing", "shipping", "audit"],
    }


def test_an_environments_names_are_those_of_its_stacks() -> None:
    """The expected names are written by hand, because operators type them."""
    shown = json.loads(_output_of("local", "--json"))

    assert shown["topics"] == ["sluice-local-events.fifo"]
    assert shown["consumers"][0] == {
        "consumer": "billing",
        "topic": "sluice-local-events.fifo",
        "queue": "sluice-local-billing.fifo",
        "dlq": "sluice-local-billing-dlq.fifo",
        "undelivered_dlq": "sluice-local-billing-undelivered-dlq.fifo",
        "service": "sluice-local-billing",
    }


def test_env_prints_tables_with_environments_and_names() -> None:
    assert "staging" in _output_of()
    assert "sluice-prod-audit-dlq.fifo" in _output_of("prod")


def test_statements_for_other_peoples_policies_are_printed(tmp_path: Path) -> None:
    """A JSON document of statements for each policy, with whose it is; or that there is none."""
    file = tmp_path / "environments.py"
    file.write_text(
        "from sluice.declaration import Consumer, Environment, Topic\n"
        "TOPICS = (Topic(producer_accounts=('444455556666',)),)\n"
        "ENVIRONMENTS = (Environment(name='dev', account='111122223333', topics=TOPICS,"
        " consumers=(Consumer(name='billing'),)),)\n"
    )
    statement = {
        "Effect": "Allow",
        "Action": "sns:Publish",
        "Resource": "arn:aws:sns:us-east-1:111122223333:sluice-dev-events.fifo",
    }

    head, _, document = _output_of("dev", "--policies", "--declaration", str(file)).partition("\n")

    assert head == "444455556666: policy of the producer's role"
    assert json.loads(document) == [statement]
    assert json.loads(_output_of("dev", "--policies", "--json", "--declaration", str(file))) == [
        {"owner": "444455556666", "attached_to": "the producer's role", "statements": [statement]}
    ]
    assert _output_of("local", "--policies") == (
        "environment 'local' has nothing that somebody else would have to allow\n"
    )


def test_policies_take_a_declared_account() -> None:
    """The environment prod declares none."""
    with pytest.raises(ConfigError, match=r"account is None, allowed is twelve digits: policies name the account"):
        _output_of("prod", "--policies")


def test_the_cost_of_a_volume_is_printed_with_the_largest_line_first() -> None:
    """`tests/unit/cost` computes the costs by hand.

    This test checks that the options reach them and all lines are printed.
    """
    printed = _output_of("cost", "prod", "--messages-per-month", "50M", "--size", "2k")
    made = bill(ENVIRONMENTS["prod"], MonthlyMessages(messages=50_000_000, message_bytes=2_000))

    first, *_ = printed.splitlines()
    assert first == (
        f"prod: about {made.usd:,.2f} US dollars a month for 50,000,000 messages of 2,000 bytes; the most is"
        f" {max(made.lines, key=lambda name: made.lines[name])}"
    )
    where = [printed.index(name) for name in sorted(made.lines, key=lambda name: -made.lines[name]) if made.lines[name]]
    assert where[1:] == sorted(where[1:])
    assert all(name in printed for name in made.instead)
    assert "list prices of us-east-1, read 2026-" in printed


def test_the_cost_as_json_has_every_line_and_their_sum() -> None:
    """A volume of 1.5 billion messages of 2 KiB, with a warning that billing needs more tasks."""
    printed = json.loads(_output_of("cost", "dev", "--json", "--messages-per-month", "1.5b", "--size", "2KiB"))

    assert printed["messages"] == 1_500_000_000
    assert printed["message_bytes"] == 2_048
    assert sum(printed["lines"].values()) == pytest.approx(printed["usd"])
    assert [service["consumer"] for service in printed["services"]] == ["billing", "shipping", "audit"]
    assert printed["warnings"][0].startswith("billing needs ")


def test_env_show_equals_env() -> None:
    """An environment may be called `cost`, which is a command; `show cost` shows the environment."""
    assert _output_of("show", "prod") == _output_of("prod")
    assert _output_of("show") == _output_of()


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("--messages-per-month", "many"), "it is 'many', allowed is a number such as 800000, 250k, 50M or 1.5B"),
        (("--messages-per-month", "5T"), "it is '5T', allowed is a number such as 800000, 250k, 50M or 1.5B"),
        (("--messages-per-month", "-5"), "it is '-5', allowed is a number such as 800000, 250k, 50M or 1.5B"),
        (("--messages-per-month", "nan"), "it is 'nan', allowed is a number such as 800000, 250k, 50M or 1.5B"),
        (
            ("--messages-per-month", "10001B"),
            "it is '10001B', which is 10,001,000,000,000, allowed is 0 to 10,000,000,000,000",
        ),
        (("--size", "2x"), "it is '2x', allowed is a number such as 900, 2k (2,000 bytes), 2KiB (2,048) or 1MiB"),
        (("--size", "0"), "it is '0', which is 0, allowed is 1 to 1,048,576"),
        (("--size", "1.1MiB"), "it is '1.1MiB', which is 1,153,434, allowed is 1 to 1,048,576"),
    ],
)
def test_an_invalid_number_is_refused(arguments: tuple[str, ...], refusal: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        _output_of("cost", "prod", *arguments)

    assert refused.value.message == refusal


def test_a_size_above_that_of_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        _output_of("cost", "prod", "--size", "262145")

    assert str(refused.value) == (
        "--size is 262,145 bytes, allowed in prod is at most 262,144, its event_bytes_max; lower it, or raise"
        " event_bytes_max"
    )


def test_an_environment_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'prd' is not declared \(did you mean 'prod'\?\)"):
        CliRunner().invoke(cli, ["env", "prd"], catch_exceptions=False, standalone_mode=False)
