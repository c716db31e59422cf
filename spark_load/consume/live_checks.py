"""Live counters of suspicious receives, for whoever watches a run. They never enter its verdict.

A consumer sees its own receives only, and judges nothing: a message that comes again may be lawful, one that seems to
fall back behind another may be the generator's doing. The judge has the whole history.
"""

from collections import defaultdict

from sluice.history.events import Identity, is_end_marker
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import Progress

_GROUPS_MAX = 100_000  # remembered; beyond it the order of no further group is looked at


class LiveChecks:
    """Counts suspicious receives into a consumer's progress; messages of another run are strangers."""

    def __init__(self, progress: Progress, run: str, profile: Profile) -> None:
        self._progress, self._run = progress, run
        self._is_ordered = not profile.late_duplicate_share
        self._last: dict[str, int] = defaultdict(lambda: -1)

    def look(self, identity: Identity | None, *, receive_count: int) -> None:
        """Count a received message if it looks suspicious."""
        if identity is None or identity.run != self._run:
            self._progress.strangers += 1
        elif receive_count > 1:
            self._progress.again += 1
        elif self._is_ordered and not is_end_marker(identity.idx):
            self._check_order(identity)

    def _check_order(self, identity: Identity) -> None:
        group, idx = identity.message_group_id, identity.idx
        if group not in self._last and len(self._last) >= _GROUPS_MAX:
            return
        self._progress.fallen_back += idx <= self._last[group]
        self._last[group] = max(idx, self._last[group])
