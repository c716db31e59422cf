"""docs/pitfalls.md: what goes wrong around queues, and the test that shows it does not go wrong here.

A test is about the pitfalls its name begins with, `test_w6_…` or `test_p1_p2_…`, and about those an id of its
parameters begins with. So the table fills itself; `PITFALLS` says what each is, `REASONS` why one has no test, or what
a test does not say.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1]
_PAGE = _PROJECT / "docs" / "pitfalls.md"
_AREAS = {
    "P": "Producer and relay",
    "W": "Worker",
    "L": "Holding a message",
    "D": "Dead letters",
    "G": "Gaps",
    "S": "Stopping",
    "X": "Around it",
}
_HEAD = """# Pitfalls

Generated from the tests and `docs/pitfalls_page.py` by `make docs`; do not edit.

What goes wrong in outboxes, workers and redrives, as others met it, and the test that fails if it went wrong here. A
test's name begins with the id: `pytest tests -k w6`. Where there is none, the reason.
"""

PITFALLS: Mapping[str, str] = {
    "P1": "A poller of `id > last` never sees a row with a lower id that is committed later",
    "P2": "The order of ids is not the order of commits, so a group's order flips",
    "P3": "A transaction's id is taken by its first write, elsewhere, and its order flips too",
    "P4": "A fence at the oldest open transaction stands still while any transaction is long",
    "P5": "With SKIP LOCKED two relays have rows of one group on their way",
    "P6": "The relay locks rows that producers need",
    "P7": "A transaction is open while the network is waited for",
    "P8": "HTTP 200 with `Failed[]` is taken for success",
    "P9": "Of two messages of a group in one batch the first fails and the second is in",
    "P10": "What had no answer is sent again under another deduplication id",
    "P11": "After an outage of more than five minutes a resend is a real duplicate",
    "P12": "Deduplication by content drops the second of two events that say the same",
    "P13": "A relay that was paused past its lease wakes, publishes and marks",
    "P14": "A message that can never be sent is tried for ever, or left out without a word",
    "P15": "A row is marked sent, or deleted, before it is",
    "P16": "Two transactions number two groups in opposite order, and deadlock",
    "P17": "A rollback leaves a hole in the numbers",
    "P18": "A lease is measured by clocks of several hosts",
    "W1": "A later message of a group is handled after an earlier one failed",
    "W2": "What was received with a failed message is given back at once, and overtakes it",
    "W3": "What was received with a failed message stays in flight, and its group stands still",
    "W4": "Messages that were only received together with a failing one use up their attempts",
    "W5": "What cannot be decoded is swallowed, and its group goes on",
    "W6": "A delete fails and the group goes on",
    "W7": "A crash after the commit and before the delete repeats the effect",
    "W8": "The mark that a message was handled is committed apart from its effect",
    "W9": "Two workers have one message, for its visibility timeout ran out",
    "W10": "What was true of one batch is applied to the next",
    "W11": "A message waits in memory and is begun with no time left",
    "W12": "A group comes again while its handler still runs",
    "W13": "The answer of a receive is lost, and its group stands still for a timeout",
    "W14": "The backlog of one hot group hides the others",
    "W15": "The inbox forgets sooner than a message can come back",
    "W16": "Two consumers share the inbox's keys",
    "W17": "An old message comes after newer ones, and is applied as if it were new",
    "L1": "The heartbeat stops after an error, and nobody notices",
    "L2": "HTTP 200 of an extension holds failures",
    "L3": "What is finished is extended on and on",
    "L4": "An extension beyond twelve hours is an error",
    "L5": "A busy handler starves the heartbeat",
    "L6": "What was deleted is extended, and fails with noise",
    "L7": "The process stood still past its visibility timeout and goes on as if it had not",
    "D1": "What was received with a poison message goes to the DLQ with it",
    "D2": "The successors of a poison message are handled, and it comes back late",
    "D3": "A message is deleted before its copy is confirmed",
    "D4": "A copy is sent twice after a crash",
    "D5": "The failure's metadata makes more than ten attributes",
    "D6": "What is brought back inside five minutes under the same deduplication id is dropped",
    "D7": "What is brought back lost its group, or attributes that are no text",
    "D8": "What fails again is brought back again, in a loop",
    "D9": "What is brought back mixes with live traffic",
    "D10": "Looking raises receive counts, blocks groups and moves messages on",
    "D11": "A look at a FIFO DLQ shows the first of each group and is taken for all",
    "D12": "What is brought back arrives in another order",
    "D13": "The inbox knows a dead message, and drops it when it comes back",
    "D14": "The DLQ keeps messages for a shorter time than the queue",
    "D15": "A rate begins with a burst, or drifts",
    "D16": "Of two dead letters of a group the first cannot be sent, and the second is",
    "G1": "AWS's SequenceNumber has holes, and is taken for a sign of loss",
    "G2": "A filter policy leaves holes that are lawful",
    "G3": "A consumer's first message of a group is not number 1",
    "G4": "What was given up is counted as missing",
    "G5": "What was missing comes after all",
    "G6": "A restart forgets how far a group was",
    "S1": "A receive is answered after SIGTERM, and its message is stuck",
    "S2": "Stopping has no end, or a second SIGTERM locks it up",
    "S3": "What ends the handlers also ends the giving back",
    "S4": "The second message of a group is given back before the first",
    "S5": "Deployments raise receive counts until messages die",
    "S6": "SIGTERM does not reach the process, or a thread gets it",
    "S7": "Protection from scale-in is never given up, or comes too late",
    "X1": "OpenTelemetry's botocore instrumentation puts the relay's span in place of the producer's",
    "X2": "On SQLite who reads and then writes is locked out at once",
    "X3": "SQLite may take a commit back at a power cut, after it was published",
    "X4": "SQLAlchemy leaves FOR UPDATE SKIP LOCKED out on SQLite, silently",
    "X5": "The client gives up before the long poll ends, or has fewer connections than threads",
    "X6": "Retries of several layers multiply",
    "X7": "What failed together comes back together",
}

_ONE_EACH = "A lane receives one message at a time: nothing is received with it."
_NATIVE = "SQS itself moves a message to the DLQ, whole and under a new id; no code here sends and deletes."
REASONS: Mapping[str, str] = {
    "W2": _ONE_EACH,
    "W3": _ONE_EACH,
    "W4": _ONE_EACH + " So the receive count is the count of attempts.",
    "W10": _ONE_EACH,
    "W14": "A limit of SQS. The declaration refuses a target backlog beyond what SQS looks through, and the alarm"
    " **stuck** tells of it: [stacks](architecture/stacks.md#what-to-do-when-it-rings).",
    "D1": _ONE_EACH,
    "D3": _NATIVE + " On the way back:",
    "D4": _NATIVE + " On the way back:",
    "D5": _NATIVE + " Why a message died is in the inbox, not in attributes.",
    "D14": "The declaration refuses it:"
    " `tests/unit/declaration/test_environments.py::test_a_consumer_refuses_what_cannot_be_right`.",
    "G2": "The declaration refuses Poison.PARK, Gaps.WAIT and Gaps.HALT with a filter policy, and no gap is written"
    " down under one.",
    "S4": "A lane holds one message, and a group is with one lane: there is no second to give back.",
}


def tests() -> dict[str, list[str]]:
    """Return the tests about each pitfall, by its id: `file::name`, in the order of files and lines."""
    found: dict[str, list[str]] = {}
    for path in sorted((_PROJECT / "tests").rglob("test_*.py")):
        where = path.relative_to(_PROJECT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for id_ in dict.fromkeys(ids_of(node)):
                    found.setdefault(id_, []).append(f"{where}::{node.name}")
    return found


def ids_of(test: ast.FunctionDef) -> Iterator[str]:
    """Yield the ids of the pitfalls a test is about."""
    named = re.match(r"test_((?:[pwldgsx]\d+_)+)", test.name)
    yield from (named[1].upper().split("_")[:-1] if named else ())
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.keyword) and node.arg == "id" and isinstance(node.value, ast.Constant):
                begun = re.match(r"[PWLDGSX]\d+(?![a-zA-Z0-9])", str(node.value.value))
                yield from (begun[0],) if begun else ()


def page() -> str:
    """Return docs/pitfalls.md."""
    found, lines = tests(), [_HEAD]
    for letter, title in _AREAS.items():
        lines += [f"## {title}", "", "| id | pitfall | shown by |", "|---|---|---|"]
        for id_, pitfall in PITFALLS.items():
            if id_.startswith(letter):
                shown = [*([REASONS[id_]] if id_ in REASONS else []), *(f"`{one}`" for one in found.get(id_, ()))]
                lines.append(f"| {id_} | {pitfall} | {'<br>'.join(shown)} |")
        lines.append("")
    return "\n".join(lines)


def write() -> None:
    """Write the page."""
    _PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
