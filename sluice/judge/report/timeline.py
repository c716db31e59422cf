"""The timeline of one violation: publishes, leases and deletes of the messages around it, a row for each message."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import altair as alt

from sluice.history.events import CallOutcome, Kind, is_end_marker
from sluice.judge.checker.anomalies import ANOMALIES
from sluice.judge.checker.verdict import Violation
from sluice.judge.folder.series_schema import RunSeries
from sluice.pages import charts, units
from sluice.pages.charts import Axis, Bar
from sluice.pages.parts import Figure, draw_figure

_MESSAGES_MAX = 6
_US = 1_000_000
_VISIBLE_SHARE = 0.004
_RECEIVE_CALL = "receive call"
_TONES = {
    "publish": "var(--publish)",
    "leased": "var(--lease)",
    "in question": "var(--bad)",
    "no answer, or failed": "var(--trouble)",
    _RECEIVE_CALL: "var(--soft)",
    "delete": "var(--ink)",
    "visibility change": "var(--soft)",
}

type EventFields = Mapping[str, Any]


def draw(violation: Violation, run_series: RunSeries, *, name: str) -> Figure | None:
    """Return the timeline as a figure; None if no event has a time."""
    laid = lay_out(violation, run_series)
    if laid is None:
        return None
    title = f"{ANOMALIES[violation.anomaly].name} in group {violation.message_group_id}"
    return draw_figure(laid, name=name, title=title, description=violation.sentence)


def lay_out(violation: Violation, series: RunSeries) -> alt.LayerChart | None:
    """Return the timeline as a chart, before it is drawn."""
    events = _events(violation, series["groups"].get(violation.message_group_id, ()))
    events = _events_near(events, violation)
    if not events:
        return None
    window = _window(events)
    short = units.short_names(list(series["queues"]))
    rows: dict[tuple[int, int, str], str] = {}
    bars: list[Bar] = []
    origin = series["started_at_us"]
    for event in events:
        source = "publish" if event["kind"] == Kind.PUBLISHED else short.get(event["queue"], event["queue"])
        row = f"{source} {'end' if is_end_marker(event['idx']) else f'#{event["idx"]}'}"
        rows[_row_position(event, series)] = row
        bars += [_clip_bar(bar, window, origin) for bar in _bars(event, events, row, violation, series)]
    return charts.timeline(
        [bar for bar in bars if bar.tone != _RECEIVE_CALL],
        thin=[bar for bar in bars if bar.tone == _RECEIVE_CALL],
        rows=[rows[key] for key in sorted(rows)],
        tones=_TONES,
        x=Axis(
            title="seconds since the first intended publish",
            domain=((window[0] - origin) / _US, (window[1] - origin) / _US),
        ),
    )


def _row_position(event: EventFields, series: RunSeries) -> tuple[int, int, str]:
    """Return the position of a row: publishes first, then queues in the declared order, then others.

    End markers last.
    """
    queues = list(series["queues"])
    if event["kind"] == Kind.PUBLISHED:
        position = -1
    else:
        position = queues.index(event["queue"]) if event["queue"] in queues else len(queues)
    idx = event["idx"]
    return position, 2**62 - idx if is_end_marker(idx) else idx, event["queue"]


def _events(violation: Violation, stored: Sequence[EventFields]) -> list[EventFields]:
    """Return the group's events and those of the witness, each once."""
    found: dict[tuple[object, ...], EventFields] = {}
    for event in (*stored, *(witness.as_dict() for witness in violation.witness)):
        if event.get("invoked_at_us") is not None and event.get("idx") is not None and event.get("queue") is not None:
            key = tuple(event.get(name) for name in ("kind", "call_id", "batch_position", "idx", "queue"))
            found.setdefault(key, event)
    return sorted(found.values(), key=lambda event: event["invoked_at_us"])


def _events_near(events: Sequence[EventFields], violation: Violation) -> list[EventFields]:
    """Return the events of the violation's messages and their neighbours, in the queue of the violation."""
    witnesses = [event for event in violation.witness if event.idx is not None]
    shown_idxs = list(dict.fromkeys([*violation.idxs, *(event.idx for event in witnesses if event.idx is not None)]))
    shown_idxs = shown_idxs[:_MESSAGES_MAX]
    others = sorted(
        {event["idx"] for event in events} - set(shown_idxs),
        key=lambda idx: min(abs(idx - shown) for shown in shown_idxs or [0]),
    )
    idxs = {*shown_idxs, *others[: max(0, min(2, _MESSAGES_MAX - len(shown_idxs)))]}
    queues = {event.queue for event in witnesses if event.kind != Kind.PUBLISHED} | (
        set() if violation.queue is None else {violation.queue}
    )
    return [
        event
        for event in events
        if event["idx"] in idxs and (event["kind"] == Kind.PUBLISHED or not queues or event["queue"] in queues)
    ]


def _window(events: Sequence[EventFields]) -> tuple[float, float]:
    """Return the shown time: every call, with a margin. Leases are cut."""
    instants = [
        instant for event in events for instant in (event["invoked_at_us"], event.get("responded_at_us")) if instant
    ]
    margin = max(10_000, 0.06 * (max(instants) - min(instants)))
    return min(instants) - margin, max(instants) + margin


def _clip_bar(bar: Bar, window: tuple[float, float], origin: int) -> Bar:
    """Return the visible part of a bar, in seconds, and wide enough to be seen."""
    began, ended = (min(max(instant, window[0]), window[1]) for instant in (bar.began, bar.ended))
    if bar.ended > bar.began:
        ended = max(ended, began + _VISIBLE_SHARE * (window[1] - window[0]))
    return Bar(row=bar.row, tone=bar.tone, began=(began - origin) / _US, ended=(ended - origin) / _US)


def _bars(
    event: EventFields, events: Sequence[EventFields], row: str, violation: Violation, series: RunSeries
) -> list[Bar]:
    """Return the bars of one event."""
    invoked, responded = event["invoked_at_us"], event.get("responded_at_us")
    kind, is_ok = event["kind"], _is_ok(event)
    if kind == Kind.RECEIVED:
        tone = "in question" if event["idx"] in violation.idxs else "leased"
        began = invoked if responded is None else responded
        lease = Bar(row=row, tone=tone, began=began, ended=max(began, _lease_end(event, events, series)))
        return [Bar(row=row, tone=_RECEIVE_CALL, began=invoked, ended=began), lease]
    if kind == Kind.PUBLISHED:
        label = "in question" if event["idx"] in violation.idxs else "publish"
        tone = label if is_ok else "no answer, or failed"
        return [Bar(row=row, tone=tone, began=invoked, ended=max(invoked + 1_000, responded or 0))]
    label = "delete" if kind == Kind.DELETED else "visibility change"
    tone = label if is_ok else "no answer, or failed"
    return [Bar(row=row, tone=tone, began=invoked, ended=invoked)]


def _lease_end(event: EventFields, events: Sequence[EventFields], series: RunSeries) -> int:
    """Return the end of a lease, as far as the events show: by a delete, or by its last timeout."""
    seconds: int = event.get("visibility_timeout_seconds", series["visibility"].get(event["queue"], 0))
    over = int(event["invoked_at_us"]) + seconds * _US
    tried = [other for other in events if other.get("receipt_handle_hash") == event.get("receipt_handle_hash")]
    for other in sorted(tried, key=itemgetter("invoked_at_us")):
        tried_us = int(other["invoked_at_us"])
        if other["kind"] == Kind.VISIBILITY_CHANGED and _is_ok(other) and tried_us <= over:
            over = tried_us + int(other.get("visibility_timeout_seconds", 0)) * _US
        elif other["kind"] == Kind.DELETED:
            over = min(over, tried_us)
    return over


def _is_ok(event: EventFields) -> bool:
    return bool(event.get("outcome", CallOutcome.OK) == CallOutcome.OK)
