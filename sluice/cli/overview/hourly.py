"""`sluice outbox verify --hourly`: the last verdict of the task of every hour, read from its log."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from sluice.cli.overview.sources import Unknown, opening
from sluice.cli.overview.verification import conclude
from sluice.clock import SystemClock, utc
from sluice.declaration import Environment, naming

_HOURS = 3  # then the alarm for a missing verdict rings


def show(
    *, environment: Environment, topic: str | None, endpoint_url: str | None, page: Path | None, as_json: bool
) -> None:
    """Print the verdict, write it as a page if `page` is given, and exit with its code.

    Each argument is the option of that name. No database is read.
    """
    declared = environment.topic(topic)
    service = naming.service_name(environment, naming.of_topic(environment, "outbox_verdict", declared))
    since_ms = round((utc(SystemClock().now_us()) - timedelta(hours=_HOURS)).timestamp() * 1_000)
    query = {"logGroupName": f"/ecs/{service}", "startTime": since_ms}

    def last_verdict(logs: Any) -> dict[str, Any] | Unknown:
        found: tuple[int, dict[str, Any] | Unknown] = (
            0,
            Unknown(f"the log group {query['logGroupName']} has no verdict of the last {_HOURS} hours"),
        )
        for answer in logs.get_paginator("filter_log_events").paginate(**query):
            for event in answer["events"]:
                verdict = _verdict_of(event["message"])
                if verdict is not None and event["timestamp"] >= found[0]:
                    found = event["timestamp"], verdict
        return found[1]

    with opening(environment, None, (), endpoint_url) as sources:
        conclude(sources.call("logs", last_verdict), page=page, as_json=as_json)


def _verdict_of(line: str) -> dict[str, Any] | None:
    """Return the verdict that a line of the log is; None for any other line."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"verdict", "properties", "restored_count"} <= found.keys() else None
