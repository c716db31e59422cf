"""The options of `sluice subject find` and `sluice subject erase`."""

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from sluice.cli.options import Command, audit_options, json_option
from sluice.cli.overview.commands import verify_options
from sluice.terminal.groups import CommandGroup

if TYPE_CHECKING:
    from sluice.declaration import Environment
    from sluice.messaging.erasure import Subject


def _field(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return path and value of each `PATH=VALUE`; click calls this."""
    fields = []
    for text in given:
        path, equals, value = text.partition("=")
        steps = tuple(path.split("."))
        if not equals or not value or not all(steps):
            raise click.BadParameter(f"{text!r} is not PATH=VALUE, such as customer.email=jane@example.org")
        fields.append((steps, value))
    return tuple(fields)


def _subject_options(command: Command) -> Command:
    """Give a command the options that name a subject, and the databases and queues to look in."""

    @click.option(
        "--data",
        "fields",
        multiple=True,
        metavar="PATH=VALUE",
        callback=_field,
        help="Messages whose data has this value, e.g. customer.email=jane@example.org. This and the next may be"
        " repeated; a message has to match one of them.",
    )
    @click.option("--group", "groups", multiple=True, metavar="NAME", help="All messages of this group.")
    @click.option("--event-id", "event_ids", multiple=True, metavar="ID", help="The event with this id.")
    @json_option
    @verify_options
    @wraps(command)
    def run_on_subject(fields: Any, groups: tuple[str, ...], event_ids: tuple[str, ...], **others: Any) -> None:
        from sluice.messaging.erasure import Subject

        if not (fields or groups or event_ids):
            raise click.UsageError("give one or more of --data, --group and --event-id")
        command(subject=Subject(groups=frozenset(groups), event_ids=frozenset(event_ids), fields=fields), **others)

    return run_on_subject


@click.group(cls=CommandGroup)
def subject() -> None:
    """Find and erase the content of one subject's messages, such as a person's.

    \b
      sluice subject find --data customer.email=jane@example.org
      sluice subject erase --data customer.email=jane@example.org --reason "request 4711" --yes
    """


@subject.command()
@_subject_options
def find(environment: "Environment", subject: "Subject", **options: Any) -> None:
    """List where the content of a subject's messages is: outbox, audit, inboxes, reasons and DLQs.

    It prints places, numbers and event ids, and no content. The letters of the DLQs are received, and released at the
    end: a redrive meanwhile does not see them. Exit code 2: something could not be searched, and the reason says why.
    """
    from sluice.cli.subject import erasing

    erasing.find(environment, subject, **options)


@subject.command()
@_subject_options
@audit_options
def erase(environment: "Environment", subject: "Subject", **options: Any) -> None:
    """Erase the content of a subject's messages wherever `find` finds it. What stays is printed.

    An erased message keeps its event id, group and number, and has no data: a tombstone, which consumers count. A
    message that is not published yet is left. One that is dead, set aside or quarantined is given up by that.

    \b
    Exit codes:
      0  erased, and a second search has found nothing
      1  something is left, or may still be on its way to a consumer: run it again later
      2  something could not be searched
    """
    from sluice.cli.subject import erasing

    erasing.erase(environment, subject, **options)
