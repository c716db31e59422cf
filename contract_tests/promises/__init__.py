"""Every promise Sluice relies on: what is promised, by whom, how we know, and which saboteur breaks it.

The contract tests carry the ids (`@promise("GRP-01")`); this is the only place with evidence. Ids with a fact behind
them are the fact's; `SLU-nn` are Sluice's own compositions of several. `docs/promises.md` is generated from here.
"""

from dataclasses import replace

from contract_tests.promises import dead_letters, deployment, fan_out, groups, messages, queues, topics
from contract_tests.promises.promise import Evidence, Grade, Promise, Promiser

__all__ = ["CORE", "PROMISES", "Evidence", "Grade", "Promise", "Promiser"]

PROMISES: dict[str, Promise] = {
    id_: replace(promise, id=id_, area=area)
    for module in (groups, messages, queues, dead_letters, fan_out, topics, deployment)
    for area, promises in module.AREAS.items()
    for id_, promise in promises.items()
}

_CORE = {
    "blocking": "GRP-01 SLU-01 GRP-05 GRP-02 GRP-06 VIS-11",
    "order": "RCV-16 RCV-08 SND-10 ORD-02 SLU-04",
    "visibility": "RCV-17 VIS-01 VIS-14 VIS-13",
    "deduplication": "DED-01 DED-08 RCV-05 DED-11 SLU-02 DED-04 DED-09",
    "messages": "SND-01 SND-02 SLU-30 RCV-11 VIS-17",
    "dead letters": "DLQ-01 DLQ-04 DLQ-06 DLQ-09 DLQ-21",
    "move tasks": "MOV-20 MOV-17 MOV-31 MOV-01",
    "fan-out": "SLU-05 SNS-24 SLU-06 SNS-39 SNS-14 SNS-31",
}
CORE: tuple[str, ...] = tuple(id_ for ids in _CORE.values() for id_ in ids.split())
"""What everybody who builds on FIFO queues and topics should be able to recite; `pytest contract_tests -m core`."""
