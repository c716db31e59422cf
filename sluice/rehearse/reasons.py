"""The reason for which a case misses its latency or does not drain: its groups, its most tasks, or its policies."""

from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.model.scenarios import per_second
from sluice.rehearse.model.traffic import DrawnTraffic
from sluice.rehearse.rehearsal import RehearsalRow

_STARTING_MINUTES = 30  # messages that are late in this time from the start are put down to too few tasks at first


def reason(service: ScaledService, row: RehearsalRow) -> str:
    """Return why a row is missed or not drained, in one sentence."""
    return why_late(service, row) if row.is_missed else why_left(service, row)


def why_left(service: ScaledService, row: RehearsalRow) -> str:
    """Return why messages remained: a limit that no number of tasks changes, or the number of tasks."""
    traffic, tasks = row.scenario.traffic, row.scenario.tasks
    sent = traffic.message_count / traffic.minutes / 60
    lane = per_second(tasks, 1 / tasks.lanes)
    queue = service.queue
    if isinstance(traffic, DrawnTraffic) and traffic.poison_share and queue and not queue.max_receive_count:
        return "messages that always fail are never dead-lettered, and are received again and again: no scaling helps"
    if queue is None or queue.is_fifo:
        if sent > lane * traffic.group_count:
            limit = f"{traffic.group_count} groups are limited to {lane * traffic.group_count:.2g} messages a second"
            return f"{limit} and get {sent:.2g}: no scaling helps"
        if (hottest := sent * traffic.hottest_share) > lane:
            return f"one group is limited to {lane:.2g} messages a second and gets {hottest:.2g}: no scaling helps"
    if sent > (most := per_second(tasks, service.max_tasks)):
        return f"MaxCapacity {service.max_tasks} handles {most:.3g} messages a second, and {sent:.3g} come"
    return f"there were at most {row.result.most_tasks} of {service.max_tasks} tasks, {_needed_tasks(row)} are needed"


def why_late(service: ScaledService, row: RehearsalRow) -> str:
    """Return in how many minutes messages were late, and how many tasks there were then."""
    acceptable_seconds = row.scenario.tasks.acceptable_latency_seconds
    late = [minute for minute, p95 in enumerate(row.result.p95_seconds) if p95 is not None and p95 > acceptable_seconds]
    desired = row.result.series["desired"]
    full = sum((desired[minute] or 0) >= service.max_tasks for minute in late)
    starting = sum((desired[minute] or 0) < service.max_tasks and minute < _STARTING_MINUTES for minute in late)
    parts = {
        f"with all {service.max_tasks} tasks": full,
        f"in the first {_STARTING_MINUTES}, from MinCapacity {service.min_tasks}": starting,
        f"later with fewer tasks than MaxCapacity {service.max_tasks}": len(late) - full - starting,
    }
    if row.result.left:
        parts["messages were never handled, as too few tasks ran to the end"] = row.result.left
    counted = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count)
    minutes = f"{len(late)} of {len(row.result.p95_seconds)} minutes"
    return f"late in {minutes}: {counted}; {_needed_tasks(row)} are needed on average"


def _needed_tasks(row: RehearsalRow) -> str:
    """Return how many tasks the traffic needs on average, as text."""
    traffic = row.scenario.traffic
    return f"{traffic.message_count / traffic.minutes / 60 / per_second(row.scenario.tasks, 1):.1f} tasks"
