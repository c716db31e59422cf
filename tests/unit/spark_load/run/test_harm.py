"""What the databases know after a run with faults, where there are any of its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.recorder.journal import Journal
from spark_load.faults.drawing import Fault
from spark_load.faults.lines import Lines
from spark_load.faults.shapes import FaultKind
from spark_load.plan.plan import Plan
from spark_load.profiles import profile
from spark_load.run import driver
from spark_load.run.harm import Harm
from spark_load.runtime.task_context import Run
from tests.support.deployments import ONE_QUEUE

_LOAD = "messages_per_second: 10\nduration_seconds: 1\ngroup_count: 1\nconsumer: worker\n"
_KILL = Fault(kind=FaultKind.KILL, target="billing-0", at_seconds=0.0, until_seconds=0.0)


def _run(folder: Path) -> Run:
    plan = Plan(profile.parse(_LOAD, source="load"), 1)
    return Run(id="r", folder=folder, deployment=ONE_QUEUE, plan=plan, clock_id="c", clock_offset_us=0)


@pytest.mark.parametrize("dsn", [None, "postgresql://nobody@127.0.0.1:1/none"])
def test_there_is_nothing_to_compare_where_the_run_has_no_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str | None
) -> None:
    """No worker ever began, or they all worked with a database of somebody else's."""
    if dsn is None:
        monkeypatch.delenv("SLUICE_DSN", raising=False)
    else:
        monkeypatch.setenv("SLUICE_DSN", dsn)
    journal = Journal(tmp_path, "journal", common={})

    with Lines() as lines:
        assert Harm(_run(tmp_path), [_KILL], lines).compare(journal) == []

    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == []


def test_a_missing_effect_proves_nothing_where_a_killed_worker_was_the_only_one_to_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = profile.parse(_LOAD, source="load")
    queues = tuple(ONE_QUEUE.queue_urls)

    monkeypatch.setenv("SLUICE_DSN", "postgresql://nobody@127.0.0.1:1/none")
    assert driver._effects_recorded(ONE_QUEUE, load, [_KILL]) == ()
    assert driver._effects_recorded(ONE_QUEUE, load, []) == queues
    assert driver._effects_recorded(ONE_QUEUE, replace(load, consumer="raw"), [_KILL]) == queues

    monkeypatch.delenv("SLUICE_DSN")
    assert driver._effects_recorded(ONE_QUEUE, load, [_KILL]) == queues
