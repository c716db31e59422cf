"""The page of a rehearsal, from simulations made by hand, and one by the command."""

import functools
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from sluice.cli.main import main
from sluice.rehearse import figures, report
from sluice.rehearse.experiment import Mistake
from sluice.rehearse.model.control_loop import VARIANTS
from sluice.rehearse.page import Origin, html
from sluice.rehearse.rehearsal import DEPLOYED, Rehearsal
from tests.support import rehearsals

ORIGIN = Origin(command="sluice rehearse prod", seed=7, template="cdk.out")


_MADE: dict[str, tuple[list[Rehearsal], list[Mistake]]] = {
    "kept": ([rehearsals.kept_latency()], []),
    "missed": ([rehearsals.missed_latency()], []),
    "one of two missed": ([rehearsals.kept_latency(), rehearsals.missed_latency()], []),
    "mistake": ([rehearsals.kept_latency()], [rehearsals.MISTAKE]),
    "both": ([rehearsals.missed_latency()], [rehearsals.MISTAKE]),
    "not drained": ([rehearsals.not_drained()], []),
    "not judged": ([replace(rehearsals.kept_latency(), rows=[rehearsals.row("poison", 9)])], []),
}


@functools.cache
def _page(name: str) -> str:
    """Return the page of rehearsals that were made by hand."""
    rehearsed, mistakes = _MADE[name]
    return html([replace(rehearsal, mistakes=mistakes) for rehearsal in rehearsed], ORIGIN)


def test_the_figures_of_the_page_are_those_of_the_result() -> None:
    """One row for each traffic and way of scaling."""
    assert rehearsals.table(_page("missed")) == [
        ["traffic", "scaled by", "", *report.COLUMNS[2:]],
        ["burst", "deployed", "✗ missed", "0", "2.1, at most 7", "2.1", "18.77", *["90 s"] * 3, "42 s", "-", *"0000"],
        [
            *("burst", "deployed, metrics 4 minutes late", "✓ kept", "0", "2.1, at most 7", "2.1", "18.77"),
            *(*["50 s"] * 3, "42 s", "-", *"0000"),
        ],
        [
            *("burst", "steps on visible messages", "✓ kept", "0", "5.0, at most 7", "5.0", "45.35", *["40 s"] * 3),
            *("42 s", "-", *"0000"),
        ],
        [
            "burst",
            "8 tasks, always",
            "✓ kept",
            "0",
            "8.0, at most 8",
            "8.0",
            "72.08",
            *["2 s"] * 3,
            "42 s",
            "-",
            *"0000",
        ],
    ]


def test_the_words_of_a_chart_are_those_of_the_result() -> None:
    drawn = {figure.title: figure.description for figure in figures.over_time(rehearsals.row("steady", 12), name="c")}

    assert drawn == {
        "Messages": "At most 2/s sent and 2/s handled.",
        "Backlog": "At most 4,321 visible and 3 in flight.",
        "Tasks": "At most 7; 2.1 task-hours.",
        "Latency": "The worst minute's p95 is 12 s, the oldest message 42 s.",
    }


@pytest.mark.parametrize(
    ("name", "status", "word"),
    [
        ("kept", "valid", "LATENCY KEPT"),
        ("one of two missed", "crossed", "LATENCY MISSED"),
        ("mistake", "invalid", "MISTAKES FOUND"),
        ("both", "invalid", "MISTAKES FOUND, LATENCY MISSED"),
        ("not drained", "unknown", "LATENCY KEPT IN 2 OF 3, 1 NOT DRAINED"),
        ("not judged", "unknown", "LATENCY NOT JUDGED"),
    ],
)
def test_the_page_begins_with_its_verdict(name: str, status: str, word: str) -> None:
    verdict = f'<div class="verdict {status}">\n<h1>sluice rehearse prod</h1>\n<p class="word">{word}</p>'

    assert verdict in _page(name)


def test_every_traffic_has_its_verdict_and_every_mistake_its_consequence() -> None:
    page = _page("mistake")

    assert "<li>shop-prod-billing: kept: steady, day; not judged: poison</li>" in page
    assert "<li>shop-prod-billing: mistake cooldown-0 in backlog-per-task</li>" in page
    for words in (rehearsals.MISTAKE.found, rehearsals.MISTAKE.consequence, rehearsals.MISTAKE.repair):
        assert words in page


def test_a_case_that_does_not_drain_is_named_with_what_limits_it() -> None:
    page = unescape(_page("not drained"))

    assert "<li>shop-prod-billing: kept: steady, day; not drained: poison</li>" in page
    assert "shop-prod-billing: poison: not drained: there were at most 7 of 8 tasks, 0.0 tasks are needed" in page
    assert '<span class="mark violated">✗ not drained</span>' in page


def test_results_that_depend_on_a_variant_name_its_source() -> None:
    late = VARIANTS[-1]
    alike = replace(
        rehearsals.missed_latency(),
        rows=[rehearsals.missed_latency().rows[0], replace(rehearsals.missed_latency().rows[0], variant=late)],
    )

    depends, untried = _page("missed"), _page("kept")
    same = html([alike], ORIGIN)

    assert unescape(depends).count(f"<li>burst: kept with {late.name} ({late.source})</li>") == 1
    assert "In every variant of what AWS does not document the verdicts are the same." in same
    assert "Only the first was tried" in untried
    assert "the verdicts are the same" not in untried


def test_names_from_outside_are_escaped() -> None:
    """Names of a template, and the command, could contain HTML."""
    odd = '<b title="x">&'
    made = replace(
        rehearsals.missed_latency(),
        service=replace(rehearsals.SERVICE, name=odd, queue=None),
        rows=[
            replace(
                row,
                scenario=replace(row.scenario, about=odd, traffic=replace(row.scenario.traffic, name=odd)),
                policy=row.policy if row.policy == DEPLOYED else odd,
            )
            for row in rehearsals.missed_latency().rows
        ],
    )
    mistake = Mistake(name=odd, policy=odd, found=odd, consequence=odd, repair=odd)

    page = html([replace(made, mistakes=[mistake])], Origin(command=odd, seed=1, template=odd))

    assert odd not in page
    assert "<b" not in page.replace("<body", "")


def test_many_minutes_are_drawn_by_the_highest_of_each_few() -> None:
    """A peak of one minute in a day is seen; a stretch without a value is none."""
    day: list[float | None] = [1.0] * 1_440
    day[777] = 99.0
    day[600:612] = [None] * 12

    drawn = figures.thin_out(day)

    assert len(drawn) == figures.POINTS_MAX
    assert [idx for idx, value in enumerate(drawn) if value == 99] == [777 // 6]
    assert [idx for idx, value in enumerate(drawn) if value is None] == [100, 101]
    assert figures.thin_out([1.0, None, 3.0]) == [1.0, None, 3.0]


def test_the_cheapest_way_that_keeps_the_latency_is_named() -> None:
    """A change is not named that keeps the latency only in an unusual variant of AWS's behaviour."""
    rows = rehearsals.missed_latency().rows

    compared = figures.comparison_chart(rows, name="c")

    assert compared is not None
    assert compared.description == (
        "The fewest task-hours that keep the declared latency: steps on visible messages, 5.0."
    )
    for label in ("deployed", "metrics 4 minutes late", "steps on visible messages", "8 tasks, always"):
        assert f">{label}</text>" in compared.svg
    assert figures.comparison_chart(rows[:1], name="c") is None
    alone = figures.comparison_chart(rows[:2], name="c")
    assert alone is not None
    assert alone.description == "None keeps the declared latency."


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is refused although the template has no service, which would be refused later."""
    template = tmp_path / "template.yaml"
    template.write_text("Resources: {}", encoding="utf-8")
    page = tmp_path / "missing" / "page.html"

    with pytest.raises(SystemExit) as ended:
        main(
            f"rehearse --template {template} --lanes 1 --handler-seconds 1 --latency 60 --page {page}".split(),
        )

    assert ended.value.code == 3
    assert capsys.readouterr().err == (
        f"sluice: cannot write to {page} (No such file or directory); name a file in a folder that can be written, with"
        " --page\n"
    )
