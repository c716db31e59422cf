"""Draw the pictures of docs/guides/scaling.md: `python -m tools.pages.rehearsal_pictures` (takes a minute)."""

import re
from collections.abc import Sequence
from pathlib import Path

from sluice.declaration import load_declaration
from sluice.pages.parts import Figure
from sluice.rehearse import figures
from sluice.rehearse.alternatives import OWN_METRICS
from sluice.rehearse.declared_service import service_of, tasks_of
from sluice.rehearse.model.scenarios import scenarios
from sluice.rehearse.rehearsal import simulate_all

_ROOT = Path(__file__).resolve().parents[2]
_GAP = 14


def picture(drawn: Sequence[Figure], *, columns: int) -> str:
    """Return charts as one SVG with `columns` charts in each row; it follows the reader's light or dark theme."""
    style = (_ROOT / "sluice" / "pages" / "style.css").read_text(encoding="utf-8")
    (light,) = re.findall(r"^:root \{.*?^\}\n", style, re.DOTALL | re.MULTILINE)
    (dark,) = re.findall(r"^@media \(prefers-color-scheme: dark\) \{.*?^\}\n", style, re.DOTALL | re.MULTILINE)
    sizes = [
        (float(wide), float(high))
        for figure in drawn
        for wide, high in re.findall(r'viewBox="0 0 (\S+) (\S+)"', figure.svg)
    ]
    wide, high = (max(size[idx] for size in sizes) + _GAP for idx in (0, 1))
    charts = "".join(
        re.sub(
            r'<svg class="chart"([^>]*?) style="[^"]*"',
            f'<svg x="{idx % columns * wide:g}" y="{idx // columns * (high + _GAP) + _GAP:g}"'
            f' width="{size[0]:g}" height="{size[1]:g}"\\1',
            figure.svg,
        )
        + f'<text x="{idx % columns * wide + _GAP:g}" y="{idx // columns * (high + _GAP) + _GAP:g}" fill="var(--ink)"'
        f' font-family="system-ui, sans-serif" font-size="13">{figure.title}</text>'
        for idx, (figure, size) in enumerate(zip(drawn, sizes, strict=True))
    )
    rows = -(-len(drawn) // columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * wide:g} {rows * (high + _GAP) + _GAP:g}"'
        f' width="{columns * wide:g}"><style>{light}{dark}</style>'
        f'<rect width="100%" height="100%" fill="var(--paper)"/>{charts}</svg>\n'
    )


def pictures() -> dict[str, str]:
    """Return both pictures by the name of their file: billing of prod on a day of traffic."""
    prod = load_declaration(_ROOT / "environments.py").environment("prod")
    billing = prod.consumers[0]
    service, tasks = service_of(prod, billing), tasks_of(billing)
    rows = simulate_all(
        service,
        [scenarios(service, tasks, groups=billing.expected_groups)["day"]],
        own=OWN_METRICS,
        compares=True,
    )
    ways = figures.comparison_chart(rows, name="ways")
    assert ways is not None, "there are several ways"
    return {
        "rehearsal-day.svg": picture(figures.over_time(rows[0], name="day"), columns=2),
        "rehearsal-ways.svg": picture([ways], columns=1),
    }


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (_ROOT / "docs" / "pictures" / name).write_text(drawn, encoding="utf-8")
