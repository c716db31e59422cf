"""A rehearsal as one page: for each service the verdict, the mistakes, values over time, and the alternatives."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sluice.pages.parts import figure_html, fill, list_items, pairs, rows_html
from sluice.rehearse import figures, report
from sluice.rehearse.experiment import Mistake
from sluice.rehearse.model.control_loop import USUAL, VARIANTS
from sluice.rehearse.rehearsal import DEPLOYED, Rehearsal, RehearsalRow
from sluice.terminal.files import write_whole

_TEMPLATE = Path(__file__).resolve().parent / "page.html"
_MARKS = {
    "kept": ("holds", "✓"),
    "missed": ("violated", "✗"),
    "not drained": ("violated", "✗"),
    "not judged": ("not-exercised", "○"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a rehearsal.

    Args:
        command: the command line.
        seed: seed of all draws.
        template: the source of the policies.
    """

    command: str
    seed: int
    template: str


def write(path: Path, done: Sequence[Rehearsal], origin: Origin) -> None:
    """Draw the page and write it.

    Raises:
        HistoryError: the file cannot be written.
    """
    write_whole(path, html(done, origin), instead="name another file with --page")


def html(done: Sequence[Rehearsal], origin: Origin) -> str:
    """Return the page."""
    status, word = _verdict(done)
    compares = any(row.policy != DEPLOYED or row.variant is not USUAL for made in done for row in made.rows)
    parts = {
        "title": escape(f"{word}: {', '.join(name for made in done for name in made.names)}"),
        "status": status,
        "word": word,
        "heading": escape(origin.command),
        "means": "",
        "under": "",
        "reasons": list_items(reason for made in done for reason in _reasons(made)),
        "services": "".join(_service(made, f"service-{idx}") for idx, made in enumerate(done)),
        "variants": _variants(compares=compares),
        "left_out": list_items(report.NOT_SIMULATED),
        "origin": pairs(
            [("command", origin.command), ("template", origin.template), ("seed of all draws", str(origin.seed))]
        ),
        "points_max": str(figures.POINTS_MAX),
        "reading": list_items(report.READING),
    }
    return fill(_TEMPLATE, parts)


def _verdict(done: Sequence[Rehearsal]) -> tuple[str, str]:
    """Return the class of the page's verdict, and its words."""
    words = [
        word
        for word, is_so in (
            ("MISTAKES FOUND", any(made.mistakes for made in done)),
            ("LATENCY MISSED", any(made.is_missed for made in done)),
        )
        if is_so
    ]
    if words:
        return "invalid" if words[0] == "MISTAKES FOUND" else "crossed", ", ".join(words)
    found = [report.judgement(row) for made in done for row in made.deployed_rows]
    if "not drained" in found:
        return (
            "unknown",
            f"LATENCY KEPT IN {found.count('kept')} OF {len(found)}, {found.count('not drained')} NOT DRAINED",
        )
    return ("valid", "LATENCY KEPT") if "kept" in found else ("unknown", "LATENCY NOT JUDGED")


def _reasons(made: Rehearsal) -> Iterable[str]:
    """Return a service's verdict in one line, and each of its mistakes."""
    by_word = {
        word: [row.scenario.name for row in made.deployed_rows if report.judgement(row) == word] for word in _MARKS
    }
    verdicts = "; ".join(f"{word}: {', '.join(names)}" for word, names in by_word.items() if names)
    yield f"{made.service.name}: {verdicts}"
    _, *reasons = report.summary(made)
    yield from (f"{made.service.name}: {sentence.strip()}" for sentence in reasons)
    yield from (f"{made.service.name}: not known: {assumed}" for assumed in made.service.assumed)
    yield from (f"{made.service.name}: not simulated: {sentence}" for sentence in made.service.not_simulated)
    yield from (
        f"{made.service.name}: mistake {mistake.name} in {mistake.policy}"
        for mistake in report.merge_equal(made.mistakes)
    )


def _service(made: Rehearsal, anchor: str) -> str:
    service = made.service
    policies = ", ".join(service.scaler_names) or "none"
    queue = "an unknown queue" if service.queue is None else f"queue {service.queue.name}"
    what = f"{service.min_tasks} to {service.max_tasks} tasks on {queue}, policies: {policies}"
    return (
        f'<h2 id="{anchor}">{escape(", ".join(made.names))}</h2>'
        f'<p class="soft">{escape(what)}</p>'
        f"{_mistakes(report.merge_equal(made.mistakes))}{_table(made)}{_depends(made)}"
        + "".join(_traffic(made, row, f"{anchor}-{idx}") for idx, row in enumerate(made.deployed_rows))
    )


def _mistakes(found: Sequence[Mistake]) -> str:
    if not found:
        return "<p>None of the known mistakes.</p>"
    articles = "".join(
        f'<article class="anomaly"><h3>{escape(mistake.name)}</h3>'
        f"<p><strong>{escape(mistake.policy)}</strong>: {escape(mistake.found)}</p>"
        f"<p>{escape(mistake.consequence)}</p><p>Instead: {escape(mistake.repair)}</p></article>"
        for mistake in found
    )
    return f'<div class="anomalies">{articles}</div>'


def _mark(row: RehearsalRow) -> str:
    """Return a row's verdict as a coloured sign and a word."""
    word = report.judgement(row)
    class_, sign = _MARKS[word]
    return f'<span class="mark {class_}">{sign} {word}</span>'


def _table(made: Rehearsal) -> str:
    """Return the table of the terminal, the verdicts before the figures."""
    split = len(report.NAMES)
    names, numbers = report.COLUMNS[:split], report.COLUMNS[split:]
    body = "\n".join(f"<tr>{_cells(row)}</tr>" for row in made.rows)
    return f'<div class="scroll tried">{rows_html((*names, "", *numbers), body, numbers=numbers)}</div>'


def _cells(row: RehearsalRow) -> str:
    """Return the cells of a table's row as HTML: names, verdict, numbers."""
    cells, split = report.cells(row), len(report.NAMES)
    names = "".join(f'<th scope="row">{escape(cell)}</th>' for cell in cells[:split])
    return f"{names}<td>{_mark(row)}</td>" + "".join(
        f'<td class="number" data-title="{escape(name)}">{escape(cell)}</td>'
        for name, cell in zip(report.COLUMNS[split:], cells[split:], strict=True)
    )


def _depends(made: Rehearsal) -> str:
    """Return the variants of AWS's behaviour with which the verdict would differ."""
    usual = {row.scenario.name: report.judgement(row) for row in made.deployed_rows}
    others = [row for row in made.rows if row.policy == DEPLOYED and row.variant is not USUAL]
    if not others:
        return ""
    found = [row for row in others if report.judgement(row) != usual[row.scenario.name]]
    if not found:
        return "<p>In every variant of what AWS does not document the verdicts are the same.</p>"
    lines = list_items(
        f"{row.scenario.name}: {report.judgement(row)} with {row.variant.name} ({row.variant.source})" for row in found
    )
    return f"<p>Verdicts that depend on what AWS does not document:</p><ul>{lines}</ul>"


def _traffic(made: Rehearsal, row: RehearsalRow, name: str) -> str:
    """Return the charts of the deployed scaling over time, and its comparison with the alternatives."""
    traffic = row.scenario.name
    compared = figures.comparison_chart(
        [each for each in made.rows if each.scenario.name == traffic], name=f"{name}-compared"
    )
    return (
        f"<section><h3>{escape(traffic)} {_mark(row)}</h3>"
        f'<p class="soft">{escape(row.scenario.about)}. {escape(_in_words(row))}</p>{_advice(made, traffic)}'
        f'<div class="small figures">{"".join(map(figure_html, figures.over_time(row, name=name)))}</div>'
        + ("" if compared is None else f'<div class="figures">{figure_html(compared)}</div>')
        + "</section>"
    )


def _advice(made: Rehearsal, scenario: str) -> str:
    """Return the limits of a consumer on this traffic and the changes that help; empty without a declaration."""
    if scenario not in made.advice:
        return ""
    lines = report.advice_sentences(scenario, made.advice[scenario])
    return f"<ul>{list_items(line.strip().removeprefix(f'{scenario}: ') for line in lines)}</ul>"


def _in_words(row: RehearsalRow) -> str:
    """Return the measured and the declared latency of a row as a sentence."""
    p95 = report.seconds(row.p95_seconds)
    return f"p95 {p95}, declared {report.seconds(row.scenario.tasks.acceptable_latency_seconds)}."


def _variants(*, compares: bool) -> str:
    """Return the undocumented behaviours of AWS with their sources, and whether each was tried."""
    rows = pairs((variant.name, variant.source) for variant in VARIANTS)
    tried = (
        "Every variant was tried of what is deployed; the rest of the table above is by the first."
        if compares
        else "Only the first was tried: name traffic with --traffic, --profile or --recording to try all of them."
    )
    return f"<p>{tried}</p>{rows}"
