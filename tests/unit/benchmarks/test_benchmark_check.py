"""The large histories of the benchmarks are sane, except for the groups that are broken on purpose."""

from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.checking import histories
from benchmarks.checking.histories import EXPECTATION
from sluice.history.events import HistoryEvent
from sluice.judge.checker import check_group


def test_only_the_broken_groups_of_a_history_have_violations(tmp_path: Path) -> None:
    """The four groups lose, double, reorder and overlap a message, in this order."""
    made = histories.write(tmp_path / "h", events=3_000, bad_share=0.2, group_count=20, slice_count=400)

    groups: dict[str, list[HistoryEvent]] = defaultdict(list)
    rows = pq.read_table(tmp_path / "h").to_pylist()
    for row in rows:
        if row["message_group_id"] is not None:
            groups[row["message_group_id"]].append(HistoryEvent(**row))

    found = {name: check_group(events, EXPECTATION) for name, events in groups.items()}
    shown = {
        name: {violation.anomaly for violation in finding.violations}
        for name, finding in found.items()
        if finding.violations
    }
    assert len(rows) == made.events
    assert len(groups) == 20
    assert made.bad_groups == {"g3", "g4", "g5", "g6"}
    assert shown == {"g3": {"E1"}, "g4": {"B7", "B8"}, "g5": {"C1", "C2"}, "g6": {"D1"}}
    assert all(finding.unknowns == () for finding in found.values())
