"""The page with charts: one file of HTML and inline SVG, which needs neither the network nor scripts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from sluice.clock import utc
from sluice.judge.checker.anomalies import ANOMALIES, NOT_JUDGED
from sluice.judge.checker.verdict import EXIT_CROSSED, Property, PropertyState, Verdict, Violation
from sluice.judge.folder.series_schema import EXACT_MAX, RunSeries
from sluice.judge.report import figures, timeline
from sluice.judge.report.summary import (
    CONSUMER,
    FAMILIES,
    NO_THRESHOLD,
    NOT_EXERCISED,
    ThresholdResult,
    bundle_counts,
    consumer,
    exercise_sentence,
    families,
    harm_sentence,
    means,
    reasons,
    recovery,
    replay_sentence,
    since,
    threshold_results,
    unit,
    where,
    witness_lines,
)
from sluice.pages import units
from sluice.pages.parts import Figure, figure_html, fill, list_items, pairs, rows_html, table_html

_TEMPLATE = Path(__file__).resolve().parent / "page.html"
_SIGNS = {
    PropertyState.HOLDS: "✓",
    PropertyState.VIOLATED: "✗",
    PropertyState.CROSSED: "!",
    PropertyState.ALLOWED: "~",
    PropertyState.SEEN: "•",
    PropertyState.UNKNOWN: "?",
    PropertyState.NO_THRESHOLD: "-",
    PropertyState.NOT_EXERCISED: "○",
}
_TIMELINES_MAX = 16  # drawing one takes a fifth of a second


def html(verdict: Verdict, run_series: RunSeries) -> str:
    """Return the page as HTML."""
    run, is_crossed = verdict.run, verdict.exit_code == EXIT_CROSSED
    parts = {
        "title": escape(f"{verdict.status.value.upper()}: {run['run']}"),
        "status": "crossed" if is_crossed else verdict.status.value,
        "word": verdict.status.value.upper() + _caveat_text(verdict),
        "heading": escape(str(run["run"])),
        "under": f'<p class="soft">{_subtitle(verdict, run_series)}</p><dl class="tiles">{_tiles(verdict)}</dl>',
        "means": escape(means(verdict)),
        "reasons": list_items(reasons(verdict)),
        "consumer": _consumer(verdict),
        "families": escape(" · ".join(families(verdict))),
        "exercised": escape(exercise_sentence(verdict)),
        "counts": _counts(verdict.properties),
        "cells": _cells(verdict.properties),
        "properties": _properties(verdict.properties),
        "anomalies": _anomalies(verdict, run_series),
        "faults": _faults(verdict, run_series),
        "charts": "".join(map(figure_html, _over_time(run_series, unit(verdict.measures), is_scaled="scaling" in run))),
        "ranks": "".join(map(figure_html, _by_rank(run_series)))
        or '<p class="soft">No latency was measured of two groups.</p>',
        "tables": "".join(map(table_html, figures.tables(run_series))),
        "trouble": _failures(verdict, run_series),
        "thresholds": _thresholds(threshold_results(verdict)),
        "deviations": _deviations(verdict),
        "environment": _environment(verdict),
        "profile": escape(yaml.safe_dump(dict(run["profile"]), sort_keys=False).rstrip())
        if "profile" in run
        else "A recording has none.",
        "measuring": _measuring(verdict, run_series),
    }
    return fill(_TEMPLATE, parts)


def _caveat_text(verdict: Verdict) -> str:
    """Return the text beside the word VALID if it has caveats."""
    if verdict.exit_code != EXIT_CROSSED:
        return ""
    return ", but mend your consumer" if verdict.conduct else ", a threshold crossed"


def _consumer(verdict: Verdict) -> str:
    sentences = consumer(verdict)
    return f'<h2 id="consumer">{CONSUMER}</h2><ul>{list_items(sentences)}</ul>' if sentences else ""


def _subtitle(verdict: Verdict, series: RunSeries) -> str:
    run, started_at = verdict.run, utc(series["started_at_us"])
    when = f"{started_at:%Y-%m-%d %H:%M:%S} UTC" if series["started_at_us"] else "never begun"
    span = units.seconds(series["bin_seconds"] * series["bin_count"])
    if "profile" not in run:
        return escape(f"A recording, {run.get('history', '?')} ({run.get('target', '?')}), {when}, {span}")
    sabotage = f", sabotaged on purpose: {run['saboteur']}" if run.get("saboteur") else ""
    return escape(
        f"Profile {run.get('profile_name', '?')} on environment {run.get('environment', '?')}"
        f" ({run.get('target', '?')}), {when}, {span}{sabotage}"
    )


def _tiles(verdict: Verdict) -> str:
    """Return the most important numbers as tiles."""
    measures = verdict.measures
    if not measures:
        return ""
    short = units.short_names(list(measures["queues"]))
    published, counted = measures["published"], unit(measures)
    tiles = [
        ("published", f"{published['count']:,}", f"{counted}, {units.rate(published['per_second'])}"),
        *(
            (
                f"received, {short[queue]}",
                f"{of['received']['count']:,}",
                f"{counted}, {units.rate(of['received']['per_second'])};"
                f" p50 {_quantile(of, 'p50')}, p99 {_quantile(of, 'p99')}",
            )
            for queue, of in measures["queues"].items()
        ),
        *([("received, in all", *counts)] if (counts := bundle_counts(measures)) is not None else []),
        (
            "recorded",
            f"{measures['events']:,}",
            f"events in {units.plural(measures['groups'], 'group')}, {measures['suspect_groups']:,} looked at closely",
        ),
    ]
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{number}</strong> {escape(more)}</dd></div>"
        for name, number, more in tiles
    )


def _quantile(of: Mapping[str, Any], name: str) -> str:
    return units.duration(of["latency_us"][name] if of["latency_us"] else None)


def _css_class(holding: PropertyState) -> str:
    return holding.value.replace(" ", "-")


def _state_mark(holding: PropertyState) -> str:
    return f'<span class="mark {_css_class(holding)}">{_SIGNS[holding]} {holding.value}</span>'


def _counts(properties: Sequence[Property]) -> str:
    count = Counter(prop.holding for prop in properties)
    return " ".join(f"<li>{_state_mark(holding)} {count[holding]}</li>" for holding in PropertyState if count[holding])


def _cells(properties: Sequence[Property]) -> str:
    """Return a cell for every property, with its name; the table below has the same for those who cannot see it."""
    rows = "".join(
        f'<p class="cells"><strong>{name}</strong> {"".join(map(_cell, tried))}</p>'
        for name, tried in _by_family(_is_tried, properties)
    )
    others = "".join(_cell(prop) for prop in properties if not _is_tried(prop))
    return (
        f'<div role="group" aria-label="Every property, with a link to its row">{rows}'
        f"{_fold(properties, f'''<p class="cells">{others}</p>''')}</div>"
    )


def _is_tried(prop: Property) -> bool:
    return prop.holding not in (PropertyState.NOT_EXERCISED, PropertyState.NO_THRESHOLD)


def _by_family(
    is_chosen: Callable[[Property], bool], properties: Iterable[Property]
) -> Iterator[tuple[str, list[Property]]]:
    """Yield each family's name with its chosen properties, if it has any."""
    for initial, name in FAMILIES.items():
        chosen = [prop for prop in properties if prop.anomaly.startswith(initial) and is_chosen(prop)]
        if chosen:
            yield name, chosen


def _fold(properties: Sequence[Property], html: str) -> str:
    """Return the properties that were not exercised as a list that is folded below a line with their number."""
    count = sum(not _is_tried(prop) for prop in properties)
    summary = (
        f"{units.plural(count, 'property').replace('propertys', 'properties')} not exercised, or without a threshold"
    )
    return f"<details><summary>{summary}</summary>{html}</details>" if count else ""


def _cell(prop: Property) -> str:
    known = ANOMALIES[prop.anomaly]
    return (
        f'<a class="cell {_css_class(prop.holding)}" href="#{prop.anomaly}" title="{prop.anomaly} {escape(known.name)}:'
        f' {prop.holding.value}">{escape(known.name)} <span>{_SIGNS[prop.holding]}</span></a>'
    )


def _properties(properties: Sequence[Property]) -> str:
    """Return a table of the properties that were exercised, and another, folded, of the others."""
    return _table(_is_tried, properties) + _fold(properties, _table(lambda prop: not _is_tried(prop), properties))


def _table(is_chosen: Callable[[Property], bool], properties: Sequence[Property]) -> str:
    rows = "".join(
        f'<tr class="family"><th scope="rowgroup" colspan="5">{name}</th></tr>{"".join(map(_property, chosen))}'
        for name, chosen in _by_family(is_chosen, properties)
    )
    titles = ("id", "nothing was …", "verdict", "found", "opportunities")
    return rows_html(titles, rows, css="properties", numbers=titles[-2:]) if rows else ""


def _property(prop: Property) -> str:
    known = ANOMALIES[prop.anomaly]
    why = {
        PropertyState.ALLOWED: f"Allowed: {prop.allowed_because}.",
        PropertyState.NO_THRESHOLD: f"{NO_THRESHOLD.capitalize()}.",
        PropertyState.NOT_EXERCISED: f"{NOT_EXERCISED.capitalize()}.",
    }
    note = why.get(prop.holding, "")
    return (
        f'<tr id="{known.id}" class="{_css_class(prop.holding)}"><td class="id">{known.id}</td>'
        f'<th scope="row">{escape(known.name)}<small>{escape(known.definition)} {escape(note)}</small></th>'
        f'<td>{_state_mark(prop.holding)}</td><td class="number" data-title="found">{prop.violation_count:,}</td>'
        f'<td class="number" data-title="of opportunities">{prop.opportunities:,}</td></tr>'
    )


def _faults(verdict: Verdict, series: RunSeries) -> str:
    """Return the faults of the run above the backlog, and the time to their recovery; empty without faults."""
    done = verdict.measures.get("faults", ())
    drawn = figures.faults(series, done)
    if drawn is None:
        return ""
    allowed = verdict.run.get("profile", {}).get("recovery_seconds_max")
    bound = "The profile sets no recovery_seconds_max." if allowed is None else f"Allowed: {units.seconds(allowed)}."
    rows = "".join(
        f'<tr><th scope="row">{escape(" ".join((fault["kind"], fault["how"])))}</th><td>{escape(fault["target"])}</td>'
        f'<td class="number" data-title="from">{_since_start(fault["began_at_us"], series)}</td>'
        f'<td class="number" data-title="to">{_since_start(fault["ended_at_us"], series)}</td>'
        f'<td class="number" data-title="recovered after">{_recovery_html(fault, allowed)}</td></tr>'
        for fault in done
    )
    times = ("from", "to", "recovered after")
    table = rows_html(("fault", "target", *times), rows, css="thresholds", numbers=times)
    return (
        f'<h2 id="faults">Faults</h2><p>{escape(harm_sentence(verdict) or "")}. {bound}</p>'
        f'<div class="apart"><figure>{drawn.svg}<figcaption>{escape(drawn.description)}</figcaption></figure>'
        f'<div class="scroll">{table}</div></div>'
    )


def _since_start(at_us: int | None, series: RunSeries) -> str:
    return units.NONE if at_us is None else f"{(at_us - series['started_at_us']) / 1e6:.1f} s"


def _recovery_html(fault: Mapping[str, Any], allowed: float | None) -> str:
    """Return the time from a fault to the recovery of its queues, marked by whether the threshold was kept."""
    seconds = recovery(fault)
    if seconds is None:
        queues = ", ".join(queue for queue, after in fault["recovered_in_seconds"].items() if after is None)
        return escape(f"nothing followed in {queues}")
    if allowed is None:
        return units.seconds(seconds)
    holding = PropertyState.HOLDS if seconds <= allowed else PropertyState.CROSSED
    return f'<span class="mark {_css_class(holding)}">{_SIGNS[holding]} {units.seconds(seconds)}</span>'


def _over_time(series: RunSeries, counted: str, *, is_scaled: bool) -> list[Figure]:
    return [
        figures.throughput(series, counted),
        figures.backlog(series, counted),
        *((figures.tasks(series),) if is_scaled else ()),
        *(
            figures.latency(series, queue, name=f"latency-{index}")
            for index, (queue, of) in enumerate(series["queues"].items())
            if any(of["latency_us"]["count"])  # a recording has no latencies, because it has no intended times
        ),
    ]


def _by_rank(series: RunSeries) -> list[Figure]:
    measured = [queue for queue, of in series["queues"].items() if any(of["latency_us"]["count"])]
    drawn = (figures.ranks(series, queue, name=f"rank-{index}") for index, queue in enumerate(measured))
    return [figure for figure in drawn if figure is not None]


def _anomalies(verdict: Verdict, series: RunSeries) -> str:
    if not verdict.violations:
        return '<p class="soft">None to show.</p>'
    shown = [_anomaly(violation, series, index) for index, violation in enumerate(verdict.violations)]
    found = sum(
        prop.violation_count
        for prop in verdict.properties
        if prop.holding in (PropertyState.VIOLATED, PropertyState.CROSSED)
    )
    note = f"{units.plural(found, 'anomaly').replace('anomalys', 'anomalies')} found"
    return (
        f'<p class="soft">{note}, {len(shown)} shown: the first of each kind.</p>'
        f'<div class="anomalies">{"".join(shown)}</div>'
    )


def _anomaly(violation: Violation, series: RunSeries, index: int) -> str:
    known = ANOMALIES[violation.anomaly]
    drawn = timeline.draw(violation, series, name=f"timeline-{index}") if index < _TIMELINES_MAX else None
    witness = "".join(f"<li>{escape(line.replace('`', ''))}</li>" for line in witness_lines(violation))
    return (
        f'<article class="anomaly"><h3><a href="#{known.id}">{known.id}</a> {escape(known.name)}</h3>'
        f"<p><strong>{escape(violation.sentence)}</strong><br><span class='soft'>{escape(where(violation))}</span></p>"
        f"{drawn.svg if drawn is not None else ''}"
        f"<details><summary>{units.plural(len(violation.witness), 'event')} that show it"
        f"{escape(since(violation))}</summary>"
        f'<ol class="witness">{witness}</ol></details></article>'
    )


def _failures(verdict: Verdict, series: RunSeries) -> str:
    """Return the charts of failed, throttled and redelivered messages."""
    drawn = figures.failures(series)
    again = {queue: sum(of["again"]) for queue, of in series["queues"].items()}
    rows = [
        *((f"failed with {code}", f"{sum(counts):,}") for code, counts in series["failed"].items()),
        *((f"received again from {queue}", f"{count:,}") for queue, count in again.items() if count),
    ]
    calls = verdict.measures.get("calls")
    if calls:
        rows.append((f"throttled, of {calls['count']:,} calls", f"{calls['throttled']:,}"))
    if not rows:
        return '<p class="soft">No call failed, none was throttled, and nothing came a second time.</p>'
    return (figure_html(drawn) if drawn is not None else "") + pairs(rows)


def _thresholds(rows: Sequence[ThresholdResult]) -> str:
    if not rows:
        return '<p class="soft">The profile sets none.</p>'
    body = "".join(
        f'<tr><td class="id"><a href="#{row.anomaly}">{row.anomaly}</a></td><th scope="row">{escape(row.measure)}</th>'
        f'<td data-title="seen">{escape(row.seen)}</td><td data-title="allowed">{escape(row.allowed)}</td>'
        f"<td>{_state_mark(PropertyState.HOLDS if row.is_met else PropertyState.CROSSED)}</td></tr>"
        for row in rows
    )
    return rows_html(("id", "measure", "seen", "allowed", ""), body, css="thresholds")


def _deviations(verdict: Verdict) -> str:
    known = verdict.run.get("known_deviations", {})
    allowed = {prop.anomaly: prop.allowed_because for prop in verdict.properties if prop.allowed_because is not None}
    both = {**allowed, **known, **verdict.run.get("allowed", {})}
    if not both:
        return '<p class="soft">None are known of this target, and the profile allows none.</p>'
    return pairs((f"{anomaly} {ANOMALIES[anomaly].name}", str(why)) for anomaly, why in both.items())


def _environment(verdict: Verdict) -> str:
    run = verdict.run
    is_run = "profile" in run
    rows = [
        ("run", run["run"]),
        ("profile", run.get("profile_name")),
        ("seed", run.get("seed")),
        ("environment", run.get("environment")),
        ("target", run.get("target")),
        ("endpoint", (run.get("endpoint_url") or "AWS") if is_run else None),
        ("transport", run.get("transport")),
        ("consumer", run.get("consumer")),
        ("sabotage", (run.get("saboteur") or "none") if is_run else None),
        *((name, value) for name, value in (run.get("machine") or {}).items()),
        *((f"version of {name}", value) for name, value in (run.get("versions") or {}).items()),
        *((f"receives of {queue} before its DLQ", of) for queue, of in (run.get("max_receive_count") or {}).items()),
        ("recorders", len(run.get("recorders") or ())),
    ]
    return pairs((name, str(value)) for name, value in rows if value is not None)


def _measuring(verdict: Verdict, series: RunSeries) -> str:
    not_judged = ", ".join(f"{anomaly.id} {anomaly.name}" for anomaly in NOT_JUDGED)
    warm_up = (
        "There was no warm-up."
        if series["warm_up"] is None
        else f"The warm-up, until {units.seconds(series['warm_up'][1])}, is shaded;"
        " it is in no percentile by group, no measure and no threshold."
    )
    replay = replay_sentence(verdict.measures)
    return list_items(
        [
            *([] if replay is None else [replay]),
            "Latency is from the instant the plan intended a message to be published, not from when that succeeded,"
            " to its first receive from a queue.",
            f"Percentiles are exact in a small history. In one of more than {EXACT_MAX:,} latencies, each is at most"
            f" 1 / {series['accuracy']:,} below its value. The largest is exact.",
            f"A bin is {series['bin_seconds']:g} s; the last one may be shorter than that, and its rate look lower.",
            warm_up,
            f"Not judged, because no run records it: {not_judged}.",
            f"The program that judged ended with exit code {verdict.exit_code}.",
        ]
    )
