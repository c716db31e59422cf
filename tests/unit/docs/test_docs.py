"""The pages of docs/ agree with code, declaration and tests."""

import ast
import re
import runpy
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from benchmarks.report import ResultTable
from sluice import messaging
from sluice.declaration import Consumer
from sluice.messaging.database import engines
from sluice.messaging.envelope import decode
from sluice.messaging.outbox import tables
from tests.support.project import PROJECT
from tools import generate
from tools.generate import DOCS
from tools.pages import capacity, declared_fields

PAGES = (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))


@pytest.fixture(scope="module")
def page() -> str:
    """Return the page as it is stored."""
    return (DOCS / "architecture" / "stacks.md").read_text(encoding="utf-8")


def _section(page: str, title: str) -> str:
    """Return the text under a heading, up to the next one."""
    return re.split(r"^#+ ", page.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def _rows(section: str) -> dict[str, list[str]]:
    """Return the section's table: each row's further cells by its first."""
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_generated_pages_are_up_to_date() -> None:
    """Each page equals the output of `make docs`."""
    pages = generate.pages()

    assert {str(path.relative_to(PROJECT)) for path in pages} == {
        "docs/promises.md",
        "docs/conformance.md",
        "docs/architecture/stacks.md",
        "docs/architecture/outbox.md",
        "docs/benchmarks.md",
        "docs/capacity.md",
        "docs/guides/deploy.md",
        "sluice/deployment/replacement.json",
    }
    assert [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text] == []


@pytest.mark.parametrize("of", declared_fields.DECLARED, ids=lambda value: value.__name__)
def test_every_field_of_the_declaration_is_documented(page: str, of: type) -> None:
    """Each field has a row with unit, default and effect, in the order of the class. There is no other row."""
    rows = _rows(_section(page, of.__name__))

    assert list(rows) == [field.name for field in fields(of)]
    assert [name for name, (unit, default, effect, _) in rows.items() if not (unit and default and effect)] == []


def test_every_class_of_the_declaration_has_a_section() -> None:
    """A dataclass that a declaration is built of is one the page has a table for."""
    modules = [ast.parse(file.read_text(encoding="utf-8")) for file in (PROJECT / "sluice/declaration").rglob("*.py")]
    dataclasses = {
        class_def.name
        for module in modules
        for class_def in module.body
        if isinstance(class_def, ast.ClassDef) and "declaration_class" in map(ast.unparse, class_def.decorator_list)
    }

    assert dataclasses == {item.__name__ for item in declared_fields.DECLARED}


def _headings(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = page.read_text(encoding="utf-8")
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)", text, flags=re.MULTILINE)
    }


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    """A relative link or picture names a file that is there; an anchor names a heading of its page."""
    broken = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r'(?:\]\(|src(?:set)?=")([^)"\s]+)[)"]', text):
            file, _, anchor = target.partition("#")
            found = (page.parent / file) if file else page
            is_there = found.exists() and (not anchor or anchor in _headings(found))
            if not target.startswith("https:") and not is_there:
                broken.append(f"{page.name}: {target}")

    assert broken == []


def test_every_file_that_a_page_names_is_there() -> None:
    """A path in code font that begins with a folder of this project names a file or folder of it."""
    folders = [
        "benchmarks",
        "contract_tests",
        "docs",
        "emulator",
        "examples",
        "scripts",
        "sluice",
        "spark_load",
        "stacks",
        "tests",
        "tools",
    ]
    pattern = re.compile(rf"`((?:{'|'.join(folders)})/[\w./-]*)`")
    missing = [
        f"{page.name}: {path}"
        for page in PAGES
        for path in pattern.findall(page.read_text(encoding="utf-8"))
        if not (PROJECT / path).exists()
    ]

    assert missing == []


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample is pasted into a file of its own: a producer, a consumer and a declaration."""
    monkeypatch.chdir(tmp_path)
    engine = engines.engine("sqlite:///shop.db")
    tables.messages.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (placed TEXT, cents INTEGER)"))
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")

    producer, consumer, declaration = (
        runpy.run_path(_file(tmp_path / f"sample_{number}.py", sample))
        for number, sample in enumerate(re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL))
    )

    with Session(engine) as session:
        (body,) = session.scalars(select(tables.messages.c.body))
        assert consumer["bill"](session, decode(body).event, None) == messaging.Ack()
        assert session.execute(text("SELECT * FROM invoices")).all() == [("order-7", 1_250)]
    assert [consumer.name for consumer in declaration["ENVIRONMENTS"][0].consumers] == ["billing"]
    producer["engine"].dispose()
    engine.dispose()


def _file(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def _pitfalls_of(test: ast.FunctionDef) -> Iterator[str]:
    """Yield the ids that the test's name, or an id of its parameters, begins with."""
    named = re.match(r"test_((?:[pwldgsx]\d+_)+)", test.name)
    yield from (named[1].upper().split("_")[:-1] if named else ())
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.keyword) and node.arg == "id" and isinstance(node.value, ast.Constant):
                yield from re.findall(r"^[PWLDGSX]\d+(?![a-zA-Z0-9])", str(node.value.value))


def _tests() -> list[ast.FunctionDef]:
    return [
        node
        for path in sorted((PROJECT / "tests").rglob("test_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_pitfall_names_its_tests_or_a_reason() -> None:
    """Exactly the tests that begin with its id, all of which are there; no test has an id the page lacks."""
    page = (DOCS / "pitfalls.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([PWLDGSX]\d+) \| .+? \| (.*) \|$", page, flags=re.MULTILINE))
    tests = _tests()
    about = {(id_, test.name) for test in tests for id_ in _pitfalls_of(test)}

    named = {(id_, name) for id_, cell in rows.items() for name in re.findall(r"`(test_\w+)`", cell)}
    unmarked = {test.name for test in tests if not any(_pitfalls_of(test))}
    assert {(id_, name) for id_, name in named if name not in unmarked} == about
    assert [id_ for id_, cell in rows.items() if not cell.strip()] == []
    assert len(rows) == 78  # written here too, so that a row which the pattern above misses is noticed


def test_a_test_covers_the_pitfalls_in_its_name_and_ids() -> None:
    """A test covers the pitfall ids at the beginning of its name, in order; an id further back is only mentioned."""
    (test,) = ast.parse(
        '@pytest.mark.parametrize("by", [pytest.param(1, id="W8-by-id"), pytest.param(2, id="W80s")])\n'
        "def test_p1_w12_a_thing_that_p3_is_not() -> None: ..."
    ).body
    assert isinstance(test, ast.FunctionDef)

    assert list(_pitfalls_of(test)) == ["P1", "W12", "W8"]


def test_a_page_that_lacks_a_part_is_refused() -> None:
    """A marker somebody took away would otherwise take its table from the page for good, silently."""
    with pytest.raises(LookupError, match=r"has the parts \['one'\], generated are \['one', 'two'\]"):
        generate.fill("<!-- generated: one -->\n<!-- end of one -->\n", {"one": "1", "two": "2"})


def test_filling_a_page_replaces_only_text_between_markers() -> None:
    """Prose before, between and after the markers stays as it is."""
    page = "# A\n<!-- generated: one -->\nold\n<!-- end of one -->\nB\n"

    assert generate.fill(page, {"one": "new"}) == ("# A\n<!-- generated: one -->\n\nnew\n\n<!-- end of one -->\nB\n")


def test_the_text_of_an_argument_is_joined_from_all_its_lines() -> None:
    """The text is that of the docstring without its line breaks; the first and the last argument are read too."""
    texts = declared_fields.argument_texts(Consumer)

    assert list(texts) == [field.name for field in fields(Consumer)]
    assert texts["max_attempts"] == (
        "receives before a message is dead-lettered; with one message per receive this is the queue's maxReceiveCount."
        " With `runtime`, or bundles of its topic: failures of its handler, which the inbox counts."
    )


def test_the_table_of_differences_follows_from_the_declaration() -> None:
    """One row for each field that is not the same everywhere, with its value in every environment, in order."""
    table = dict(declared_fields.differences())

    assert table["encryption"] == [f"`Encryption.{name}`" for name in ("SQS_MANAGED", "SQS_MANAGED", "CMK", "CMK")]
    assert table["consumers.min_tasks"] == ["1", "0", "1", "2"]
    assert "region" not in table


_MEASURED = capacity.Figures(
    {
        "relay": ResultTable(
            text_columns=1,
            head=["database", "groups", "messages/s", "to one"],
            rows=[["SQLite", "1", "188", ""], ["Postgres", "1", "1,092 (1,000 to 1,100)", "1.00"]],
        )
    }
)


def test_a_figure_of_the_benchmarks_is_found_by_its_row_and_column() -> None:
    """Thousands are read, and of a ratio its median."""
    assert _MEASURED.get("relay", "messages/s", database="Postgres", groups="1") == 1_092


@pytest.mark.parametrize(
    ("name", "column", "where"),
    [
        ("writers", "messages/s", {}),
        ("relay", "messages", {}),
        ("relay", "messages/s", {"database": "Postgres", "groups": "10"}),
        ("relay", "messages/s", {"table_space": "fast"}),
    ],
)
def test_a_figure_that_was_not_measured_is_missed(name: str, column: str, where: dict[str, str]) -> None:
    """A renamed table, column or row must not leave an old figure, or none, on the page."""
    with pytest.raises(capacity.NotMeasuredError, match="has no"):
        _MEASURED.get(name, column, **where)
