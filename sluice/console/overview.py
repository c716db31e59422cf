"""The overview: the state of the environment, again and again; and the verdict on what was sent."""

from typing import Any

from starlette.requests import Request

from sluice.cli.overview.facts import EnvironmentState
from sluice.cli.overview.screen import leader_text
from sluice.cli.overview.sources import Unknown
from sluice.cli.overview.verification import reconcile
from sluice.console import live_charts, rows
from sluice.console.state import Console
from sluice.console.views import Answer, Draw, parameter
from sluice.errors import ConfigError
from sluice.messaging.outbox.store import Lag

_POLL_SECONDS = 10
_REASONS_SHOWN = 5
_LOST_SHOWN = 200


def show_overview(console: Console, request: Request) -> Answer:
    """Show the page around the state."""
    return Draw("overview.html", {**_values(console), "is_live": parameter(request, "live") != "0"})


def show_live(console: Console, _: Request) -> Answer:
    """Show the state alone, which the page's script puts in the place of the one before."""
    return Draw("live.html", _values(console))


def show_verdict(console: Console, request: Request) -> Answer:
    """Show the verdict of `sluice outbox verify` on a topic, made now, when it is called for.

    As the task of every hour does, it judges only messages that are older than the longest time in flight.
    """
    topics = [topic.name for topic in console.environment.published_topics]
    topic = parameter(request, "topic") or next(iter(topics), "")
    found = None
    if parameter(request, "compare"):
        if topic not in topics:
            raise ConfigError(
                f"topic is {topic!r}, allowed is one that this environment publishes: {', '.join(topics)}"
            )
        compared = reconcile(console.sources, topic=topic, topic_arn=None, old_only=True, most=_LOST_SHOWN)
        found = compared.fields
    return Draw("verdict.html", {"page": "verdict", "topics": topics, "topic": topic, "found": found})


def _values(console: Console) -> dict[str, Any]:
    state, samples = console.look()
    return {
        "state": state,
        "charts": live_charts.draw(samples),
        "reasons": _read_reasons(state),
        "unknown": _unknown_reasons(state),
        "is_unknown": lambda value: isinstance(value, Unknown),
        "count_text": Lag.count_text,
        "key_of_consumer": rows.key_of_consumer,
        "leader_text": leader_text,
        "poll_seconds": _POLL_SECONDS,
        "page": "overview",
    }


def _read_reasons(state: EnvironmentState) -> list[tuple[str, Any]]:
    """Return the most frequent reasons of each consumer's dead numbers, with the consumer."""
    return [
        (each.consumer, reason)
        for each in state.consumers
        if not isinstance(each.inbox, Unknown)
        for reason in each.inbox.reasons[:_REASONS_SHOWN]
    ]


def _unknown_reasons(state: EnvironmentState) -> dict[str, str]:
    """Return each reason for which a value is unknown, and shown as ?, to the name of the first such value."""
    reasons: dict[str, str] = {}
    for topic in state.topics:
        for name in ("pending", "flow", "leader"):
            _add_reason(reasons, f"{name} of {topic.topic}", getattr(topic, name))
    for consumer in state.consumers:
        names = ("queue", "dead_letters", "undelivered", "oldest_seconds", "tasks", "inbox", "last_redrive")
        for name in names:
            _add_reason(reasons, f"{name.replace('_', ' ')} of {consumer.consumer}", getattr(consumer, name))
    return reasons


def _add_reason(reasons: dict[str, str], name: str, value: object) -> None:
    if isinstance(value, Unknown):
        reasons.setdefault(value.reason, name)
