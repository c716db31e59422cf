"""Every promise Sluice relies on: what is promised, by whom, how we know, and which saboteur breaks it.

The contract tests carry the ids (`@promise("GRP-01")`); this is the only place with evidence. Ids with a fact behind
them are the fact's; `SLU-nn` are Sluice's own compositions of several. `docs/promises.md` is generated from here.
"""

from sluice.promises import dead_letters, deployment, fan_out, groups, messages, queues, topics
from sluice.promises.promise import Evidence, Grade, Promise, Promiser

__all__ = ["PROMISES", "Evidence", "Grade", "Promise", "Promiser"]

PROMISES: dict[str, Promise] = {
    promise.id: promise
    for area in (groups, messages, queues, dead_letters, fan_out, topics, deployment)
    for promise in area.PROMISES
}
