"""`sluice status`: print an environment's state once or again and again, and exit with the code that it calls for."""

import sys

from sluice.cli.overview import screen
from sluice.cli.overview.facts import EnvironmentState, gather
from sluice.cli.overview.sources import chosen_consumers, opening
from sluice.clock import SystemClock
from sluice.declaration import Environment
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, NEEDED


def show(
    *,
    environment: Environment,
    consumer_name: str | None,
    dsn: str | None,
    inboxes: tuple[str, ...],
    endpoint_url: str | None,
    watch_seconds: int | None,
    as_json: bool,
) -> None:
    """Print the state of an environment, once or every `watch_seconds` until Ctrl-C.

    It exits with 99 where something waits for a person, with 2 where a value that may hide such a thing is unknown.
    """
    consumers = chosen_consumers(environment, consumer_name)
    with opening(environment, dsn, inboxes, endpoint_url) as sources:
        before: EnvironmentState | None = None
        while True:
            facts = gather(sources, consumers)
            _print(facts, before, is_watched=watch_seconds is not None, as_json=as_json)
            if watch_seconds is None:
                break
            before = facts
            SystemClock().sleep(watch_seconds)
    if facts.needs:
        sys.exit(NEEDED)
    if facts.unknown:
        sys.exit(COULD_NOT)


def _print(facts: EnvironmentState, before: EnvironmentState | None, *, is_watched: bool, as_json: bool) -> None:
    """Print one state; if it is watched, on a cleared screen or as one line of JSON."""
    if as_json:
        output.as_json(screen.fields_of(facts), indent=None if is_watched else 2)
        return
    if is_watched:
        output.clear()
    for line in screen.lines_of(facts, before):
        output.line(line)
