"""The commands and options of `sluice events check` and `sluice events asyncapi`."""

import sys
from typing import TYPE_CHECKING

import click

from sluice.cli.options import environment_option, json_option
from sluice.terminal import output
from sluice.terminal.exits import COULD_NOT, PARTLY
from sluice.terminal.groups import CommandGroup

if TYPE_CHECKING:
    from sluice.declaration import Environment

_topic_option = click.option("--topic", metavar="NAME", help="The topic, as declared.  [default: the first]")


@click.group(cls=CommandGroup)
def events() -> None:
    """Compare what producers send with what consumers read, and write it out as AsyncAPI.

    \b
    Events have classes:  @event_type("order.placed", version=2) above a dataclass or pydantic model,
    producers make them:  outbox.add(session, event_of(OrderPlaced(...), group="order-7"))
    consumers read them:  @handler(OrderPlaced)
    """


@events.command()
@click.option(
    "--sends",
    multiple=True,
    required=True,
    metavar="MODULE|FILE",
    help="A module with the classes that a producer sends, or a .json of `sluice events asyncapi`. Again for others.",
)
@click.option("--consumer", "names", multiple=True, metavar="NAME", help="Only this consumer.  [default: all]")
@_topic_option
@environment_option("Declared environment whose consumers read it.")
@json_option
def check(
    environment: "Environment",
    sends: tuple[str, ...],
    names: tuple[str, ...],
    topic: str | None,
    as_json: bool,
) -> None:
    """Compare every event that is sent with what each consumer of the topic reads. It calls nothing; run it in CI.

    \b
    ok       whatever the producer's class allows, the consumer's class reads
    mistake  it sends what the consumer would dead-letter: a field that is missing or of another type, a version that
             it does not read, a type that has no handler
    unknown  nobody can tell: a handler that is given no class, a validator written as code, a field that is Any,
             a type that is read and that nobody named here sends

    Versions that a producer's class is upcast from are compared too: their events may be under way, or in a DLQ.
    It ends with 1 where there is a mistake, else with 2 where something is unknown, else with 0.

    \b
    Examples:
      sluice events check --env prod --sends orders.events
      sluice events check --env prod --sends ../orders/events.json --sends payments.events --consumer billing --json
    """
    from sluice.cli.events.check import compare_all, documents
    from sluice.cli.events.schemas import Answer, worst

    found = compare_all(environment, topic, documents(sends), names)
    answer = worst(row.answer for row in found)
    if as_json:
        output.as_json(
            {
                "environment": environment.name,
                "answer": answer.value,
                "compared": [row.as_json() for row in found],
            }
        )
    else:
        lines = [line for row in found for line in row.lines()]
        output.table(("consumer", "type", "version", "", "field", "reason"), lines)
        output.line(f"{answer.value}: {len(found)} compared")
    sys.exit({Answer.OK: 0, Answer.MISTAKE: PARTLY, Answer.UNKNOWN: COULD_NOT}[answer])


@events.command()
@click.argument("modules", nargs=-1, required=True, metavar="MODULE...")
@_topic_option
@environment_option("Declared environment whose topic they are sent to.")
def asyncapi(environment: "Environment", modules: tuple[str, ...], topic: str | None) -> None:
    """Write what producers send to a topic as an AsyncAPI 3.0 document: envelope and data of each version.

    The consumers' repositories compare with it (`sluice events check --sends FILE`). Each field of the envelope says
    which attribute of CloudEvents it is.

    \b
      sluice events asyncapi --env prod orders.events > events.json
    """
    from sluice.cli.events.check import event_types_of_all
    from sluice.cli.events.document import write_document
    from sluice.declaration import naming

    name = naming.topic_name(environment, environment.topic(topic).name)
    output.as_json(write_document(event_types_of_all(modules), name))
