"""Processor time and memory of a process and all it started, from /proc."""

import os
from collections import defaultdict
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its living descendants, and of those they waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _tree(pid).values()) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the memory a process and its living descendants occupy; of a page that n share, each has an n-th."""
    return sum(_proportional_bytes(process) for process in _tree(pid))


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _tree(pid: int) -> dict[int, list[str]]:
    """Return the fields of /proc/<pid>/stat from the third on, of a process and its descendants."""
    fields, children = {}, defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
            except OSError:  # it has ended
                continue
            fields[int(folder.name)] = stat
            children[int(stat[1])].append(int(folder.name))
    found, waiting = {}, [pid]
    while waiting:
        item = waiting.pop()
        if item in fields:
            found[item] = fields[item]
            waiting += children[item]
    return found
