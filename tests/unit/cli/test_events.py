"""Events that producers send are compared with those that consumers read; some differences nobody can tell."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, AnyUrl, BaseModel, ConfigDict, Field, PlainSerializer, SecretStr, computed_field

from sluice.cli.events.document import data_schemas, find_schema
from sluice.cli.events.schemas import Answer, Comparison, worst
from sluice.messaging import event_type
from sluice.messaging.event_types import event_type_of
from tests.support.command_line import Run

OK, MISTAKE, UNKNOWN = Answer.OK, Answer.MISTAKE, Answer.UNKNOWN


class Colour(Enum):
    RED, BLUE = "red", "blue"


class Shade(Enum):
    RED, BLUE, GREEN = "red", "blue", "green"


class ByCard(BaseModel):
    kind: Literal["card"]
    number: str


class ByCash(BaseModel):
    kind: Literal["cash"]


class ByCheque(BaseModel):
    kind: Literal["cheque"]
    bank: str


class ByWord(BaseModel):
    kind: Literal["cash"]
    witness: str


@dataclass
class Tree:
    cents: int
    below: "list[Tree]" = field(default_factory=list)


@dataclass
class OtherTree:
    cents: float
    below: "list[OtherTree] | None" = None


@dataclass
class WordTree:
    cents: str
    below: "list[WordTree] | None" = None


@dataclass
class Inner:
    a: int
    b: str = "b"


@dataclass
class WithoutSeven:
    a: int

    def __post_init__(self) -> None:
        assert self.a != 7


class WithSum(BaseModel):
    a: int

    @computed_field
    def total(self) -> int:
        return self.a


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class OptionalNote(BaseModel):
    a: int
    note: Annotated[str | None, Field(exclude_if=lambda note: note is None)] = None


class Wanting(BaseModel):
    note: str | None


def is_even(number: int) -> int:
    assert number % 2 == 0
    return number


Even = Annotated[int, AfterValidator(is_even)]


def findings(sent: Any, read: Any) -> list[tuple[Answer, str, str]]:
    """Return the findings for a field of one class that is sent and one of another class that is read."""
    sends: type = event_type("a")(dataclass(type("Sends", (), {"__annotations__": {"x": sent}})))
    reads: type = event_type("a")(dataclass(type("Reads", (), {"__annotations__": {"x": read}})))
    (given, given_names), (wanted, wanted_names) = (
        data_schemas([event_type_of(model)], mode)  # type: ignore[arg-type]
        for model, mode in ((sends, "serialization"), (reads, "validation"))
    )
    comparison = Comparison(lambda name: find_schema(given_names, name), lambda name: find_schema(wanted_names, name))
    found = comparison.compare(given["a", 1], wanted["a", 1])
    return [(each.answer, each.field, each.reason) for each in found]


@pytest.mark.parametrize(
    ("sent", "read", "answer"),
    [
        *(
            (each, each, OK)
            for each in (int, str, bool, float, None, date, datetime, UUID, Decimal, Colour, Tree, bytes)
        ),
        *(
            (each, each, OK)
            for each in (list[int], dict[str, int], tuple[int, str], int | None, AnyUrl, Even, WithoutSeven)
        ),
        *(
            (each, each, OK)
            for each in (ByCard | ByCash, WithSum, Strict, Open, OptionalNote, Literal["a", 1], set[str], bytes)
        ),
        (int, float, OK),
        (float, int, MISTAKE),
        (int, str, MISTAKE),
        (str, int, MISTAKE),
        (bool, int, MISTAKE),
        (int, bool, MISTAKE),
        (int, int | None, OK),
        (int | None, int, MISTAKE),
        (int | str, str | int | None, OK),
        (int | str | None, str | None, MISTAKE),
        (int, Any, OK),
        (Any, int, UNKNOWN),
        (Any, Any, OK),
        (date, str, OK),
        (str, date, MISTAKE),
        (UUID, str, OK),
        (str, UUID, MISTAKE),
        (date, datetime, UNKNOWN),
        (Decimal, str, OK),
        (Decimal, float, MISTAKE),
        (str, Decimal, MISTAKE),
        (str, SecretStr, OK),
        (str, bytes, OK),
        (str, IPv4Address, MISTAKE),
        (str, Annotated[str, Field(json_schema_extra={"format": "sku"})], UNKNOWN),
        (Colour, str, OK),
        (str, Colour, MISTAKE),
        (Colour, Shade, OK),
        (Shade, Colour, MISTAKE),
        (Literal["red"], Colour, OK),
        (Literal["red", 1], Colour, MISTAKE),
        (Literal[5], Annotated[int, Field(ge=5)], OK),
        (Literal[5], Annotated[int, Field(gt=5)], MISTAKE),
        (Literal["2026-01-01"], date, UNKNOWN),
        (Literal["x"], int | None, MISTAKE),
        (Annotated[int, Field(ge=1)], Annotated[int, Field(ge=0)], OK),
        (Annotated[int, Field(ge=0)], Annotated[int, Field(gt=0)], MISTAKE),
        (Annotated[int, Field(gt=0)], Annotated[int, Field(ge=0)], OK),
        (Annotated[int, Field(le=5)], Annotated[int, Field(lt=6)], OK),
        (int, Annotated[int, Field(le=5)], MISTAKE),
        (Annotated[int, Field(multiple_of=4)], Annotated[int, Field(multiple_of=2)], UNKNOWN),
        (str, Annotated[str, Field(max_length=5)], MISTAKE),
        (str, Annotated[str, Field(min_length=0)], OK),
        (Annotated[str, Field(max_length=4)], Annotated[str, Field(max_length=5)], OK),
        (Annotated[str, Field(pattern="a")], Annotated[str, Field(pattern="a")], OK),
        (Annotated[str, Field(pattern="aa")], Annotated[str, Field(pattern="a+")], UNKNOWN),
        (list[int], list[float], OK),
        (list[int], list[str], MISTAKE),
        (list[int], tuple[int, int], MISTAKE),
        (tuple[int, int], list[int], OK),
        (tuple[int, str], list[int], MISTAKE),
        (tuple[int, int], tuple[int, int, int], MISTAKE),
        (tuple[int, int, int], tuple[int, int], MISTAKE),
        (set[str], list[str], OK),
        (list[str], set[str], OK),
        (dict[str, int], dict[str, float], OK),
        (dict[str, int], dict[str, str], MISTAKE),
        (dict[str, int], Inner, MISTAKE),
        (Inner, dict[str, int], MISTAKE),
        (Inner, dict[str, int | str], OK),
        (Inner, Strict, MISTAKE),
        (Strict, Inner, OK),
        (Open, Strict, MISTAKE),
        (Open, Inner, UNKNOWN),
        (WithSum, Inner, OK),
        (OptionalNote, Wanting, MISTAKE),
        (OptionalNote, OptionalNote, OK),
        (Inner, Wanting, MISTAKE),
        (Tree, OtherTree, OK),
        (Tree, WordTree, MISTAKE),
        (int, Even, UNKNOWN),
        (Inner, WithoutSeven, UNKNOWN),
        (list[int], list[Even], UNKNOWN),
        (Literal[2], Even, UNKNOWN),
        (ByCash, ByCard | ByCash, OK),
        (ByCheque, ByCard | ByCash, MISTAKE),
        (ByCash, ByCard | ByWord, MISTAKE),
        (ByCard | ByCash, Annotated[ByCard | ByCash, Field(discriminator="kind")], OK),
        (ByCard | ByCheque, Annotated[ByCard | ByCash, Field(discriminator="kind")], MISTAKE),
        (int, Annotated[int, Field(ge=0)] | Annotated[int, Field(lt=0)], UNKNOWN),
        (Annotated[int, PlainSerializer(lambda number: f"{number}")], int, OK),  # event_of refuses what it writes
        (Annotated[int, PlainSerializer(lambda number: f"{number}", return_type=str)], str, OK),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_each_pair_of_types_is_readable_a_mistake_or_unknown(sent: Any, read: Any, answer: Answer) -> None:
    """The first type is a field that a producer sends, the second the one that a consumer reads.

    OK: every sent value can be read. MISTAKE: some value cannot. UNKNOWN: no schema says it.
    """
    found = findings(sent, read)

    assert worst(each for each, _, _ in found) is answer, found


@pytest.mark.parametrize(
    ("sent", "read", "message"),
    [
        (Inner, Wanting, (MISTAKE, "data.x.note", "it is not sent, and has to be there")),
        (OptionalNote, Wanting, (MISTAKE, "data.x.note", "it may be missing, and has to be there")),
        (Inner, Strict, (MISTAKE, "data.x.b", "it is sent, and no further field is read")),
        (Shade, Colour, (MISTAKE, "data.x", "'green' may be sent, read is 'red', 'blue'")),
        (list[str | None], list[str], (MISTAKE, "data.x[]", "null is sent, read is string")),
        (str, date, (MISTAKE, "data.x", "any string may be sent, read is string (date)")),
        (int, Annotated[int, Field(le=5)], (MISTAKE, "data.x", "it is sent without such a bound, read is maximum 5")),
        (ByCheque, ByCard | ByCash, (MISTAKE, "data.x", "ByCheque is sent, read is ByCard or ByCash")),
        (
            int,
            Even,
            (UNKNOWN, "data.x", f"{__name__}.is_even checks it, and what that allows is in no schema"),
        ),
    ],
)
def test_a_finding_names_the_field_and_both_sides(sent: Any, read: Any, message: tuple[Answer, str, str]) -> None:
    assert findings(sent, read) == [message]


_SENDS = """
from dataclasses import dataclass
from sluice.messaging import event_type

@event_type("order.placed")
@dataclass
class PlacedInEuros:
    total: str

@event_type("order.placed", version=2, previous=PlacedInEuros, upcast=lambda old: Placed(cents=int(old.total)))
@dataclass
class Placed:
    cents: int
    currency: str = "EUR"

@event_type("order.paid")
@dataclass
class Paid:
    cents: int
"""
_READS = """
from dataclasses import dataclass
from sluice.messaging import Event, event_type, handler
import orders_sent

@event_type("order.placed", version=2, previous=orders_sent.PlacedInEuros, upcast=lambda old: Placed(cents=1))
@dataclass
class Placed:
    cents: int

@handler(Placed)
def bill(session, order, context): ...
"""
_UPCAST = ", previous=orders_sent.PlacedInEuros, upcast=lambda old: Placed(cents=1)"
_ENVIRONMENTS = """
from sluice.declaration import Consumer, Environment, NewDatabase

ENVIRONMENTS = (
    Environment(
        name="dev",
        account="000000000000",
        database=NewDatabase(),
        consumers=(Consumer(name="billing", handlers="orders_read"{more}), {others}),
    ),
)
"""
_SEND = "def send(session, event, context): ..."
TYPES = ', types=("order.placed",)'


@dataclass
class Project:
    """A folder with what producers send and consumers read, in which the command is run."""

    folder: Path
    run: Run

    def write(self, *, reads: str = _READS, sends: str = _SENDS, more: str = TYPES, others: str = "") -> None:
        environments = _ENVIRONMENTS.replace("{more}", more).replace("{others}", others)
        files = {"orders_sent.py": sends, "orders_read.py": reads, "environments.py": environments}
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def check(self, *arguments: str) -> tuple[int, list[tuple[Any, ...]]]:
        """Return the exit code, and the findings as consumer, type, version, answer and reasons."""
        code, printed, _ = self.run("events", "check", "--env", "dev", "--sends", *arguments, "--json")
        compared = json.loads(printed)["compared"]
        names = ("consumer", "type", "version", "answer")
        return code, [(*map(row.get, names), *(each["reason"] for each in row["findings"])) for row in compared]


@pytest.fixture
def project(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """Yield a project's folder, in which `sluice events` is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLUICE_DECLARATION", str(tmp_path / "environments.py"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Project(tmp_path, run)
    for name in [name for name in sys.modules if name.startswith("orders_")]:
        del sys.modules[name]


def test_a_consumer_that_reads_what_is_sent_is_ok(project: Project) -> None:
    project.write()

    assert project.check("orders_sent") == (
        0,
        [("billing", "order.placed", 1, "ok"), ("billing", "order.placed", 2, "ok")],
    )


@pytest.mark.parametrize(
    ("changes", "code", "found"),
    [
        (
            {"reads": _READS.replace("cents: int", "cents: str")},
            1,
            ("billing", "order.placed", 2, "mistake", "integer is sent, read is string"),
        ),
        (
            {"more": ""},
            1,
            ("billing", "order.paid", 1, "mistake", "it has no handler, and goes to the DLQ"),
        ),
        (
            {
                "reads": _READS.replace(
                    "version=2, previous=orders_sent.PlacedInEuros, upcast=lambda old: Placed(cents=1)", ""
                )
            },
            1,
            (
                "billing",
                "order.placed",
                2,
                "mistake",
                "version 2 is sent, read is 1; deploy a consumer that reads it first",
            ),
        ),
        (
            {"reads": _READS.replace(_UPCAST, "")},
            1,
            (
                "billing",
                "order.placed",
                1,
                "mistake",
                "version 1 is sent, read is 2; read it too, with previous and upcast",
            ),
        ),
        (
            {"reads": _READS.replace("@handler(Placed)", '@handler("order.placed")')},
            2,
            (
                "billing",
                "order.placed",
                1,
                "unknown",
                "its handler is given no class: @handler(CLASS) says what it reads",
            ),
        ),
        (
            {
                "sends": _SENDS.replace('@event_type("order.paid")', ""),
                "more": ', types=("order.placed", "order.paid")',
            },
            2,
            ("billing", "order.paid", None, "unknown", "it is read, and nobody named here sends it"),
        ),
        (
            {"others": 'Consumer(name="audit")'},
            2,
            ("audit", "*", None, "unknown", "it has no handlers"),
        ),
        (
            {"more": ', filter_policy={"type": [{"prefix": "order.pl"}]}'},
            2,
            (
                "billing",
                "order.paid",
                1,
                "unknown",
                "it has no handler, and goes to the DLQ; its filter policy may hold the event back",
            ),
        ),
    ],
)
def test_events_check_ends_with_1_for_mistakes_and_2_for_unknowns(
    project: Project, changes: Mapping[str, str], code: int, found: tuple[Any, ...]
) -> None:
    project.write(**changes)

    ended, compared = project.check("orders_sent")

    assert ended == code
    assert found in compared


def test_an_event_that_a_filter_policy_excludes_is_not_compared(project: Project) -> None:
    """`order.paid`, for which billing has no handler, never reaches its queue."""
    project.write(more=', filter_policy={"type": ["order.placed"]}')

    assert project.check("orders_sent")[0] == 0


def test_a_producer_elsewhere_is_compared_by_its_document(project: Project) -> None:
    """The document gives the same findings as the module; the table shows them to people."""
    project.write(reads=_READS.replace("cents: int", "cents: str"))
    code, document, _ = project.run("events", "asyncapi", "--env", "dev", "orders_sent")
    (project.folder / "sent.json").write_text(document, encoding="utf-8")

    assert code == 0
    assert project.check("sent.json") == project.check("orders_sent")
    code, printed, _ = project.run("events", "check", "--env", "dev", "--sends", "sent.json")
    assert code == 1
    assert "billing  │ order.placed │ 2       │ mistake │ data.cents │ integer is sent, read is string" in printed
    assert printed.endswith("mistake: 2 compared\n")


def test_events_asyncapi_describes_each_version_with_its_envelope(project: Project) -> None:
    """The envelope's fields, such as type and group, are around the event's own data."""
    project.write()

    document = json.loads(project.run("events", "asyncapi", "--env", "dev", "orders_sent")[1])

    assert document["channels"]["events"]["address"] == "sluice-dev-events.fifo"
    assert list(document["components"]["messages"]) == ["order.paid.1", "order.placed.1", "order.placed.2"]
    payload = document["components"]["messages"]["order.placed.2"]["payload"]
    assert payload["properties"]["type"]["const"] == "order.placed"
    assert payload["properties"]["group"]["description"].startswith("message group. CloudEvents: subject")
    assert payload["properties"]["version"]["const"] == 2
    placed = document["components"]["schemas"][payload["properties"]["data"]["$ref"].rpartition("/")[2]]
    assert placed["required"] == ["cents", "currency"]
    assert "version" in payload["required"]


@pytest.mark.parametrize(
    ("sends", "message"),
    [
        ("nothing", "'nothing' cannot be imported (ModuleNotFoundError: No module named 'nothing'); name a module"),
        ("environments", "module environments has no class under @event_type, allowed is one or more"),
        ("missing.json", "missing.json cannot be read as JSON ("),
        ("other.json", "other.json is no document of `sluice events asyncapi`; write it again"),
        ("list.json", "list.json is no document of `sluice events asyncapi`; write it again"),
    ],
)
def test_a_module_that_sends_nothing_is_refused(project: Project, sends: str, message: str) -> None:
    project.write()
    (project.folder / "other.json").write_text('{"asyncapi": "3.0.0", "components": {}}', encoding="utf-8")
    (project.folder / "list.json").write_text("[]", encoding="utf-8")

    code, _, error = project.run("events", "check", "--env", "dev", "--sends", sends)

    assert code == 3
    assert len(error.splitlines()) == 1
    assert error.startswith(f"sluice: {message}")


def test_two_classes_of_a_version_are_refused(project: Project) -> None:
    """Nobody could know which of them is sent."""
    project.write(sends=_SENDS.replace('"order.paid"', '"order.placed"'))

    code, _, error = project.run("events", "check", "--env", "dev", "--sends", "orders_sent")

    assert code == 3
    assert "module orders_sent has two classes of order.placed version 1, PlacedInEuros and Paid; allowed" in error
