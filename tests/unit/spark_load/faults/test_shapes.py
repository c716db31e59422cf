"""A schedule of faults follows from its seed, has the kinds of its shape, and is refused if it is impossible."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import get_args

import pytest

from sluice.errors import ConfigError
from spark_load.faults.shapes import (
    FUNCTION,
    INSTANT,
    LOSSY,
    NETWORK,
    SHAPES,
    STREAM,
    FaultKind,
    Faults,
    Shape,
    Targets,
    as_given,
    require_possible,
    schedule_faults,
    task_restarts_max,
)
from spark_load.profiles.profile import parse

TARGETS = Targets.of(consumer="worker", consumers=("audit", "billing"), consumers_per_queue=2, publish_tasks=1)
RAW = Targets.of(consumer="raw", consumers=("audit", "billing"), consumers_per_queue=2)
POSTGRES = Targets.of(
    consumer="worker",
    consumers=("audit", "billing"),
    consumers_per_queue=2,
    publish_tasks=1,
    database="postgres",
    restarts=("endpoint", "database"),
)
FUNCTIONS = replace(TARGETS, functions=("billing",))
OUTBOX = replace(TARGETS, relays=("relay-0", "relay-1"), lines=("relay-0", "relay-1", *TARGETS.workers))
CHAOS = Faults(shape="chaos", every_seconds=2)
GOOD = "messages_per_second: 10\nduration_seconds: 30\ngroup_count: 2\n"


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    """A seed in the profile takes precedence over the run's."""
    drawn = schedule_faults(CHAOS, TARGETS, seed=7, duration_seconds=60)

    assert drawn == schedule_faults(CHAOS, TARGETS, seed=7, duration_seconds=60)
    assert drawn != schedule_faults(CHAOS, TARGETS, seed=8, duration_seconds=60)
    assert drawn == schedule_faults(replace(CHAOS, seed=7), TARGETS, seed=8, duration_seconds=60)


def test_relays_of_an_outbox_and_their_lines_replace_publishers_as_targets() -> None:
    """A consumer with the relays' name prevents that: the faults would hit its workers, too."""
    through = partial(Targets.of, consumer="worker", consumers_per_queue=2, publish_tasks=1, is_through_outbox=True)

    assert through(consumers=("audit", "billing")) == OUTBOX
    relayed = [kind for kind in FaultKind if {*OUTBOX.relays} <= {*OUTBOX.of_kind(kind)}]
    assert relayed == ["kill", "terminate", "freeze"]
    assert OUTBOX.of_kind(FaultKind.CUT)[:2] == ("relay-0:endpoint", "relay-1:endpoint")
    assert OUTBOX.of_kind(FaultKind.SWALLOW) == ()
    assert through(consumers=("relay",)).relays == ()


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "calm"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("targets", [TARGETS, POSTGRES], ids=["own files", "postgres"])
def test_every_kind_of_a_shape_comes_and_ends_in_its_window(shape: Shape, seed: int, targets: Targets) -> None:
    """A worker hit at the very end would have no time to recover."""
    faults = schedule_faults(
        Faults(shape=shape, after_seconds=3, until_seconds=40), targets, seed=seed, duration_seconds=60
    )

    possible = {kind for kind in SHAPES[shape] if targets.draw_targets(kind, shape)}
    assert {fault.kind for fault in faults} == possible
    assert [fault for fault in faults if not 3 <= fault.at_seconds <= fault.until_seconds <= 40] == []
    assert [fault for fault in faults if fault.target not in targets.of_kind(fault.kind)] == []


@pytest.mark.parametrize("kind", FUNCTION)
def test_only_functions_are_throttled_or_answer_wrongly(kind: FaultKind) -> None:
    """These faults are of an event source mapping, which workers do not have."""
    assert FUNCTIONS.of_kind(kind) == ("billing",)
    assert TARGETS.of_kind(kind) == ()
    assert kind in {fault.kind for fault in schedule_faults(CHAOS, FUNCTIONS, seed=1, duration_seconds=120)}


def test_a_calm_shape_has_no_fault_and_raw_consumers_only_the_networks() -> None:
    """Raw consumers are tasks of Spark, which runs none of them a second time."""
    assert not set(LOSSY) & {kind for kinds in SHAPES.values() for kind in kinds}
    assert set(SHAPES) == set(get_args(Shape.__value__))
    assert schedule_faults(Faults(), TARGETS, seed=1, duration_seconds=60) == ()
    assert {fault.kind for fault in schedule_faults(CHAOS, RAW, seed=1, duration_seconds=60)} == set(NETWORK)
    with pytest.raises(ConfigError, match=r"faults\.shape is 'crashes', allowed here is one of calm"):
        schedule_faults(Faults(shape="crashes"), RAW, seed=1, duration_seconds=60)


def test_publishers_are_harmed_where_their_processes_are_on_this_machine() -> None:
    """Also with raw consumers: publishers are the only tasks that Spark runs again after a fault ended them."""
    here = Targets.of(consumer="raw", consumers=("audit",), consumers_per_queue=2, publish_tasks=2)
    crashes = schedule_faults(Faults(shape="crashes"), here, seed=1, duration_seconds=60)

    assert {fault.target for fault in crashes} == {"publish-0", "publish-1"}
    assert task_restarts_max(crashes) == sum(fault.kind in INSTANT for fault in crashes) > 1
    assert task_restarts_max(schedule_faults(CHAOS, RAW, seed=1, duration_seconds=60)) == 0
    assert here.of_kind(FaultKind.SKEW) == ()
    named_alike = Targets.of(consumer="worker", consumers=("publish",), consumers_per_queue=1, publish_tasks=1)
    assert named_alike.of_kind(FaultKind.KILL) == ("publish-0",)


def test_a_publisher_is_frozen_for_less_than_the_deduplication_window() -> None:
    """A message that it sends again after five minutes would be a second message."""

    def freeze_fault(target: str, until_seconds: int) -> Faults:
        given = f"{{given: [{{kind: freeze, target: {target}, at_seconds: 1, until_seconds: {until_seconds}}}]}}"
        return parse(f"{GOOD}faults: {given}", source="p").faults

    assert len(schedule_faults(freeze_fault("publish-0", 241), TARGETS, seed=1, duration_seconds=600)) == 1
    assert len(schedule_faults(freeze_fault("audit-0", 242), TARGETS, seed=1, duration_seconds=600)) == 1
    with pytest.raises(ConfigError, match="publish-0 is frozen for 241 s, allowed is at most 240: what it sent before"):
        schedule_faults(freeze_fault("publish-0", 242), TARGETS, seed=1, duration_seconds=600)


@pytest.mark.parametrize(("pause_seconds", "is_refused"), [(0, True), (59, True), (60, False)])
def test_freezes_of_a_publisher_with_little_time_between_are_one(pause_seconds: int, *, is_refused: bool) -> None:
    """Messages that were not answered before the first freeze may not be sent again before the second."""
    instants = [(1, 121), (121 + pause_seconds, 243 + pause_seconds)]
    given = [
        {"kind": "freeze", "target": "publish-0", "at_seconds": at_seconds, "until_seconds": until_seconds}
        for at_seconds, until_seconds in instants
    ]
    faults = parse(f"{GOOD}faults: {{given: {given}}}", source="p").faults

    frozen = pytest.raises(ConfigError, match=f"publish-0 is frozen for {242 + pause_seconds} s, allowed is at most")
    with frozen if is_refused else nullcontext():
        assert len(schedule_faults(faults, TARGETS, seed=1, duration_seconds=600)) == 2


def test_a_schedule_can_be_given_as_it_was_drawn() -> None:
    """So that a failing schedule can be shortened and run again."""
    drawn = schedule_faults(CHAOS, TARGETS, seed=7, duration_seconds=60)
    profile = parse(f"{GOOD}consumer: worker\nfaults: {as_given(drawn)}", source="p")

    assert schedule_faults(profile.faults, TARGETS, seed=1, duration_seconds=1) == drawn


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ("{shape: storm}", r"faults\.shape is 'storm' \(line 4\): Input should be 'calm', 'crashes', 'network'"),
        ("{shpae: chaos}", r"faults\.shpae \(line 4\) is not a field of a profile; did you mean shape"),
        ("{every_seconds: 0}", r"faults\.every_seconds is 0 \(line 4\): Input should be greater than or equal to 0\.2"),
        ("{after_seconds: 9, until_seconds: 9}", r"until_seconds is 9, allowed is more than after_seconds \(9\)"),
        *(
            (f"{{given: [{{target: a, at_seconds: 3, {given}}}]}}", sentence)
            for given, sentence in (
                ("kind: kill, until_seconds: 1", r"until_seconds is 1, allowed for 'kill' is at_seconds \(3\): it is"),
                ("kind: terminate, until_seconds: 3.25", r"until_seconds is 3\.25, allowed for 'terminate' is at_sec"),
                ("kind: freeze, until_seconds: 1", r"until_seconds is 1, allowed for 'freeze' is more than at_seconds"),
                (
                    "kind: full, until_seconds: 3",
                    r"until_seconds is 3, allowed for 'full' is more than at_seconds \(3\)",
                ),
                (
                    "kind: kill, until_seconds: 3, detail: hard",
                    "detail is 'hard', allowed for 'kill' is none: leave it",
                ),
                ("kind: cut, until_seconds: 4, detail: '500'", "detail is '500', allowed for 'cut' is none: leave it"),
                ("kind: answer, until_seconds: 4, detail: '418'", "is '418', allowed for 'answer' is one of 500, 503"),
                ("kind: poison, until_seconds: 4", "detail is '', allowed for 'poison' is one of reject, raise, hang"),
                *(
                    (f"kind: skew, until_seconds: 4, detail: '{ahead}'", f"'{ahead}', allowed for 'skew' is seconds be")
                    for ahead in ("a day", "0 s", "-0.0 s")
                ),
                *(
                    (f"kind: slow, until_seconds: 4, detail: '{later}'", f"'{later}', allowed for 'slow' is seconds ab")
                    for later in ("", "fast", "-1 s", "nan s", "0.2", "0 s", "0.000 s")
                ),
            )
        ),
        (
            "{shape: chaos, given: [{kind: kill, target: a, at_seconds: 3, until_seconds: 3}]}",
            r"shape is 'chaos', allowed beside given faults is none",
        ),
        ("{shape: chaos}\nconsumer: worker\nminute_seconds: 2", r"'chaos', allowed with minute_seconds is 'calm'"),
    ],
)
def test_an_impossible_fault_is_refused_in_one_line(faults: str, sentence: str) -> None:
    """The message names the field, its value, its line in the profile and what is allowed."""
    with pytest.raises(ConfigError, match=sentence):
        parse(f"{GOOD}faults: {faults}", source="p")


def test_faults_that_fit_no_schedule_are_refused_in_one_line() -> None:
    """A target that does not exist, and a load that ends before the first fault."""
    given = parse(
        f"{GOOD}faults: {{given: [{{kind: kill, target: nobody, at_seconds: 3, until_seconds: 3}}]}}", source="p"
    ).faults

    with pytest.raises(ConfigError, match="'nobody', allowed for 'kill' is one of audit-0, audit-1, billing-0"):
        schedule_faults(given, TARGETS, seed=1, duration_seconds=60)
    with pytest.raises(ConfigError, match="fault is 'kill', allowed here is one of cut, stall, slow, lo"):
        schedule_faults(given, RAW, seed=1, duration_seconds=60)
    with pytest.raises(ConfigError, match="after_seconds is 2, allowed is less than 2, when the last fault has to"):
        schedule_faults(CHAOS, TARGETS, seed=1, duration_seconds=2)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ("kind: freeze, target: billing-0", "kind: freeze, target: billing-0", True),
        ("kind: cut, target: 'all:endpoint'", "kind: stall, target: 'billing-0:endpoint'", True),
        ("kind: stall, target: 'billing-0:endpoint'", "kind: cut, target: 'billing-0:endpoint'", True),
        ("kind: freeze, target: billing-0", "kind: freeze, target: billing-1", False),
        ("kind: stall, target: 'billing-0:endpoint'", "kind: cut, target: 'billing-1:endpoint'", False),
        ("kind: cut, target: 'all:database'", "kind: stall, target: 'billing-0:database'", True),
        ("kind: cut, target: 'all:endpoint'", "kind: stall, target: 'billing-0:database'", False),
    ],
)
def test_two_given_faults_of_one_thing_do_not_overlap(first: str, second: str, *, is_refused: bool) -> None:
    """The end of the first would end both, and the history would show the second as longer than it was."""

    def given_faults(at_seconds: float) -> Faults:
        later = f"{{{second}, at_seconds: {at_seconds}, until_seconds: 9}}"
        return parse(
            f"{GOOD}faults: {{given: [{later}, {{{first}, at_seconds: 1, until_seconds: 5}}]}}", source="p"
        ).faults

    assert len(schedule_faults(given_faults(5), POSTGRES, seed=1, duration_seconds=60)) == 2
    if is_refused:
        with pytest.raises(ConfigError, match=r"is until 5 s, and \w+ of \S+ from 4 s, allowed is one at a time"):
            schedule_faults(given_faults(4), POSTGRES, seed=1, duration_seconds=60)
    else:
        assert len(schedule_faults(given_faults(4), POSTGRES, seed=1, duration_seconds=60)) == 2


def test_a_given_fault_happens_once_at_its_exact_instant() -> None:
    """A resumed run recognises by its words which faults were done."""

    def briefs(*instants: float) -> list[str]:
        kills = [
            {"kind": "kill", "target": "billing-0", "at_seconds": instant, "until_seconds": instant}
            for instant in instants
        ]
        given = parse(f"{GOOD}faults: {{given: {kills}}}", source="p").faults
        return [fault.brief for fault in schedule_faults(given, TARGETS, seed=1, duration_seconds=60)]

    assert briefs(12345.671, 12345.672) == ["kill of billing-0 at 12345.671 s", "kill of billing-0 at 12345.672 s"]
    with pytest.raises(ConfigError, match="is until 7 s, and kill of billing-0 from 7 s, allowed is one at a time"):
        briefs(7, 7)


@pytest.mark.parametrize("seed", [0, 238, 245])
def test_drawn_faults_could_be_given(seed: int) -> None:
    """Two of these seeds begin a fault when the window is over, which would take no time and is left out."""
    faults = replace(CHAOS, every_seconds=0.2, until_seconds=6)
    drawn = schedule_faults(faults, TARGETS, seed=seed, duration_seconds=60)

    assert schedule_faults(Faults(**as_given(drawn)), TARGETS, seed=1, duration_seconds=1) == drawn


def test_each_kind_of_fault_has_its_own_kind_of_target() -> None:
    """Processes are killed, consumers deployed, databases locked, and only lines cut."""
    assert TARGETS.of_kind(FaultKind.KILL) == ("audit-0", "audit-1", "billing-0", "billing-1", "publish-0")
    for kind in (FaultKind.DEPLOY, FaultKind.ROLL, FaultKind.POISON, FaultKind.REDRIVE):
        assert TARGETS.of_kind(kind) == ("audit", "billing")
        assert RAW.of_kind(kind) == ()
    assert OUTBOX.of_kind(FaultKind.ROLL) == ("audit", "billing", "relay")
    assert TARGETS.of_kind(FaultKind.LOCK) == ("audit:database", "billing:database")
    assert TARGETS.of_kind(FaultKind.CUT)[:2] == ("publish:endpoint", "audit-0:endpoint")
    assert TARGETS.of_kind(FaultKind.CUT)[-1] == "all:endpoint"


@pytest.mark.parametrize(
    ("shape", "endpoint_url", "sentence"),
    [
        ("network", None, "the endpoint is AWS, allowed with faults of the network is an http:// one"),
        ("chaos", "https://a.example", "the endpoint is https://a.example, allowed with faults of the network"),
        ("crashes", None, None),
        ("database", None, None),
        ("chaos", "http://a.example", None),
    ],
)
def test_faults_impossible_at_a_runs_place_are_refused_before_it_begins(
    shape: Shape,
    endpoint_url: str | None,
    sentence: str | None,
) -> None:
    """Faults of the network are injected into HTTP, so they need an endpoint without TLS."""
    faults = schedule_faults(Faults(shape=shape), POSTGRES, seed=1, duration_seconds=60)

    with pytest.raises(ConfigError, match=sentence) if sentence else nullcontext():
        require_possible(faults, endpoint_url=endpoint_url)


def test_only_a_local_emulator_with_a_command_is_restarted() -> None:
    """A restart may lose all messages, so nothing else is restarted."""
    text = f"{GOOD}faults: {{given: [{{kind: restart, target: endpoint, at_seconds: 3, until_seconds: 4}}]}}"
    given = schedule_faults(parse(text, source="p").faults, POSTGRES, seed=1, duration_seconds=60)
    drawn = schedule_faults(CHAOS, POSTGRES, seed=7, duration_seconds=600)

    require_possible(given, endpoint_url="http://localhost:4566")
    with pytest.raises(ConfigError, match=r"the endpoint is http://a\.example, allowed with a restart of the endpoint"):
        require_possible(given, endpoint_url="http://a.example")
    assert {fault.target for fault in drawn if fault.kind is FaultKind.RESTART} == {"database"}
    with pytest.raises(ConfigError, match=r"kind of a fault is 'restart', allowed here is one of kill, .* needs SLU"):
        schedule_faults(parse(text, source="p").faults, TARGETS, seed=1, duration_seconds=60)


def test_a_database_server_is_harmed_over_lines_and_a_file_locked() -> None:
    """SQLite is locked; a Postgres is harmed by faults of its line and by restarts.

    Another kind of database has none.
    """
    database = Faults(shape="database", every_seconds=2)

    def harm_of(faults: Faults, targets: Targets) -> set[tuple[FaultKind, str]]:
        found = schedule_faults(faults, targets, seed=7, duration_seconds=90)
        return {(fault.kind, fault.target.rpartition(":")[2]) for fault in found}

    assert harm_of(database, TARGETS) == {(FaultKind.LOCK, "database")}
    assert harm_of(database, POSTGRES) == {(kind, "database") for kind in (*STREAM, FaultKind.RESTART)}
    assert harm_of(Faults(shape="network"), POSTGRES) == {(kind, "endpoint") for kind in NETWORK}
    other = replace(TARGETS, database="other")
    with pytest.raises(ConfigError, match=r"faults\.shape is 'database', allowed here is one of calm, crashes, net"):
        schedule_faults(database, other, seed=1, duration_seconds=60)
