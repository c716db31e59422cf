"""What a task's stack writes is what its worker reads: the same values, checked again."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, Environment, Gaps, Poison, naming, task_settings
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS
from tests.unit.stacks.extra import EXTRA
from tests.unit.stacks.strategies import environments

ALLOWED = "; allowed is what the environment's stacks wrote there; deploy them again, or unset it"
BILLING = Consumer(name="billing", handlers="orders.billing", poison=Poison.PARK, gaps=Gaps.WAIT)
DEV = Environment(name="dev", consumers=(BILLING,))


@settings(max_examples=50, deadline=None, database=None)
@given(
    environment=environments(), gaps=st.sampled_from(Gaps), joined_at=st.none() | st.datetimes(timezones=st.just(UTC))
)
def test_what_is_written_is_what_is_read(environment: Environment, gaps: Gaps, joined_at: datetime | None) -> None:
    """Any environment: enumerations, instants, networks and filter policies come back as they were."""
    first, *others = environment.consumers
    first = replace(first, filter_policy=None, gaps=gaps, joined_at=joined_at, handlers="orders.billing")
    whole = replace(environment, consumers=(first, *others))

    text = task_settings.render(whole)

    assert task_settings.parse(text) == whole
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=lambda value: value.name)
def test_a_worker_gets_its_consumer_and_every_name_it_goes_by(environment: Environment) -> None:
    """Queue, topic and region are those of the whole declaration; the consumer is, but for its image."""
    for consumer in environment.consumers:
        part = task_settings.parse(task_settings.render(task_settings.task_environment(environment, consumer)))

        assert part.consumers == (replace(consumer, image=None),)
        assert part.region == environment.region
        assert naming.topic_name(part) == naming.topic_name(environment)
        assert naming.queue_name(part, consumer) == naming.queue_name(environment, consumer)


def test_a_task_is_given_nothing_it_does_not_read() -> None:
    """Tags, addresses and other consumers: changing them starts no task again."""
    busy = replace(DEV, tags={"team": "a"}, alarm_emails=("ops@example.com",), log_retention_days=7, image="worker:2")
    more = replace(busy, consumers=(BILLING, Consumer(name="audit")))

    assert task_settings.task_environment(more, BILLING) == task_settings.task_environment(DEV, BILLING)
    assert task_settings.task_environment(more, None) == task_settings.task_environment(DEV, None)


def _changed(**changes: Any) -> str:
    written = json.loads(task_settings.render(DEV))
    written["consumers"][0] |= changes
    return json.dumps(written)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "SLUICE_TASK_SETTINGS is ''"),
        ("{", "SLUICE_TASK_SETTINGS is '{'"),
        ("[]", "SLUICE_TASK_SETTINGS is '[]'"),
        ("billing", "SLUICE_TASK_SETTINGS is 'billing'"),
        ("[" * 100_000, f"SLUICE_TASK_SETTINGS is '{'[' * 200}'"),
        (
            "{}",
            "SLUICE_TASK_SETTINGS is wrong: Environment.name is missing, allowed is a value of type str",
        ),
        (
            _changed(lanes=0),
            "SLUICE_TASK_SETTINGS is wrong: Consumer('billing').lanes is 0, allowed is 1 to 120000 message groups",
        ),
        (
            _changed(max_attempts=5_000),
            "SLUICE_TASK_SETTINGS is wrong: Consumer('billing').max_attempts is 5000, allowed is 1 to 1000 receives",
        ),
        (
            _changed(filter_policy=7),
            "SLUICE_TASK_SETTINGS is wrong: Consumer('billing').filter_policy is 7, allowed is a value of type"
            " Mapping[str, Sequence[object]] | None",
        ),
        (
            _changed(gaps="ignore"),
            "SLUICE_TASK_SETTINGS is wrong: Consumer('billing').gaps is 'ignore', allowed is Gaps.RECORD or Gaps.WAIT"
            " or Gaps.HALT",
        ),
        (
            _changed(joined_at="yesterday"),
            "SLUICE_TASK_SETTINGS is wrong: Consumer('billing').joined_at is 'yesterday', allowed is a value of type"
            " datetime.datetime | None",
        ),
        (
            _changed(priority=1),
            "SLUICE_TASK_SETTINGS is wrong: Consumer has no field 'priority', allowed is one of name, filter_policy,",
        ),
    ],
)
def test_settings_that_cannot_be_right_are_refused(text: str, message: str) -> None:
    """In one line, with the validation of a declaration, and the next step."""
    with pytest.raises(ConfigError) as refused:
        task_settings.parse(text)

    content = str(refused.value)
    assert content.startswith(message)
    assert content.endswith(ALLOWED.removeprefix("; "))
    assert len(content.splitlines()) == 1


def test_settings_of_an_older_stack_have_the_defaults_of_what_they_lack() -> None:
    """An image may know fields that the stack did not write."""
    written = json.loads(task_settings.render(DEV))
    del written["consumers"][0]["gap_wait_seconds"]

    assert task_settings.parse(json.dumps(written)) == DEV
