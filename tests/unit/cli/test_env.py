"""`sluice env`: what is declared, and the names that follow from it."""

import json

import pytest
from click.testing import CliRunner

from sluice.cli.commands import cli
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS


def _printed(*arguments: str) -> str:
    ended = CliRunner().invoke(cli, ["env", *arguments], catch_exceptions=False, standalone_mode=False)
    return ended.stdout


def test_every_environment_is_listed_with_its_consumers() -> None:
    listed = json.loads(_printed("--json"))

    assert [row["environment"] for row in listed] == list(ENVIRONMENTS)
    assert listed[0] == {
        "environment": "local",
        "account": "000000000000",
        "region": "us-east-1",
        "consumers": ["billing", "shipping", "audit"],
    }


def test_an_environments_names_are_those_of_its_stacks() -> None:
    """Written by hand here, because operators type them."""
    shown = json.loads(_printed("local", "--json"))

    assert shown["topic"] == "sluice-local-events.fifo"
    assert shown["consumers"][0] == {
        "consumer": "billing",
        "queue": "sluice-local-billing.fifo",
        "dlq": "sluice-local-billing-dlq.fifo",
        "undelivered_dlq": "sluice-local-billing-undelivered-dlq.fifo",
        "service": "sluice-local-billing",
    }


def test_tables_show_the_same() -> None:
    assert "staging" in _printed()
    assert "sluice-prod-audit-dlq.fifo" in _printed("prod")


def test_an_environment_that_is_not_declared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'prd' is not declared \(did you mean 'prod'\?\)"):
        CliRunner().invoke(cli, ["env", "prd"], catch_exceptions=False, standalone_mode=False)
