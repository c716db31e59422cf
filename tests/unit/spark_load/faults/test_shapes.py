"""A schedule of faults follows from its seed, has what its shape has, and is refused where it cannot be."""

from contextlib import nullcontext
from dataclasses import replace
from typing import get_args

import pytest

from sluice.errors import ConfigError
from spark_load.faults.shapes import (
    LOSSY,
    NETWORK,
    SHAPES,
    FaultKind,
    Faults,
    Shape,
    Targets,
    as_given,
    require_possible,
    scheduled,
)
from spark_load.profiles.profile import parse

TARGETS = Targets.of(consumer="worker", consumers=("audit", "billing"), consumers_per_queue=2)
RAW = Targets.of(consumer="raw", consumers=("audit", "billing"), consumers_per_queue=2)
CHAOS = Faults(shape="chaos", every_seconds=2)
GOOD = "messages_per_second: 10\nduration_seconds: 30\ngroup_count: 2\n"


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    """The profile's seed goes before the run's."""
    drawn = scheduled(CHAOS, TARGETS, seed=7, duration_seconds=60)

    assert drawn == scheduled(CHAOS, TARGETS, seed=7, duration_seconds=60)
    assert drawn != scheduled(CHAOS, TARGETS, seed=8, duration_seconds=60)
    assert drawn == scheduled(replace(CHAOS, seed=7), TARGETS, seed=8, duration_seconds=60)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "calm"])
@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_a_shape_comes_and_each_fault_ends_in_its_window(shape: Shape, seed: int) -> None:
    """A worker harmed at the very end would have no time to come back."""
    faults = scheduled(Faults(shape=shape, after_seconds=3, until_seconds=40), TARGETS, seed=seed, duration_seconds=60)

    assert {fault.kind for fault in faults} == set(SHAPES[shape])
    assert [fault for fault in faults if not 3 <= fault.at_seconds <= fault.until_seconds <= 40] == []
    assert [fault for fault in faults if fault.target not in TARGETS.of_kind(fault.kind)] == []


def test_a_calm_shape_has_none_and_of_raw_consumers_only_the_network_is_harmed() -> None:
    """They are Spark's tasks, which it does not run a second time."""
    assert not set(LOSSY) & {kind for kinds in SHAPES.values() for kind in kinds}
    assert set(SHAPES) == set(get_args(Shape.__value__))
    assert scheduled(Faults(), TARGETS, seed=1, duration_seconds=60) == ()
    assert {fault.kind for fault in scheduled(CHAOS, RAW, seed=1, duration_seconds=60)} == set(NETWORK)
    with pytest.raises(ConfigError, match=r"faults\.shape is 'crashes', allowed with consumer 'raw' are calm, network"):
        scheduled(Faults(shape="crashes"), RAW, seed=1, duration_seconds=60)


def test_a_schedule_can_be_given_as_it_was_drawn() -> None:
    """So a failing one can be cut down and run again."""
    drawn = scheduled(CHAOS, TARGETS, seed=7, duration_seconds=60)
    profile = parse(f"{GOOD}consumer: worker\nfaults: {as_given(drawn)}", source="p")

    assert scheduled(profile.faults, TARGETS, seed=1, duration_seconds=1) == drawn


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ("{shape: storm}", r"faults\.shape is 'storm' \(line 4\): Input should be 'calm', 'crashes', 'network'"),
        ("{shpae: chaos}", r"faults\.shpae \(line 4\) is not a field of a profile; did you mean shape"),
        ("{every_seconds: 0}", r"faults\.every_seconds is 0 \(line 4\): Input should be greater than or equal to 0\.2"),
        ("{after_seconds: 9, until_seconds: 9}", r"until_seconds is 9, allowed is more than after_seconds \(9\)"),
        (
            "{given: [{kind: kill, target: a, at_seconds: 3, until_seconds: 1}]}",
            r"until_seconds is 1, allowed is at_seconds \(3\) or more: a fault ends after it began",
        ),
        (
            "{given: [{kind: answer, target: a, at_seconds: 3, until_seconds: 4, detail: '418'}]}",
            r"detail is '418', allowed for 'answer' is one of 500, 503, throttled",
        ),
        (
            "{given: [{kind: skew, target: a, at_seconds: 3, until_seconds: 4, detail: a day}]}",
            r"detail is 'a day', allowed for 'skew' are seconds between -1000 and 1000, such as '-30 s'",
        ),
        *(
            (
                f"{{given: [{{kind: slow, target: a, at_seconds: 3, until_seconds: 4, detail: '{detail}'}}]}}",
                rf"detail is '{detail}', allowed for 'slow' are seconds below 1000, such as '0\.15 s'",
            )
            for detail in ("", "fast", "-1 s", "nan s", "0.2")
        ),
        (
            "{shape: chaos, given: [{kind: kill, target: a, at_seconds: 3, until_seconds: 3}]}",
            r"shape is 'chaos', allowed beside given faults is none",
        ),
        ("{shape: chaos}\nconsumer: worker\nminute_seconds: 2", r"'chaos', allowed with minute_seconds is 'calm'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(faults: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse(f"{GOOD}faults: {faults}", source="p")


def test_what_cannot_be_scheduled_is_refused_in_one_line() -> None:
    """A target that is not there, and a load that is over before the first fault."""
    given = parse(
        f"{GOOD}faults: {{given: [{{kind: kill, target: nobody, at_seconds: 3, until_seconds: 3}}]}}", source="p"
    ).faults

    with pytest.raises(ConfigError, match="'nobody', allowed for 'kill' is one of audit-0, audit-1, billing-0"):
        scheduled(given, TARGETS, seed=1, duration_seconds=60)
    with pytest.raises(ConfigError, match="'nobody', allowed for 'kill' is none with this consumer"):
        scheduled(given, RAW, seed=1, duration_seconds=60)
    with pytest.raises(ConfigError, match="after_seconds is 2, allowed is less than 2, when the last fault has to"):
        scheduled(CHAOS, TARGETS, seed=1, duration_seconds=2)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ("kind: freeze, target: billing-0", "kind: freeze, target: billing-0", True),
        ("kind: cut, target: 'all:endpoint'", "kind: stall, target: 'billing-0:endpoint'", True),
        ("kind: stall, target: 'billing-0:endpoint'", "kind: cut, target: 'billing-0:endpoint'", True),
        ("kind: freeze, target: billing-0", "kind: freeze, target: billing-1", False),
        ("kind: freeze, target: billing-0", "kind: kill, target: billing-0", False),
        ("kind: stall, target: 'billing-0:endpoint'", "kind: cut, target: 'billing-1:endpoint'", False),
    ],
)
def test_two_given_faults_of_one_thing_do_not_overlap(first: str, second: str, *, is_refused: bool) -> None:
    """The end of the first would end both, and the history have the second as longer than it was."""

    def given(at_seconds: float) -> Faults:
        later = f"{{{second}, at_seconds: {at_seconds}, until_seconds: 9}}"
        return parse(
            f"{GOOD}faults: {{given: [{later}, {{{first}, at_seconds: 1, until_seconds: 5}}]}}", source="p"
        ).faults

    assert len(scheduled(given(5), TARGETS, seed=1, duration_seconds=60)) == 2
    if is_refused:
        with pytest.raises(ConfigError, match=r"is until 5 s, and \w+ of \S+ from 4 s, allowed is one at a time"):
            scheduled(given(4), TARGETS, seed=1, duration_seconds=60)
    else:
        assert len(scheduled(given(4), TARGETS, seed=1, duration_seconds=60)) == 2


def test_a_kind_that_is_no_fault_of_a_wire_has_a_target_that_is_no_line() -> None:
    assert TARGETS.of_kind(FaultKind.KILL) == ("audit-0", "audit-1", "billing-0", "billing-1")
    assert TARGETS.of_kind(FaultKind.DEPLOY) == ("audit", "billing")
    assert TARGETS.of_kind(FaultKind.LOCK) == ("audit:database", "billing:database")
    assert TARGETS.of_kind(FaultKind.CUT)[:2] == ("publish:endpoint", "audit-0:endpoint")
    assert TARGETS.of_kind(FaultKind.CUT)[-1] == "all:endpoint"


@pytest.mark.parametrize(
    ("shape", "endpoint_url", "has_database", "sentence"),
    [
        ("network", None, False, "the endpoint is AWS, allowed with faults of the network is an http:// one"),
        ("chaos", "https://a.example", False, "the endpoint is https://a.example, allowed with faults of the network"),
        ("database", "http://a.example", True, "SLUICE_DSN is set, allowed with faults of a database is none"),
        ("crashes", None, True, None),
        ("database", None, False, None),
        ("chaos", "http://a.example", False, None),
    ],
)
def test_what_cannot_be_done_where_a_run_takes_place_is_refused_before_it_begins(
    shape: Shape,
    endpoint_url: str | None,
    *,
    has_database: bool,
    sentence: str | None,
) -> None:
    faults = scheduled(Faults(shape=shape), TARGETS, seed=1, duration_seconds=60)

    with pytest.raises(ConfigError, match=sentence) if sentence else nullcontext():
        require_possible(faults, endpoint_url=endpoint_url, has_database=has_database)
