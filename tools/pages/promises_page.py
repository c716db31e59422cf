"""Write docs/promises.md: each promise with its evidence, its saboteurs, and the targets that deviate."""

from collections import defaultdict

from contract_tests.promises import CORE, PROMISES, Evidence
from sluice import deviations

_HEAD = """# Promises

Generated from `contract_tests/promises/` by `make docs`; do not edit.

Each promise has one contract test that carries its id, and each saboteur named here turns that test red (`make prove`).
Evidence says how we know that AWS behaves so, the strongest first: *recorded* from AWS with a date; *asserted* against
AWS by a test that recorded no answer, with the date of its run; *old*, the same undated; *reported* by users;
*documented* by AWS only; or *open*: inferred, and recorded by nobody. Deviations end with the grade of the strongest
evidence against them: where it is documented or open, AWS itself may prove to deviate.

What was collected about AWS and is no promise: [facts that no promise holds](untested.md), with the reason.
"""


def page() -> str:
    """Return the text of docs/promises.md."""
    core = [f"- **{id_}** {PROMISES[id_].statement}" for id_ in CORE]
    lines = [
        _HEAD,
        f"## The core: {len(CORE)} to recite",
        "",
        "`pytest contract_tests -m core` verifies them.",
        "",
        *core,
        "",
    ]
    for area in dict.fromkeys(promise.area for promise in PROMISES.values()):
        lines += [f"## {area}", "", "| id | promise | evidence | saboteurs | deviates |", "|---|---|---|---|---|"]
        for promise in PROMISES.values():
            if promise.area == area:
                evidence = "; ".join(map(_evidence, promise.evidence))
                saboteurs = ", ".join(f"`{name}`" for name in promise.saboteurs)
                targets: dict[str, list[str]] = defaultdict(list)
                for target, known in deviations.PROMISES.items():
                    if promise.id in known:
                        targets[str(known[promise.id])].append(target)
                deviates = "; ".join(f"{', '.join(of)}: {why} ({promise.grade})" for why, of in targets.items())
                lines.append(f"| {promise.id} | {promise.statement} | {evidence} | {saboteurs} | {deviates} |")
        lines.append("")
    return "\n".join(lines)


def _evidence(evidence: Evidence) -> str:
    source = f"<{evidence.source}>" if evidence.source.startswith("https:") else f"`{evidence.source}`"
    return f"{evidence.grade.value} ({evidence.date}) {source}"
