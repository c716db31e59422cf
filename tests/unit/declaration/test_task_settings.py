"""A worker reads the values that its task's stack wrote, and checks them again."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.declaration import Consumer, Environment, ExistingTopic, Gaps, Lambda, Poison, Topic, naming, task_settings
from sluice.errors import ConfigError
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.environments import EXTRA
from tests.support.templates.strategies import environments

ALLOWED = "allowed is what the environment's stacks wrote there; deploy them again, or unset it"
BILLING = Consumer(name="billing", handlers="orders.billing", poison=Poison.PARK, gaps=Gaps.WAIT)
DEV = Environment(name="dev", consumers=(BILLING,))
THEIRS = ExistingTopic(
    arn="arn:aws:sns:us-east-1:111122223333:theirs.fifo", relay=True, foreign_subscribers_read_bundles=True
)
FIELDS = [field.name for field in fields(Consumer)]
FIRST_FIELDS = {
    *("name", "topic", "fifo", "queue", "filter_policy", "visibility_timeout_seconds", "max_attempts"),
    *("message_retention_seconds", "dead_letter_retention_seconds", "processing_seconds", "lanes", "expected_groups"),
    *("acceptable_latency_seconds", "min_tasks", "max_tasks", "stop_timeout_seconds", "cpu", "memory_mib", "image"),
    *("handlers", "poison", "gaps", "gap_wait_seconds", "joined_at", "inbox_retention_seconds", "automatic_redrive"),
}
"""Of a consumer, those that the first images know; no later field may be written where nothing is declared of it."""


@settings(max_examples=50, deadline=None, database=None)
@given(
    environment=environments(), gaps=st.sampled_from(Gaps), joined_at=st.none() | st.datetimes(timezones=st.just(UTC))
)
def test_settings_are_read_as_they_were_written(
    environment: Environment, gaps: Gaps, joined_at: datetime | None
) -> None:
    """Any environment survives the variable, which is one line."""
    first, *others = environment.consumers
    first = replace(first, filter_policy=None, fifo=True, gaps=gaps, joined_at=joined_at, handlers="orders.billing")
    whole = replace(environment, consumers=(first, *others))

    text = task_settings.render(whole)

    assert task_settings.parse(text) == whole
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("environment", [*ENVIRONMENTS.values(), *EXTRA.values()], ids=lambda value: value.name)
def test_a_worker_gets_its_consumer_and_every_name_it_goes_by(environment: Environment) -> None:
    """Queue, topic and region follow as from the whole declaration. The consumer is the same except for its image."""
    for consumer in environment.consumers:
        part = task_settings.parse(task_settings.render(task_settings.task_environment(environment, consumer)))

        assert part.consumers == (replace(consumer, image=None),)
        assert part.region == environment.region
        assert naming.topic_name(part) == naming.topic_name(environment, consumer.topic)
        assert naming.queue_name(part, consumer) == naming.queue_name(environment, consumer)


def test_a_field_unknown_to_older_images_is_written_only_where_declared() -> None:
    """An image from before Lambda functions can still be deployed as tasks. A function is given its `runtime`."""
    tasks, function = DEV, replace(DEV, consumers=(replace(BILLING, runtime=Lambda()),))

    written = json.loads(task_settings.render(tasks))
    assert written["consumers"][0].keys() == FIRST_FIELDS
    assert written["topics"][0].keys() == {"name", "producer_accounts", "subscriber_accounts"}
    assert {"migrate", "verification"}.isdisjoint(written)
    assert written["network"].keys() == {"cidr", "availability_zones", "restrict_default_security_group"}
    assert json.loads(task_settings.render(function))["consumers"][0]["runtime"]["batch_size"] == 1
    assert task_settings.parse(task_settings.render(function)) == function


@pytest.mark.parametrize("topic", [Topic(bundle_events_max=250), replace(THEIRS, bundle_events_max=250)])
def test_bundles_are_written_only_where_declared(topic: Topic | ExistingTopic) -> None:
    """The settings of a relay have a consumer that takes bundles of any size."""
    consumer = replace(BILLING, max_attempts=1, visibility_timeout_seconds=17, stop_timeout_seconds=1)
    declared = replace(DEV, topics=(topic,), consumers=(consumer,))

    assert "bundle" not in task_settings.render(task_settings.task_environment(DEV, None))
    for part in (consumer, None):
        written = task_settings.parse(task_settings.render(task_settings.task_environment(declared, part)))
        assert written.topics[0].bundle_events_max == 250


def test_a_task_is_given_nothing_it_does_not_read() -> None:
    """Tags, addresses and other consumers are left out, so changing them restarts no task."""
    busy = replace(DEV, tags={"team": "a"}, alarm_emails=("ops@example.com",), log_retention_days=7, image="worker:2")
    more = replace(busy, consumers=(BILLING, Consumer(name="audit")))

    assert task_settings.task_environment(more, BILLING) == task_settings.task_environment(DEV, BILLING)
    assert task_settings.task_environment(more, None) == task_settings.task_environment(DEV, None)


def test_a_relay_is_given_how_long_the_longest_inbox_remembers_a_group() -> None:
    """An outbox that forgot a group earlier would begin it again at 1, which that inbox takes for a copy."""
    long = replace(BILLING, name="audit", inbox_retention_seconds=9_000_000)
    environment = replace(DEV, consumers=(BILLING, long))

    part = task_settings.parse(task_settings.render(task_settings.task_environment(environment, None)))

    assert [consumer.inbox_retention_seconds for consumer in part.consumers] == [9_000_000]


def _refusal(text: str) -> str:
    """Return the refusal of these settings, without the words that all have."""
    with pytest.raises(ConfigError) as refused:
        task_settings.parse(text)
    content = str(refused.value)
    assert content.endswith(ALLOWED)
    assert len(content.splitlines()) == 1
    return content.removesuffix(ALLOWED).removeprefix("SLUICE_TASK_SETTINGS is ")


@pytest.mark.parametrize("text", ["", "{", "[]", "billing", "[" * 100_000])
def test_settings_that_cannot_be_read_are_refused(text: str) -> None:
    assert _refusal(text) == f"{text[:200]!r}, "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 0}, "Consumer('billing').lanes is 0, allowed is 1 to 120000 message groups"),
        (
            {"filter_policy": 7},
            "Consumer('billing').filter_policy is 7, allowed is a value of type Mapping[str, Sequence[object]] | None",
        ),
        (
            {"gaps": "ignore"},
            "Consumer('billing').gaps is 'ignore', allowed is Gaps.RECORD or Gaps.WAIT or Gaps.HALT",
        ),
        (
            {"joined_at": "yesterday"},
            "Consumer('billing').joined_at is 'yesterday', allowed is a value of type datetime.datetime | None",
        ),
        ({"priority": 1}, f"Consumer has no field 'priority', allowed is one of {', '.join(FIELDS)}"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(changes: dict[str, object], message: str) -> None:
    """They are validated like a declaration, and the refusal names the next step."""
    written = json.loads(task_settings.render(DEV))
    written["consumers"][0] |= changes

    assert _refusal(json.dumps(written)) == f"wrong: {message}; "
    assert _refusal("{}") == "wrong: Environment.name is missing, allowed is a value of type str; "


def test_a_field_missing_in_an_older_stacks_settings_has_its_default() -> None:
    written = json.loads(task_settings.render(DEV))
    del written["consumers"][0]["gap_wait_seconds"]

    assert task_settings.parse(json.dumps(written)) == DEV
