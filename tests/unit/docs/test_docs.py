"""docs/architecture/stacks.md against the declaration, the templates and the stacks it tells of."""

import ast
import copy
import re
from dataclasses import fields, replace

import pytest

from docs import costs, declared, diagram, pitfalls_page, stacks_page, templates
from docs.costs import Footprint
from docs.templates import Synthesized
from sluice import prices
from sluice.declaration import Consumer
from tests.support.project import PROJECT

DOCS = PROJECT / "docs"


@pytest.fixture(scope="module")
def page() -> str:
    """Return the page as it is stored."""
    return (DOCS / "architecture" / "stacks.md").read_text(encoding="utf-8")


@pytest.fixture
def prod() -> Synthesized:
    """Return prod's stacks, to be changed at will."""
    synthesized = templates.synthesized("prod")
    return replace(synthesized, templates=copy.deepcopy(synthesized.templates))


def _section(page: str, title: str) -> str:
    """Return what stands under a heading, up to the next one."""
    return re.split(r"^#+ ", page.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def _rows(section: str) -> dict[str, list[str]]:
    """Return the section's table: each row's further cells by its first."""
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def _consumer_resource(synthesized: Synthesized, stack: str, ends_with: str) -> templates.Resource:
    """Return the properties of billing's resource whose construct path ends so."""
    (id_,) = [
        id_
        for (its_stack, id_), path in synthesized.paths.items()
        if its_stack == stack and path.endswith(f"Consumer-billing/{ends_with}")
    ]
    properties: templates.Resource = synthesized.templates[stack]["Resources"][id_]["Properties"]
    return properties


def test_the_page_says_what_the_code_and_the_templates_say(page: str) -> None:
    """Every generated part is what `make docs` would write now."""
    assert stacks_page.fill(page, stacks_page.parts()) == page


@pytest.mark.parametrize("of", declared.DECLARED, ids=lambda one: one.__name__)
def test_every_field_of_the_declaration_is_documented(page: str, of: type) -> None:
    """Each has a row with its unit, its default and its effect, in the order of the class; no other row is there."""
    rows = _rows(_section(page, of.__name__))

    assert list(rows) == [field.name for field in fields(of)]
    assert [name for name, (unit, default, effect, _) in rows.items() if not (unit and default and effect)] == []


def test_every_class_of_the_declaration_has_a_section() -> None:
    """A dataclass that a declaration is built of is one the page has a table for."""
    module = ast.parse((PROJECT / "sluice" / "declaration.py").read_text(encoding="utf-8"))
    dataclasses = {
        one.name
        for one in module.body
        if isinstance(one, ast.ClassDef) and any("dataclass" in ast.unparse(by) for by in one.decorator_list)
    }

    assert dataclasses == {one.__name__ for one in declared.DECLARED}


def test_every_alarm_has_an_entry_and_something_to_do(page: str) -> None:
    """Each is in the table, and each has a paragraph on what to do; no paragraph is about an alarm there is not."""
    conditions = stacks_page.alarm_conditions()

    entries = {
        re.sub(r"^sluice-ENV-(topic|relay|CONSUMER)-", "", pattern)
        for pattern, cells in _rows(_section(page, "Alarms")).items()
        if all(cells)
    }
    paragraphs = re.findall(r"^- \*\*([a-z-]+)\*\*: ", _section(page, "What to do when it rings"), flags=re.MULTILINE)
    assert entries == conditions
    assert sorted(paragraphs) == sorted(conditions)


def test_every_acknowledged_finding_is_listed_with_its_reason(page: str) -> None:
    """Whatever rule `stacks` acknowledges, wherever, stands on the page beside the reason given in the code."""
    calls = [
        call
        for path in sorted((PROJECT / "stacks").glob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "acknowledge"
    ]
    reasons = {call.args[2].value for call in calls if isinstance(call.args[2], ast.Constant)}

    listed = {cells[-1] for cells in _rows(_section(page, "Acknowledged findings")).values()}
    assert len(calls) > 5
    assert listed == reasons


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    """A relative link names a file that is there, or a heading of its own page."""
    broken = []
    for path in [PROJECT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-")
            for one in re.findall(r"^#+ (.+)", text, flags=re.MULTILINE)
        }
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            if not target.startswith("https:") and not ((path.parent / file).exists() if file else anchor in headings):
                broken.append(f"{path.name}: {target}")

    assert broken == []


def test_the_page_of_pitfalls_says_what_the_tests_are_named() -> None:
    """It is what `make docs` would write now, so each test it names is there."""
    assert (DOCS / "pitfalls.md").read_text(encoding="utf-8") == pitfalls_page.page()


def test_every_pitfall_has_a_test_or_a_reason() -> None:
    """And no test is about a pitfall nobody has written down."""
    about = pitfalls_page.tests()

    assert sorted(set(pitfalls_page.PITFALLS) - set(about) - set(pitfalls_page.REASONS)) == []
    assert sorted({*about, *pitfalls_page.REASONS} - set(pitfalls_page.PITFALLS)) == []


def test_a_test_is_about_every_pitfall_its_name_or_a_parameters_id_begins_with() -> None:
    """In the order of the name; a pitfall further back is only mentioned."""
    (test,) = ast.parse(
        '@pytest.mark.parametrize("by", [pytest.param(1, id="W8-by-id"), pytest.param(2, id="W80s")])\n'
        "def test_p1_w12_a_thing_that_p3_is_not() -> None: ..."
    ).body
    assert isinstance(test, ast.FunctionDef)

    assert list(pitfalls_page.ids_of(test)) == ["P1", "W12", "W8"]


def test_every_test_a_reason_names_is_there() -> None:
    """What shows it under another name is still named so."""
    named = re.findall(r"`(tests/\S+)::(\w+)`", " ".join(pitfalls_page.REASONS.values()))

    assert named
    assert [name for file, name in named if f"def {name}(" not in (PROJECT / file).read_text(encoding="utf-8")] == []


def test_a_page_that_lacks_a_part_is_refused() -> None:
    """A marker somebody took away would otherwise take its table from the page for good, silently."""
    with pytest.raises(LookupError, match=r"has the parts \['one'\], generated are \['one', 'two'\]"):
        stacks_page.fill("<!-- generated: one -->\n<!-- end of one -->\n", {"one": "1", "two": "2"})


def test_only_what_stands_between_markers_is_written() -> None:
    """Prose before, between and after stays as it is; what stood between markers goes."""
    page = "# A\n<!-- generated: one -->\nold\n<!-- end of one -->\nB\n"

    assert stacks_page.fill(page, {"one": "new"}) == ("# A\n<!-- generated: one -->\n\nnew\n\n<!-- end of one -->\nB\n")


def test_the_text_of_an_argument_is_joined_from_all_its_lines() -> None:
    """As written in the docstring, without the line breaks; the first and the last argument too."""
    texts = declared.argument_texts(Consumer)

    assert list(texts) == [field.name for field in fields(Consumer)]
    assert texts["max_attempts"] == (
        "receives before a message is dead-lettered; with one message per receive this is the queue's maxReceiveCount."
    )


def test_the_picture_shows_the_path_of_a_message_and_what_guards_it(prod: Synthesized) -> None:
    """Topic, subscription, queue and service in a row, each DLQ where it belongs, scaling and the operator topic."""
    picture = diagram.mermaid(prod)

    def node(words: str) -> str:
        (found,) = [id_ for id_, text in re.findall(r'(n\d+)\["(.+)"\]', picture) if words in text]
        return str(found)

    topic, subscription, queue = node("events.fifo"), node("subscription"), node("sluice-prod-billing.fifo")
    dead, undelivered, service = node("billing-dlq"), node("undelivered-dlq"), node("Fargate service")
    assert {
        f"  {topic} -->|every message| {subscription}",
        f"  {subscription} -->|delivers| {queue}",
        f"  {subscription} -->|could not deliver| {undelivered}",
        f"  {queue} -->|after 5 receives| {dead}",
        f"  {queue} -->|receives, deletes| {service}",
        f"  {queue} -.->|encrypted with| {node('sluice-prod-queues')}",
        f"  {topic} -.->|encrypted with| {node('sluice-prod-topic')}",
        f"  {node('scaling: 2 to 20')} -->|sets the number of tasks| {service}",
        f"  {node('alarm: dead-letters')} -.->|watches| {dead}",
        f"  {node('alarm: dead-letters')} -->|rings| {node('operators')}",
    } <= set(picture.splitlines())


def test_the_picture_of_a_relay_shows_where_it_publishes_and_what_watches_it() -> None:
    """No declared environment has one, and the page has to be written all the same when one gets it."""
    picture = diagram.mermaid(templates.everything())

    (relay,) = re.findall(r'(n\d+)\["Fargate service<br/>sluice-prod-relay', picture)
    (topic,) = re.findall(r'(n\d+)\["SNS FIFO topic', picture)
    (alarms,) = re.findall(r'(n\d+)\["alarms: failed, lost, lagging, quarantined"\]', picture)
    assert {f"  {relay} -->|publishes| {topic}", f"  {alarms} -.->|watches| {topic}"} <= set(picture.splitlines())


def test_consumers_that_look_alike_are_drawn_once(prod: Synthesized) -> None:
    """One box, which names the others."""
    boxes = re.findall(r'subgraph c\d+\["(.+)"\]', diagram.mermaid(prod))

    assert boxes == ["billing (x 3: shipping, audit look the same)"]


def test_a_consumer_that_differs_is_drawn_by_itself(prod: Synthesized) -> None:
    """A filter, a number, a name that is not made of the consumer's: each is a box of its own."""
    _consumer_resource(prod, "Messaging", "Queue/Resource")["VisibilityTimeout"] = 90

    boxes = re.findall(r'subgraph c\d+\["(.+)"\]', diagram.mermaid(prod))

    assert boxes == ["billing", "shipping (x 2: audit look the same)"]


def test_a_reference_the_picture_has_no_words_for_is_an_error(prod: Synthesized) -> None:
    """Or the picture would leave out what the stacks have grown."""
    queue = _consumer_resource(prod, "Messaging", "Queue/Resource")
    queue["Neighbour"] = "arn:aws:sqs:us-east-1:111122223333:sluice-prod-audit.fifo"

    with pytest.raises(LookupError, match="has no word for"):
        diagram.mermaid(prod)


def test_a_month_costs_what_its_parts_cost() -> None:
    """Worked out by hand: 730 hours, 2,628,000 seconds, of which a lane polls every 20 and a key is asked every 300."""
    has = Footprint(
        vcpus=1.0,
        memory_gb=2.0,
        lanes=10,
        endpoint_zones=8,
        keys=2,
        queues=9,
        topics=2,
        alarm_metrics=59,
        dashboards=1,
        clusters=1,
        services=3,
    )

    assert costs.monthly(has) == pytest.approx(
        {
            "Fargate": 730 * (0.04048 + 2 * 0.004445),  # 36.04
            "interface endpoints": 58.40,
            "Container Insights": 26.40,  # 13 + 3 x 25 metrics
            "alarms": 5.90,
            "dashboard": 3.00,
            "KMS keys and their requests": 2.81468,  # 2 + 8,760 x (2 x 2 + 3 x 9) requests
            "polling": 0.657,  # 1,314,000 receives
        },
        abs=1e-9,
    )


def test_nothing_costs_nothing() -> None:
    """Every line is in proportion to something there is."""
    assert set(costs.monthly(Footprint()).values()) == {0}


def test_a_million_messages_to_three_consumers() -> None:
    """Worked out by hand: one publish, three deliveries, three requests to each of three queues, a kilobyte each."""
    assert prices.million_messages(consumers=3, kilobytes=1) == pytest.approx(
        {
            "SNS publish": 0.317,
            "SNS delivery": 0.033,
            "SQS send, receive, delete": 4.50,
            "through the endpoint": 0.03,
        }
    )


def test_what_prod_has_is_counted_in_its_templates() -> None:
    """Two tasks of a quarter vCPU for each of three consumers; four endpoints in three zones; 50 metrics in alarms."""
    assert costs.footprint(templates.synthesized("prod")) == Footprint(
        vcpus=1.5,
        memory_gb=3.0,
        lanes=24,
        endpoint_zones=12,
        keys=2,
        queues=9,
        topics=2,
        alarm_metrics=50,  # 2 of the topic; of each consumer 4 alarms with 1, two with 3, and 2 x 3 tracked
        dashboards=1,
        clusters=1,
        services=3,
    )


def test_local_costs_nothing() -> None:
    """It is LocalStack's account."""
    assert costs.footprint(templates.synthesized("local"), at_max=True) == Footprint()


def test_what_the_environments_differ_in_is_what_they_declare() -> None:
    """One row for each field that is not the same everywhere, with its value in every environment, in order."""
    table = dict(declared.differences())

    assert table["encryption"] == [f"`Encryption.{name}`" for name in ("SQS_MANAGED", "SQS_MANAGED", "CMK", "CMK")]
    assert table["consumers.min_tasks"] == ["1", "0", "1", "2"]
    assert "region" not in table
