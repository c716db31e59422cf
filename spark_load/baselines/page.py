"""The page of a trend: every time run by run, and the result of the comparison."""

from html import escape
from pathlib import Path

from sluice.pages import charts, units
from sluice.pages.charts import Axis, ChartLine
from sluice.pages.parts import Figure, draw_figure, figure_html, fill, list_items, rows_html
from sluice.terminal.files import write_whole
from spark_load.baselines.trend import BEFORE_MIN, LEVEL, RATIO_MIN, Trend, TrendRow

_TEMPLATE = Path(__file__).resolve().parent / "page.html"
_TONES = {0: "valid", 2: "unknown", 98: "unknown", 99: "crossed"}


def write(found: Trend, path: Path) -> None:
    """Draw the page and write it."""
    write_whole(path, html(found), instead="name another file with --page")


def html(found: Trend) -> str:
    """Return the page as HTML."""
    result = found.result
    where = ", ".join(f"{name} {value}" for name, value in result.kind.items())
    what = escape(f"Profile {result.profile_name} ({result.profile_digest}), {where}.")
    slower_first = sorted(found.rows, key=lambda row: (not row.is_slower, row.name))
    return fill(
        _TEMPLATE,
        {
            "title": escape(f"{found.word}: {result.run}"),
            "heading": escape(result.run),
            "word": found.word,
            "status": _TONES[found.exit_code],
            "means": escape(_means(found)),
            "reasons": list_items(_reason(row) for row in found.slower),
            "under": f'<p class="soft">{what}</p>',
            "charts": "".join(figure_html(figure(row, number)) for number, row in enumerate(slower_first)),
            "table": _table(found.rows),
            "measuring": list_items(_measuring(found)),
        },
    )


def _means(found: Trend) -> str:
    """Return the answer of the comparison as a sentence."""
    if found.unknown is not None:
        return f"Nobody can say: {found.unknown}."
    if found.slower:
        return f"{units.plural(len(found.slower), 'time')} of {len(found.rows)} became longer."
    clearest = min(found.rows, key=lambda row: row.detectable)
    return (
        f"No time became longer beyond noise. A single run shows {clearest.detectable - 1:.0%} or more in"
        f" {clearest.name},"
        " and less where more runs follow."
    )


def _reason(row: TrendRow) -> str:
    """Return why a time is called slower, as a sentence."""
    newest = "this run is" if row.newest == 1 else f"the newest {row.newest} runs are"
    return f"{row.name}: {newest} slower by {row.ratio - 1:.1%} than those before (p {row.p:.2g})"


def figure(row: TrendRow, number: int) -> Figure:
    """Return a chart of a time by run: the earlier runs, the compared newest runs, and the mean of the earlier ones."""
    factor = 1_000 if max(row.seconds) < 1 else 1
    values = [value * factor for value in row.seconds]
    first = len(values) - row.newest
    usual = sorted(values[:first])[first // 2]
    colour = "var(--bad)" if row.is_slower else "var(--s2)"
    chart = charts.lines(
        [
            ChartLine("before", list(enumerate(values[:first], start=1)), "var(--s0)"),
            ChartLine("median before", [(1, usual), (len(values), usual)], "var(--soft)", (4, 3)),
            ChartLine("compared", list(enumerate(values[first:], start=first + 1)), colour),
        ],
        x=Axis(title="run", domain=(0.5, len(values) + 0.5)),
        y=Axis(title="milliseconds" if factor > 1 else "seconds"),
    )
    answer = "slower" if row.is_slower else "not slower"
    description = f"{answer}: ratio {row.ratio:.2f}, p {row.p:.2g}; one run shows {row.detectable:.2f} or more."
    return draw_figure(chart, name=f"time-{number}", title=row.name, description=description)


def _table(rows: tuple[TrendRow, ...]) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>'
        f"<td>{units.seconds(row.seconds[-1])}</td><td>{row.newest}</td><td>{row.ratio:.3f}</td>"
        f"<td>{row.p:.2g}</td><td>{row.detectable:.2f}</td><td>{'slower' if row.is_slower else ''}</td></tr>"
        for row in rows
    )
    return rows_html(("time", "this run", "newest", "ratio", "p", "one run shows", ""), body, css="numbers")


def _measuring(found: Trend) -> list[str]:
    """Return sentences about how the runs were chosen and compared."""
    return [
        *([] if found.unknown else found.how),
        "Runs before it are valid, of the same profile and on the same kind of machine.",
        f"Student's test on logarithms, one value a run, with at least {BEFORE_MIN} before; Holm's correction over all"
        " times.",
        f"A time is slower where p is at most {LEVEL:g} and the ratio at least {RATIO_MIN:g}.",
        "Whoever keeps a slowdown need do nothing: when the newest runs are all slower, they are what later ones are"
        " compared with.",
    ]
