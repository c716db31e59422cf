"""The verdict for people in a hurry: a page of Markdown, and the same on the terminal."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from sluice.history.checker.anomalies import ANOMALIES
from sluice.history.checker.verdict import Holding, Verdict

_MARKS = {
    Holding.HOLDS: "holds",
    Holding.VIOLATED: "**VIOLATED**",
    Holding.CROSSED: "**crossed**",
    Holding.ALLOWED: "allowed",
    Holding.SEEN: "seen, lawful",
    Holding.UNKNOWN: "unknown",
    Holding.NOT_EXERCISED: "not exercised",
}
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&#]")


def escaped(text: str) -> str:
    """Return text as Markdown that shows it as it is, in one line: ids, names and errors come from outside."""
    printable = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in " ".join(text.split()))
    return _MARKUP.sub(r"\\\g<0>", printable)


def show(verdict: Verdict, console: Console) -> None:
    """Print the summary."""
    console.print(Markdown(markdown(verdict)))


def markdown(verdict: Verdict) -> str:
    """Return the summary as Markdown."""
    parts = [
        f"# {verdict.status.value.upper()} — {escaped(str(verdict.run.get('run', '')))}",
        *([_bullets("Not known", tuple(map(escaped, verdict.unknowns)))] if verdict.unknowns else []),
        *([_bullets("Crossed", tuple(map(escaped, verdict.crossed)))] if verdict.crossed else []),
        *([_violations(verdict)] if verdict.violations else []),
        _properties(verdict),
        _measures(verdict.measures),
        _allowed("Known deviations of this target, allowed", verdict.run.get("known_deviations", {})),
        _allowed("Lawful under this load, allowed", verdict.run.get("allowed", {})),
        _not_judged(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(title: str, lines: tuple[str, ...]) -> str:
    return "\n".join([f"## {title}", "", *(f"- {line}" for line in lines)])


def _violations(verdict: Verdict) -> str:
    lines = ["## Violations", ""]
    for violation in verdict.violations:
        where = violation.queue or "all queues"
        idxs = ", ".join(map(str, violation.idxs))
        name = ANOMALIES[violation.anomaly].name
        lines.append(
            f"- **{violation.anomaly} {name}** in group {escaped(violation.message_group_id)}, {escaped(where)},"
            f" message {idxs}: {escaped(violation.sentence)}"
        )
        lines += [f"    - {event_line(event, escaped)}" for event in (w.as_dict() for w in violation.witness)]
    return "\n".join(lines)


def event_line(said: Mapping[str, Any], told: Callable[[str], str] = str) -> str:
    """Return a witness, given by its fields that say something, in one line; their values as `told` tells them."""
    shown = (
        "worker",
        "queue",
        "idx",
        "outcome",
        "invoked_at_us",
        "responded_at_us",
        "sns_sequence_number",
        "sqs_message_id",
        "receive_count",
        "body_hash",
    )
    fields = ", ".join(f"{name}={told(str(said[name]))}" for name in shown if name in said)
    return f"`{said['kind']}` {fields}"


def _properties(verdict: Verdict) -> str:
    rows = [
        f"| {p.anomaly} | {ANOMALIES[p.anomaly].name} | {_MARKS[p.holding]}"
        f" | {p.violation_count} | {p.opportunities:,} |"
        for p in verdict.properties
    ]
    head = ["## Properties", "", "| id | nothing was | verdict | found | opportunities |", "|---|---|---|---:|---:|"]
    return "\n".join([*head, *rows])


def _measures(measures: Mapping[str, Any]) -> str:
    if not measures:
        return ""
    published = measures["published"]
    lines = [
        "## Measures",
        "",
        f"- published {published['count']:,} messages in {_seconds(published['seconds'])}, {_per_second(published)}",
        (
            f"- {measures['events']:,} events in {measures['groups']:,} groups,"
            f" {measures['suspect_groups']:,} of them looked at closely"
        ),
        "",
        "| from intended publish to | received | rate | p50 | p95 | p99 | max |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {escaped(queue)} | {of['received']['count']:,} | {_per_second(of['received'])}"
            f" | {_quantiles(of['latency_us'])} |"
            for queue, of in measures["queues"].items()
        ),
        f"| (the publish call itself) | | | {_quantiles(measures['publish_latency_us'])} |",
        f"| (generator lateness) | | | {_quantiles(measures['lateness_us'])} |",
        *(["", f"Percentiles: {measures['percentiles']}."] if "percentiles" in measures else []),
    ]
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "no time" if value is None else f"{value:.1f} s"


def _per_second(rate: Mapping[str, Any]) -> str:
    return "—" if rate["per_second"] is None else f"{rate['per_second']:.1f}/s"


def _quantiles(of: Mapping[str, int] | None) -> str:
    return " | ".join("—" if of is None else f"{of[name] / 1000:,.0f} ms" for name in ("p50", "p95", "p99", "max"))


def _allowed(title: str, reasons: Mapping[str, str]) -> str:
    if not reasons:
        return ""
    return _bullets(title, tuple(f"{anomaly} {ANOMALIES[anomaly].name}: {why}" for anomaly, why in reasons.items()))


def _not_judged() -> str:
    names = ", ".join(f"{a.id} {a.name}" for a in ANOMALIES.values() if not a.is_judged)
    return f"## Not judged yet\n\n{names}"
