"""A profile is read as a whole: built-in profiles are valid, and an invalid profile is refused in one line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import ConfigError
from spark_load.profiles import profile as profiles
from spark_load.profiles.fields import Phase
from spark_load.profiles.profile import Profile, parse

VALID_FIELDS = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 2\n"
SHIPPED = {
    "backlog-drain",
    "bundles",
    "demo",
    "duplicate-storm",
    "hot-group",
    "hot-group-bundled",
    "many-groups",
    "poison",
    "ramp",
    "release-gate",
    "scale",
    "smoke",
    "soak",
    "spike",
    "steady",
    "tiny",
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_built_in_profile_says_what_it_shows_and_where(name: str) -> None:
    shows, where = profiles.about(name)

    assert profiles.load(name).name == name
    assert len(shows) > 30
    assert shows.endswith(".")
    assert where in ("LocalStack and AWS", "LocalStack", "AWS")


def test_the_built_in_profiles_have_the_load_that_their_names_promise() -> None:
    """`smoke` is `demo` without faults; a spike is ten times its base; the release gate has every limit."""
    loaded = {name: profiles.load(name).profile for name in profiles.names()}

    assert set(loaded) == SHIPPED
    assert loaded["smoke"].message_count == 3_000
    assert loaded["smoke"].messages_per_second == 40
    smoke = loaded["smoke"]
    calm = replace(
        loaded["demo"], faults=smoke.faults, recovery_seconds_max=None, duration_seconds=smoke.duration_seconds
    )
    assert calm == loaded["smoke"]
    assert len(loaded["demo"].faults.given) == 2
    assert loaded["many-groups"].group_count == 100_000
    assert loaded["soak"].duration_seconds >= 2 * 3_600
    assert loaded["spike"].peak_per_second >= 10 * loaded["spike"].steps[0].messages_per_second
    storm, gate = loaded["duplicate-storm"], loaded["release-gate"]
    assert min(storm.duplicate_share, storm.late_duplicate_share) > 0.1
    assert None not in (gate.latency_seconds_max, gate.drain_seconds_max)
    assert None not in (gate.throttled_share_max, gate.fan_out_skew_seconds_max, gate.stuck_seconds_max)


def test_phases_make_a_rate_and_a_duration() -> None:
    """4 s at 10/s and a ramp of 2 s from 10 to 30/s are 80 messages in 6 s."""
    profile = parse(
        "group_count: 2\nphases:\n- {duration_seconds: 4, messages_per_second: 10}\n"
        "- {duration_seconds: 2, messages_per_second: 10, to_per_second: 30}\n",
        source="p",
    )

    assert profile.message_count == 80
    assert profile.duration_seconds == 6
    assert profile.peak_per_second == 30
    assert profile.messages_per_second == pytest.approx(80 / 6)
    assert Profile(**json.loads(json.dumps(profile.as_json()))) == profile
    constant = parse(VALID_FIELDS, source="p")
    assert constant.steps == (Phase(duration_seconds=1, messages_per_second=10),)


def test_a_profile_stored_by_an_earlier_version_is_read() -> None:
    """It lacks later fields, which get their defaults."""
    stored: dict[str, Any] = {
        "messages_per_second": 40,
        "duration_seconds": 8,
        "group_count": 20,
        "group_skew": 1.0,
        "payload_bytes": 128,
        "duplicate_share": 0.1,
        "duplicate_after_seconds": 1,
        "publish_tasks": 1,
        "consumers_per_queue": 1,
        "publish_linger_seconds": 0.1,
        "poll_pause_seconds": 0.15,
        "lateness_budget_seconds": 10,
        "drain_timeout_seconds": 10,
        "latency_seconds_max": None,
    }

    profile = Profile(**stored)

    assert profile.message_count == 320
    assert profile.consumer == "raw"
    assert profile.destination == "topic"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("consumer: worker", {}),
        ("", {"R2": "raw consumers keep no inbox: what comes twice has its effect twice"}),
    ],
)
def test_a_profile_lists_the_anomalies_that_it_allows_with_reasons(fields: str, reason: dict[str, str]) -> None:
    """R2 is an effect that happened twice. The real worker's inbox prevents it."""
    assert parse(VALID_FIELDS + fields, source="p").allowed_anomalies() == reason


VALID_STEP = "group_count: 2\nphases:\n- {duration_seconds: 1, messages_per_second: 10}\n"
REFUSED_ALONE = {
    "messages_per_second: -5\nduration_seconds: 1\ngroup_count: 2": (
        "messages_per_second is -5 (line 1): Input should be greater than 0"
    ),
    "messages_per_second: 10\nduration_seconds: soon\ngroup_count: 2": (
        "duration_seconds is 'soon' (line 2): Input should be a valid number, unable to parse string as a number"
    ),
    "messages_per_second: 10\nduration_seconds: .nan\ngroup_count: 2": (
        "duration_seconds is nan (line 2): Input should be less than or equal to 86400"
    ),
    "group_count: 1": (
        "messages_per_second and duration_seconds are missing: give messages_per_second and duration_seconds, or phases"
    ),
    "group_count: 1\nmessages_per_second: 5": (
        "duration_seconds is missing: give messages_per_second and duration_seconds, or phases"
    ),
    "group_count: 1\nphases: [&half {duration_seconds: 50000, messages_per_second: 1}, *half]": (
        "the phases last 100000 s, allowed is at most 86400"
    ),
    "group_count: 1\nphases: [{duration_seconds: 5, messages_per_second: 0}]": (
        "the phases make 0 messages, allowed is 1 to 50000000"
    ),
    "messages_per_second: 0.1\nduration_seconds: 1\ngroup_count: 2": (
        "messages_per_second x duration_seconds is 0 messages, allowed is 1 to 50000000"
    ),
}
REFUSED_BESIDE_VALID_FIELDS = {
    "lateness_budget_seconds: .inf": (
        "lateness_budget_seconds is inf (line 4): Input should be less than or equal to 3600"
    ),
    "duplicate_share: 1.5": "duplicate_share is 1.5 (line 4): Input should be less than or equal to 1",
    "duplicate_after_seconds: 299": "duplicate_after_seconds is 299 (line 4): Input should be less than 240",
    "late_duplicate_after_seconds: 300\nlate_duplicate_share: 0.1": (
        "late_duplicate_after_seconds is 300 (line 4): Input should be greater than or equal to 360"
    ),
    "destination: bucket": "destination is 'bucket' (line 4): Input should be 'topic', 'queue' or 'outbox'",
    "rate: 5": "rate (line 4) is not a field of a profile",
    "group_skwe: 1": "group_skwe (line 4) is not a field of a profile; did you mean group_skew?",
    "group_count: 3": "group_count is given twice (lines 3 and 4); remove one",
    "warm_up_seconds: 0.01": (
        "warm_up_seconds is 0.01, which at the first phase's rate (10 a second) is no message: leave it out, or warm"
        " up for longer"
    ),
    "publish_tasks: 3": "publish_tasks is 3, allowed is at most group_count (2): a group belongs to one task",
    "late_duplicate_share: 0.1": (
        "late_duplicate_after_seconds is missing, and late_duplicate_share is 0.1: give 360 or more"
    ),
    "late_duplicate_after_seconds: 400": (
        "late_duplicate_after_seconds is 400, and late_duplicate_share is 0: leave it out, or give a share"
    ),
    "late_duplicate_share: 0.6\nlate_duplicate_after_seconds: 400\nduplicate_share: 0.5": (
        "duplicate_share (0.5) + late_duplicate_share (0.6) is 1.1, allowed is at most 1: no message is two of these"
    ),
    "failure_share: 0.5\ncrash_share: 0.3\npoison_share: 0.4": (
        "failure_share (0.5) + crash_share (0.3) + poison_share (0.4) is 1.2, allowed is at most 1: no message is"
        " two of these"
    ),
    "redrive: true": "redrive is true, and poison_share is 0: nothing would be dead-lettered; give a poison_share",
    "consumer: worker\nfailure_share: 0.1": (
        "failure_share is 0.1, allowed with consumer 'worker' is none: only the raw consumer injects it; leave it"
        " out, or choose consumer 'raw'"
    ),
    "minute_seconds: 2": (
        "minute_seconds is 2, allowed with consumer 'raw' is none: a scaling policy only starts workers;"
        " choose consumer 'worker'"
    ),
    "consumer: lambda\nminute_seconds: 2": (
        "minute_seconds is 2, allowed with consumer 'lambda' is none: a scaling policy only starts workers;"
        " choose consumer 'worker'"
    ),
    "consumer: worker\nminute_seconds: 2\nconsumers_per_queue: 2": (
        "consumers_per_queue is 2, allowed with minute_seconds is none: the policy says how many there are; leave it"
        " out"
    ),
    "consumer: worker\nminute_seconds: 2\nconsume_after_seconds: 5": (
        "consume_after_seconds is 5, allowed with minute_seconds is none: scaled workers begin with the load; leave"
        " it out"
    ),
    "consumer: worker\nminute_seconds: 2\nwarm_up_seconds: 1": (
        "warm_up_seconds is 1, allowed with minute_seconds is none: scaled workers begin with the load; leave it out"
    ),
    "visibility_timeout_seconds: 5\nhandler_seconds: 5": (
        "handler_seconds is 5, allowed is less than visibility_timeout_seconds (5): every message would come again"
        " before it is done"
    ),
    "visibility_timeout_seconds: 60\ncrash_share: 0.1": (
        "drain_timeout_seconds is 60, allowed with crash_share is more than visibility_timeout_seconds (60): the"
        " leases of crashed consumers have to run out"
    ),
    "destination: outbox": (
        "consumer is 'raw', allowed with destination 'outbox' is 'worker' or 'lambda': the raw consumer cannot read the"
        " outbox's envelopes; choose one of the two"
    ),
    "destination: outbox\nconsumer: worker\nduplicate_share: 0.1": (
        "duplicate_share is 0.1, allowed with destination 'outbox' is none: an outbox takes an event once; leave it out"
    ),
    "destination: queue\nfan_out_skew_seconds_max: 5": (
        "fan_out_skew_seconds_max is 5, allowed with destination 'queue' is none: only a topic fans out; leave it out"
    ),
}
REFUSED_BESIDE_A_STEP = {
    "duration_seconds: 9": "duration_seconds is 9, allowed beside phases is none: they make 1",
    "- {duration_seconds: 1, messages_per_second: fast}": (
        "phases.1.messages_per_second is 'fast' (line 4): Input should be a valid number, unable to parse string as"
        " a number"
    ),
    "- 5": "phases.1 is 5 (line 4): allowed are fields of its own, such as 'name: value' on a line",
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *REFUSED_ALONE.items(),
        *((VALID_FIELDS + fields, message) for fields, message in REFUSED_BESIDE_VALID_FIELDS.items()),
        *((VALID_STEP + fields, message) for fields, message in REFUSED_BESIDE_A_STEP.items()),
    ],
)
def test_an_impossible_profile_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, source="p")

    assert str(refused.value) == f"profile 'p': {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", " is None, allowed are lines of 'field: value'"),
        ("- a\n- b\n", " is ['a', 'b'], allowed are lines of 'field: value'"),
        ("a: [1\nb: 2", " is not YAML (line 2: expected ',' or ']', but got ':')"),
        ("a: \x07", " is not YAML"),
        ("group_count: " + "9" * 5_000, " is not YAML"),
        ("a: 1\n---\nb: 2\n", " is not YAML (line 2: but found another document)"),
    ],
)
def test_an_unreadable_profile_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, source="p")

    assert (
        str(refused.value) == f"profile 'p'{message}; its fields: python -m pydoc spark_load.profiles.profile.Profile"
    )


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no profile 'huge', allowed is"):
        profiles.load("huge")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\); name"):
        profiles.load(str(tmp_path / "folder.yaml"))
    (tmp_path / "old.yaml").write_bytes(b"seed: 1 # caf\xe9\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 14\); save it as UTF-8"):
        profiles.load(str(tmp_path / "old.yaml"))


def test_a_suffix_may_be_written_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "LOUD.YAML"
    path.write_text("messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\n", encoding="utf-8")

    assert profiles.load(str(path)).name == "LOUD"


def test_a_small_file_that_makes_a_huge_value_is_refused_at_once() -> None:
    """Thirty lists, each nine times in the next by YAML's aliases; expanded, they would fill any memory."""
    lists = "\n".join(f"- &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 30))

    with pytest.raises(ConfigError, match=r"^profile 'p' is \[\[\.{3}\], .{,50}, \.{3}\], allowed are lines"):
        parse(f"- &a0 [x]\n{lists}\n", source="p")


def test_a_name_that_is_nearly_right_gets_a_question() -> None:
    with pytest.raises(ConfigError, match=r"path of a \.yaml file; did you mean hot-group or hot-group-bundled\?$"):
        profiles.load("hot_group")
