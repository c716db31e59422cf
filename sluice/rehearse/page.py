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
    """The origin of a rehearsal, as the page names it.

    Args:
        command: the command line.
        seed: the seed of all random draws.
        template: the file or folder with the scaling policies.
    """

    command: str
    seed: int
    template: str


def write(path: Path, rehearsals: Sequence[Rehearsal], origin: Origin) -> None:
    """Write the page to a file.

    Raises:
        HistoryError: the file cannot be written.
    """
    write_whole(path, html(rehearsals, origin), instead="name another file with --page")


def html(rehearsals: Sequence[Rehearsal], origin: Origin) -> str:
    """Return the page of several services' rehearsals as HTML."""
    status, word = _page_verdict(rehearsals)
    tries_variants = any(
        row.policy != DEPLOYED or row.variant is not USUAL for rehearsal in rehearsals for row in rehearsal.rows
    )
    parts = {
        "title": escape(f"{word}: {', '.join(name for rehearsal in rehearsals for name in rehearsal.names)}"),
        "status": status,
        "word": word,
        "heading": escape(origin.command),
        "means": "",
        "under": "",
        "reasons": list_items(reason for rehearsal in rehearsals for reason in _reasons(rehearsal)),
        "services": "".join(_service_html(rehearsal, f"service-{idx}") for idx, rehearsal in enumerate(rehearsals)),
        "variants": _variants_html(tries_variants=tries_variants),
        "left_out": list_items(report.NOT_SIMULATED),
        "origin": pairs(
            [("command", origin.command), ("template", origin.template), ("seed of all draws", str(origin.seed))]
        ),
        "points_max": str(figures.POINTS_MAX),
        "reading": list_items(report.READING),
    }
    return fill(_TEMPLATE, parts)


def _page_verdict(rehearsals: Sequence[Rehearsal]) -> tuple[str, str]:
    """Return (CSS class, words) of the verdict over all services."""
    words = [
        word
        for word, is_so in (
            ("MISTAKES FOUND", any(rehearsal.mistakes for rehearsal in rehearsals)),
            ("LATENCY MISSED", any(rehearsal.is_missed for rehearsal in rehearsals)),
        )
        if is_so
    ]
    if words:
        return "invalid" if words[0] == "MISTAKES FOUND" else "crossed", ", ".join(words)
    found = [report.judgement(row) for rehearsal in rehearsals for row in rehearsal.deployed_rows]
    if "not drained" in found:
        return (
            "unknown",
            f"LATENCY KEPT IN {found.count('kept')} OF {len(found)}, {found.count('not drained')} NOT DRAINED",
        )
    return ("valid", "LATENCY KEPT") if "kept" in found else ("unknown", "LATENCY NOT JUDGED")


def _reasons(rehearsal: Rehearsal) -> Iterable[str]:
    """Yield the lines of a service's verdict: kept and missed scenarios, reasons, assumptions and mistakes."""
    by_word = {
        word: [row.scenario.name for row in rehearsal.deployed_rows if report.judgement(row) == word] for word in _MARKS
    }
    verdicts = "; ".join(f"{word}: {', '.join(names)}" for word, names in by_word.items() if names)
    yield f"{rehearsal.service.name}: {verdicts}"
    _, *reasons = report.summary(rehearsal)
    yield from (f"{rehearsal.service.name}: {sentence.strip()}" for sentence in reasons)
    yield from (f"{rehearsal.service.name}: not known: {assumed}" for assumed in rehearsal.service.assumed)
    yield from (f"{rehearsal.service.name}: not simulated: {sentence}" for sentence in rehearsal.service.not_simulated)
    yield from (
        f"{rehearsal.service.name}: mistake {mistake.name} in {mistake.policy}"
        for mistake in report.merge_equal(rehearsal.mistakes)
    )


def _service_html(rehearsal: Rehearsal, anchor: str) -> str:
    """Return a service's part of the page; `anchor` is the id of its heading."""
    service = rehearsal.service
    queue = "an unknown queue" if service.queue is None else f"queue {service.queue.name}"
    what = f"On {queue}: {service.scaling_text}"
    return (
        f'<h2 id="{anchor}">{escape(", ".join(rehearsal.names))}</h2>'
        f'<p class="soft">{escape(what)}</p>'
        f"{_mistakes_html(report.merge_equal(rehearsal.mistakes))}{_table_html(rehearsal)}{_variant_differences_html(rehearsal)}"
        + "".join(_scenario_html(rehearsal, row, f"{anchor}-{idx}") for idx, row in enumerate(rehearsal.deployed_rows))
    )


def _mistakes_html(found: Sequence[Mistake]) -> str:
    """Return an article for each mistake: its policy, what was found, the consequence and the repair."""
    if not found:
        return "<p>None of the known mistakes.</p>"
    articles = "".join(
        f'<article class="anomaly"><h3>{escape(mistake.name)}</h3>'
        f"<p><strong>{escape(mistake.policy)}</strong>: {escape(mistake.found)}</p>"
        f"<p>{escape(mistake.consequence)}</p><p>Instead: {escape(mistake.repair)}</p></article>"
        for mistake in found
    )
    return f'<div class="anomalies">{articles}</div>'


def _verdict_html(row: RehearsalRow) -> str:
    """Return a row's verdict as a coloured sign and a word."""
    word = report.judgement(row)
    class_, sign = _MARKS[word]
    return f'<span class="mark {class_}">{sign} {word}</span>'


def _table_html(rehearsal: Rehearsal) -> str:
    """Return the same table that the terminal prints, with the verdict before the numbers."""
    split = len(report.NAMES)
    names, numbers = report.COLUMNS[:split], report.COLUMNS[split:]
    body = "\n".join(f"<tr>{_row_html(row)}</tr>" for row in rehearsal.rows)
    return f'<div class="scroll tried">{rows_html((*names, "", *numbers), body, numbers=numbers)}</div>'


def _row_html(row: RehearsalRow) -> str:
    """Return the cells of a table's row as HTML: names, verdict, numbers."""
    cells, split = report.cells(row), len(report.NAMES)
    names = "".join(f'<th scope="row">{escape(cell)}</th>' for cell in cells[:split])
    return f"{names}<td>{_verdict_html(row)}</td>" + "".join(
        f'<td class="number" data-title="{escape(name)}">{escape(cell)}</td>'
        for name, cell in zip(report.COLUMNS[split:], cells[split:], strict=True)
    )


def _variant_differences_html(rehearsal: Rehearsal) -> str:
    """Return the scenarios whose verdict is another one under a variant: AWS's undocumented behaviour, assumed so."""
    usual = {row.scenario.name: report.judgement(row) for row in rehearsal.deployed_rows}
    others = [row for row in rehearsal.rows if row.policy == DEPLOYED and row.variant is not USUAL]
    if not others:
        return ""
    found = [row for row in others if report.judgement(row) != usual[row.scenario.name]]
    if not found:
        return "<p>In every variant of what AWS does not document the verdicts are the same.</p>"
    lines = list_items(
        f"{row.scenario.name}: {report.judgement(row)} with {row.variant.name} ({row.variant.source})" for row in found
    )
    return f"<p>Verdicts that depend on what AWS does not document:</p><ul>{lines}</ul>"


def _scenario_html(rehearsal: Rehearsal, row: RehearsalRow, name: str) -> str:
    """Return one scenario's section: the charts of the deployed scaling, and its comparison with the alternatives."""
    traffic = row.scenario.name
    compared = figures.comparison_chart(
        [each for each in rehearsal.rows if each.scenario.name == traffic], name=f"{name}-compared"
    )
    return (
        f"<section><h3>{escape(traffic)} {_verdict_html(row)}</h3>"
        f'<p class="soft">{escape(row.scenario.about)}. {escape(_latency_sentence(row))}</p>'
        f"{_advice_html(rehearsal, traffic)}"
        f'<div class="small figures">{"".join(map(figure_html, figures.over_time(row, name=name)))}</div>'
        + ("" if compared is None else f'<div class="figures">{figure_html(compared)}</div>')
        + "</section>"
    )


def _advice_html(rehearsal: Rehearsal, scenario: str) -> str:
    """Return a consumer's limits in a scenario and the changes that help, as a list; "" without a declaration."""
    if scenario not in rehearsal.advice:
        return ""
    lines = report.advice_sentences(scenario, rehearsal.advice[scenario])
    return f"<ul>{list_items(line.strip().removeprefix(f'{scenario}: ') for line in lines)}</ul>"


def _latency_sentence(row: RehearsalRow) -> str:
    """Return the measured and the declared latency of a row as a sentence."""
    p95 = report.seconds(row.p95_seconds)
    return f"p95 {p95}, declared {report.seconds(row.scenario.tasks.acceptable_latency_seconds)}."


def _variants_html(*, tries_variants: bool) -> str:
    """Return the list of variants, undocumented behaviours of AWS, and a sentence on which of them were tried."""
    rows = pairs((variant.name, variant.source) for variant in VARIANTS)
    tried = (
        "Every variant was tried of what is deployed; the rest of the table above is by the first."
        if tries_variants
        else "Only the first was tried: name traffic with --traffic, --profile or --recording to try all of them."
    )
    return f"<p>{tried}</p>{rows}"
