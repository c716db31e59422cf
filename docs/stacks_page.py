"""The generated parts of docs/architecture/stacks.md. The prose around them is written by hand, in that file.

A part stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`, and nothing else there is kept.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from docs import costs, declared, diagram, templates
from docs.templates import STACKS, Resource
from sluice import prices
from sluice.environments import ENVIRONMENTS

_DRAWN = "prod"
_FAN_OUT = 3  # consumers of every message, in the costs of messages
_COMPARED = {
    "GreaterThanOrEqualToThreshold": "at least",
    "GreaterThanThreshold": "more than",
}
_MISSING = {"ignore": "keeps its state", "notBreaching": "counts as fine", "breaching": "rings"}


def parts() -> dict[str, str]:
    """Return every generated part by its name."""
    return {
        "diagram": f"```mermaid\n{diagram.mermaid(templates.synthesized(_DRAWN))}\n```",
        "counts": _counts(),
        "environments": _environments(),
        **{f"fields of {one.__name__}": _fields(one) for one in declared.DECLARED},
        "alarms": _alarms(),
        "expressions": _expressions(),
        "costs": _monthly(),
        "costs of messages": _messages(),
        "prices": _prices(),
        "acknowledgements": _acknowledgements(),
    }


def fill(page: str, generated: Mapping[str, str]) -> str:
    """Return the page with every generated part put between its markers.

    Raises:
        LookupError: the page has a part nobody generates, or lacks one that is.
    """
    found = re.findall(r"<!-- generated: (.+?) -->", page)
    if sorted(found) != sorted(generated):
        raise LookupError(f"stacks.md has the parts {sorted(found)}, generated are {sorted(generated)}")

    def put(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{generated[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- generated: (.+?) -->).*?(<!-- end of \2 -->)", put, page, flags=re.DOTALL)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: int = 0) -> str:
    """Return a table; the last `right` columns hold numbers."""
    rule = ["---"] * (len(head) - right) + ["---:"] * right
    lines = [head, rule, *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts() -> str:
    counted = {
        name: Counter((stack, one["Type"]) for (stack, _), one in templates.synthesized(name).resources().items())
        for name in ENVIRONMENTS
    }
    kinds = sorted({key for one in counted.values() for key in one}, key=lambda key: (STACKS.index(key[0]), key[1]))
    rows = [
        (stack, kind.removeprefix("AWS::"), *(one[stack, kind] or "" for one in counted.values()))
        for stack, kind in kinds
    ]
    total = ("all", "", *(one.total() for one in counted.values()))
    return _table(("stack", "type", *ENVIRONMENTS), [*rows, total], right=len(ENVIRONMENTS))


def _environments() -> str:
    rows = [(f"`{name}`", *shown) for name, shown in declared.differences()]
    return _table(("field", *ENVIRONMENTS), rows)


def _fields(of: type) -> str:
    rows = [(f"`{row.name}`", row.unit, row.default, row.effect, row.allowed) for row in declared.rows(of)]
    return _table(("field", "unit", "default", "effect", "allowed"), rows)


def _every_alarm() -> dict[str, list[tuple[str, Resource]]]:
    """Return every alarm by its name's pattern, with the environment it is in; those of the relay too."""
    alarms: dict[str, list[tuple[str, Resource]]] = {}
    for synthesized in (*map(templates.synthesized, ENVIRONMENTS), templates.everything()):
        environment = synthesized.environment
        for one in synthesized.of_type("AWS::CloudWatch::Alarm"):
            subject, condition = diagram.alarm_subject(environment, one["AlarmName"])
            pattern = "CONSUMER" if subject in {consumer.name for consumer in environment.consumers} else subject
            alarms.setdefault(f"sluice-ENV-{pattern}-{condition}", []).append((environment.name, one))
    return alarms


def alarm_conditions() -> set[str]:
    """Return what alarms can ring on: the ends of their names."""
    return {re.sub(r"^sluice-ENV-[a-zA-Z]+-", "", pattern) for pattern in _every_alarm()}


def _by_environment(alarms: Sequence[tuple[str, Resource]], value: Callable[[Resource], str]) -> str:
    """Return the one value all have, or each with the environments it holds in."""
    values: dict[str, dict[str, None]] = {}
    for name, one in alarms:
        values.setdefault(value(one), {})[name] = None
    if len(values) == 1:
        return next(iter(values))
    return "; ".join(f"{shown} ({', '.join(names)})" for shown, names in values.items())


def _watches(alarm: Resource) -> str:
    if "Metrics" in alarm:
        (label,) = [one["Label"] for one in alarm["Metrics"] if "Expression" in one]
        return f"expression: {label}"
    (dimension,) = alarm["Dimensions"]
    name = str(dimension["Value"])
    if dimension["Name"] == "TopicName":
        of = "the topic"
    elif dimension["Name"] == "Topic":
        of = "the outbox"
    elif name.endswith("-undelivered-dlq.fifo"):
        of = "the subscription's DLQ"
    else:
        of = "the queue's DLQ" if name.endswith("-dlq.fifo") else "the queue"
    return f"{alarm['Statistic']} of `{alarm['MetricName']}` of {of}"


def _threshold(alarm: Resource) -> str:
    unit = " s" if re.search("Age|Lag", alarm.get("MetricName", "")) else ""
    return f"{_COMPARED[alarm['ComparisonOperator']]} {alarm['Threshold']:,.12g}{unit}"


def _periods(alarm: Resource) -> str:
    periods = alarm["EvaluationPeriods"]
    seconds = alarm.get("Period") or next(
        one["MetricStat"]["Period"] for one in alarm["Metrics"] if "MetricStat" in one
    )
    assert seconds == 60, "the column says minutes"
    return f"{alarm.get('DatapointsToAlarm', periods)} of {periods} min"


def _told(alarm: Resource) -> str:
    """Return the alarm's description without the numbers declared for one consumer."""
    return re.sub(r"\b\d[\d.]*\b(?= s\b| times\b| tasks\b)", "N", str(alarm["AlarmDescription"]))


def _alarms() -> str:
    columns: dict[str, Callable[[Resource], str]] = {
        "watches": _watches,
        "rings at": _threshold,
        "for": _periods,
        "a gap": lambda one: _MISSING[one["TreatMissingData"]],
        "what it says": _told,
    }
    rows = [
        (f"`{pattern}`", *(_by_environment(alarms, value) for value in columns.values()))
        for pattern, alarms in _every_alarm().items()
    ]
    return _table(("alarm", *columns), rows)


def _expressions() -> str:
    lines = []
    for pattern, alarms in _every_alarm().items():
        name, alarm = alarms[-1]
        lines += [f"- `{pattern}` in {name}: `{text}`" for text in _math(alarm.get("Metrics", []))]
    policy = templates.synthesized(_DRAWN).of_type("AWS::ApplicationAutoScaling::ScalingPolicy")[0]
    tracking = policy["TargetTrackingScalingPolicyConfiguration"]
    (scaled_on,) = _math(tracking["CustomizedMetricSpecification"]["Metrics"])
    what = f"what `{policy['PolicyName']}` scales on in {_DRAWN}, its target being {tracking['TargetValue']:g}"
    return "\n".join([*lines, f"- {what}: `{scaled_on}`"])


def _math(queries: Sequence[Resource]) -> list[str]:
    return [one["Expression"] for one in queries if "Expression" in one]


def _dollars(value: float) -> str:
    return f"{value:,.2f}"


def _monthly() -> str:
    columns: dict[str, dict[str, float]] = {}
    for name in ENVIRONMENTS:
        idle, full = (
            costs.monthly(costs.footprint(templates.synthesized(name), at_max=at_max)) for at_max in (False, True)
        )
        columns |= {name: idle} if idle == full else {f"{name}, min_tasks": idle, f"{name}, max_tasks": full}
    return f"Prices of {prices.PRICE_REGION}, {prices.PRICE_DATE}:\n\n{_sums('a month', columns)}"


def _sums(total: str, columns: Mapping[str, Mapping[str, float]]) -> str:
    rows = [(line, *(_dollars(one[line]) for one in columns.values())) for line in next(iter(columns.values()))]
    sums = (f"**{total}**", *(f"**{_dollars(sum(one.values()))}**" for one in columns.values()))
    return _table(("US dollars", *columns), [*rows, sums], right=len(columns))


def _messages() -> str:
    return _sums(
        "a million messages",
        {f"{size} KB each": prices.million_messages(consumers=_FAN_OUT, kilobytes=size) for size in (1, 64)},
    )


def _prices() -> str:
    rows = [
        (name, _dollars(price.usd) if round(price.usd, 2) == price.usd else price.usd, price.unit, price.source)
        for name, price in prices.PRICES.items()
    ]
    return _table(("for", "US dollars", "per", "read in"), rows)


def _acknowledgements() -> str:
    where: dict[tuple[str, str], dict[str, int]] = {}
    for rule, path, reason in templates.acknowledgements():
        plain = re.sub(r"Consumer-[a-z0-9-]+", "Consumer-*", path.partition("/")[2])
        paths = where.setdefault((rule, reason), {})
        paths[plain] = paths.get(plain, 0) + 1
    rows = [
        (f"`{rule}`", ", ".join(f"`{path}`" + (f" x {n}" if n > 1 else "") for path, n in paths.items()), reason)
        for (rule, reason), paths in where.items()
    ]
    return _table(("rule", "on", "why it is as it should be"), rows)
