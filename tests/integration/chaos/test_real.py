"""What fails with real processes is found by a real run, and written down as a profile after a few more."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_load.profiles import profile, trace
from tests.chaos.real import main

MESSAGES, FAULTS, TRIES = 200, 10, 2


@pytest.mark.slow  # three runs of half a minute or more, of which one would show less
def test_workers_without_an_inbox_are_found_invalid_and_what_is_left_can_be_run(tmp_path: Path) -> None:
    """Each of them waits between commit and delete: under load, a kill nearly always comes in between."""
    options = ["--variant", "no-inbox", "--seed", "3", "--messages", str(MESSAGES), "--seconds", "16"]

    ended = CliRunner().invoke(main, [*options, "--tries", str(TRIES), "--output", str(tmp_path)])

    assert ended.exit_code == 1, ended.output
    assert "its effect was committed 2 times" in ended.output
    assert ended.output.count(" messages: ") <= 1 + TRIES
    least = profile.load(str(tmp_path / "least.yaml"))
    assert least.trace_file is not None
    recorded, _ = trace.read(least.trace_file)
    assert len(recorded) == MESSAGES  # two tries are for faults alone
    assert 0 < len(least.profile.faults.given) <= FAULTS
