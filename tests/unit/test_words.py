"""Names are words of the field: no identifier is one of the private words this project once had (docs/glossary.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import PROJECT, modules

WORDS = {
    "asked": "what was requested: `requests`, `invoked_us`, `params`",
    "everyone": "`all_progress`, `tasks`",
    "fate": "`outcome`",
    "fates": "`outcomes`",
    "said": "what it is: `fields`, `message`, `output`, `results`",
    "told": "what it is: `fields`, `counts`, `description`",
    "trouble": "`failure`, `retry_policy`",
    "troubles": "`failures`",
    "unasked": "`unrequested`",
    "unsaid": "`unanswered`",
}
"""Never a part of a name; and what to use instead."""
NAMES = {
    "one": "the noun: `event`, `queue`, `message`",
    "at": "`index`, `position` or `context`; an instant has a name, as `sent_at`",
    "Agenda": "`GroupScheduler`",
    "Board": "`RunCoordinator`",
    "BURN": "`RELEASE_TO_DLQ`",
    "bury": "`record_dead`",
    "Cemetery": "`DeadLetterProject`",
    "chance": "`rng`",
    "Desk": "`TaskContext`",
    "Facts": "`EventCounts`",
    "Graveyard": "`DeadLetterFixture`",
    "is_meant": "`confirmed`",
    "Letter": "`DeadLetter`",
    "letter": "`dead_letter`",
    "Lives": "`InboxStateMachine`",
    "Market": "`OrderSystem`",
    "Misdeed": "`FaultyWorker`",
    "narrow": "`encode_events`",
    "offer": "`run_phases`",
    "Reach": "`QuotaCheck`",
    "Sightings": "`LiveChecks`",
    "Surroundings": "`QueueContext`",
    "Volume": "`LoadEstimate`",
    "Workshop": "`WorkerProcesses`",
}
"""Never a whole name. As parts of names these are English: `one_line`, `sent_at`, `dead_letter`."""
ALLOWED = {
    ("Event", "at"): "public, and the field of an event's JSON: the instant it happened",
}
"""By the class or function around it ("" at the top of a module) and the name: why it may stay."""
_STRING = r'''(?:"""(?s:.*?)"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')'''
_TEXT = re.compile(rf"#[^\n]*|((?i:f|rf|fr){_STRING})|{_STRING}")
"""A comment or a string; only f-strings, the group, can hold names."""
_SUSPECT = re.compile(rf"\b_*(?:{'|'.join(NAMES)})\b|{'|'.join(WORDS)}", re.IGNORECASE)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def _bound_names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names a node gives to something, with their lines."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name, node.lineno
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno
        case ast.alias(asname=str(name)):
            yield name, node.lineno
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, node.lineno


def _private_names(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield each private name of a module: its line, the name, what to use instead.

    The names of tests are sentences, and a sentence may say "what one is told". Modules whose code has none of the
    words are not parsed: they are most, and parsing takes the time.
    """
    if not _SUSPECT.search(_TEXT.sub(r"\1 ", source)):
        return
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(source), "")]
    while waiting:
        node, around = waiting.pop()
        for name, line in _bound_names(node):
            private = [WORDS[part] for part in map(str.lower, _PART.findall(name)) if part in WORDS] + [
                NAMES[known] for known in (name, name.lstrip("_")) if known in NAMES
            ]
            if private and not name.startswith("test_") and (around, name) not in ALLOWED:
                yield line, name, private[0]
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            around = node.name
        waiting += [(child, around) for child in ast.iter_child_nodes(node)]


def test_no_name_is_a_private_word() -> None:
    """Every identifier is a word of AWS, of Spark, of pytest or of docs/glossary.md."""
    private = [
        f"{path.relative_to(PROJECT)}:{line}: {name}, better {instead}"
        for path in modules()
        for line, name, instead in _private_names(path.read_text(encoding="utf-8"))
    ]

    assert private == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("said = 1", "said"),
        ("def f(at): ...", "at"),
        ("for one in []: ...", "one"),
        ("class _Told: ...", "_Told"),
        ("self.asked_at = 1", "asked_at"),
        ("import x as fate", "fate"),
        ("try: ...\nexcept ValueError as trouble: ...", "trouble"),
        ("match x:\n    case [*said]: ...", "said"),
    ],
)
def test_a_private_name_is_found_wherever_it_is_bound(source: str, name: str) -> None:
    """Assignments, parameters, loops, classes, attributes, imports, exceptions and patterns bind names."""
    assert [found for _, found, _ in _private_names(source)] == [name]


@pytest.mark.parametrize(
    "source",
    [
        "sent_at = one_line = 1",
        "class Event:\n    at = 1",
        "def test_a_worker_is_told_once(): ...",
        "print(said, 'told')",
    ],
    ids=["part", "allowed", "sentence", "use"],
)
def test_plain_english_is_left_alone(source: str) -> None:
    """Names of tests and uses of a name pass, and so do instants.

    `one` in a longer name passes, and an exception with its reason.
    """
    assert list(_private_names(source)) == []


def test_every_exception_to_the_rules_is_used() -> None:
    """An exception that nobody needs is deleted."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in modules() if path != Path(__file__))

    assert [
        (around, name)
        for around, name in ALLOWED
        if not re.search(rf"class {around}\b.*?\n    {name}\b", sources, re.DOTALL)
    ] == []
