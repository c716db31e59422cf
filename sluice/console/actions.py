"""The console's actions: those of `sluice.cli.row_acts`, on rows that have not changed since the operator saw them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.cli import row_acts
from sluice.cli.row_acts import ROWS_MAX, ActionForm, RowsAct
from sluice.console import rows
from sluice.console.rows import Load
from sluice.errors import ConfigError
from sluice.messaging.database import engines

GONE = (
    "it is not there any more as you saw it, so nothing was done to it: somebody else acted, or it went on; look again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """A kind of rows on which operators act.

    Args:
        noun: the word for one row.
        name: returns the name of a key's row for sentences.
        load: returns the row of a key; None if it has changed or is gone.
        is_of_outbox: whether the rows are in the outbox; otherwise they are in an inbox.
    """

    noun: str
    name: Callable[[Sequence[Any]], str]
    load: Load
    is_of_outbox: bool = False


KINDS = {
    "consumers": RowKind(noun="consumer", name=lambda key: f"consumer {key[0]}", load=rows.load_consumer),
    "numbers": RowKind(noun="number", name=lambda key: f"record {key[0]}", load=rows.load_number),
    "letters": RowKind(noun="group", name=lambda key: f"group {key[1]} of {key[0]}", load=rows.load_letters),
    "groups": RowKind(noun="group", name=lambda key: f"group {key[1]} of {key[0]}", load=rows.load_group),
    "parked": RowKind(
        noun="message", name=lambda key: f"number {key[3]} of group {key[1]} of {key[0]}", load=rows.load_parked
    ),
    "messages": RowKind(
        noun="message",
        name=lambda key: f"number {key[2]} of group {key[1]} of {key[0]}",
        load=rows.load_message,
        is_of_outbox=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction:
    """An action on selected rows.

    Args:
        label: the text of its button.
        explanation: what it does, for the page of its dry run.
        current_data: returns the data that the operator may change; None for an action without data.
        is_final: whether nobody can undo it.
    """

    kind: str
    label: str
    explanation: str
    act: RowsAct
    current_data: Callable[[ActionForm, Any], object] | None = None
    is_final: bool = False

    @property
    def rows_max(self) -> int:
        """Return how many rows may be selected."""
        return ROWS_MAX if self.current_data is None else 1


_BRING_BACK = (
    "Each message is sent to the consumer's queue, then deleted from the DLQ. What is behind a message that does not"
    " match stays. Do it when the cause is mended: a message that fails again comes back here."
)
_GIVE_UP = (
    "The group goes on without the number. If its message comes later, it is dropped. The audit keeps the reason."
)
_REPLACE = "The same event with the same number gets other data. The audit keeps the old body."
ACTIONS = {
    "pause": ConsoleAction(
        kind="consumers",
        label="Pause",
        explanation="Within seconds the consumer receives nothing more. Its workers finish what they have received; the"
        " event source mapping of a Lambda function is disabled. The queue keeps what comes, for no longer than its"
        " retention.",
        act=row_acts.pausing(is_paused=True),
    ),
    "resume": ConsoleAction(
        kind="consumers",
        label="Resume",
        explanation="The consumer goes on within seconds, each group where it was.",
        act=row_acts.pausing(is_paused=False),
    ),
    "redrive": ConsoleAction(kind="numbers", label="Bring back", explanation=_BRING_BACK, act=row_acts.redrive),
    "redrive-groups": ConsoleAction(
        kind="letters", label="Bring back all of the group", explanation=_BRING_BACK, act=row_acts.redrive_groups
    ),
    "replace": ConsoleAction(
        kind="numbers",
        label="Replace data",
        explanation=_REPLACE,
        act=row_acts.replace_dead,
        current_data=row_acts.data_of_dead,
    ),
    "skip": ConsoleAction(kind="numbers", label="Give up", explanation=_GIVE_UP, act=row_acts.skip, is_final=True),
    "purge": ConsoleAction(
        kind="numbers",
        label="Delete from the DLQ",
        explanation="The message is deleted for good; the audit keeps its body. Its number stays open: a parked group"
        " still waits for it until the number is given up.",
        act=row_acts.purge,
        is_final=True,
    ),
    "skip-awaited": ConsoleAction(
        kind="groups",
        label="Give up the awaited number",
        explanation=_GIVE_UP,
        act=row_acts.skip_awaited,
        is_final=True,
    ),
    "retry": ConsoleAction(
        kind="parked",
        label="Try again",
        explanation="A held message is tried again as it is, with all its attempts.",
        act=row_acts.retry,
    ),
    "replace-held": ConsoleAction(
        kind="parked",
        label="Replace data",
        explanation=f"{_REPLACE} It is tried again at once.",
        act=row_acts.replace_parked,
        current_data=row_acts.data_of_parked,
    ),
    "skip-parked": ConsoleAction(
        kind="parked", label="Give up", explanation=_GIVE_UP, act=row_acts.skip, is_final=True
    ),
    "unquarantine": ConsoleAction(
        kind="messages",
        label="Try again",
        explanation="The relay tries a quarantined message again, as it is.",
        act=row_acts.on_outbox("unquarantine", "try again message"),
    ),
    "skip-message": ConsoleAction(
        kind="messages",
        label="Give up",
        explanation="A tombstone with the number is published in the place of a quarantined message, so that consumers"
        " see no hole. The audit keeps the body.",
        act=row_acts.on_outbox("skip", "give up message"),
        is_final=True,
    ),
    "resend": ConsoleAction(
        kind="messages",
        label="Publish again",
        explanation="A sent message is published again under a fresh deduplication id, for consumers that lost it. The"
        " inboxes of the others drop it.",
        act=row_acts.on_outbox("resend", "resend message"),
    ),
}


def read_keys(given: Sequence[str], action: ConsoleAction) -> list[list[Any]]:
    """Return the keys of the selected rows of a form.

    Raises:
        ConfigError: none or too many rows are selected, or a key has another form.
    """
    if not 1 <= len(given) <= action.rows_max:
        raise ConfigError(f"{len(given)} rows are selected, allowed are 1 to {action.rows_max}; select others")
    try:
        keys = [json.loads(key) for key in given]
    except (ValueError, RecursionError) as error:
        raise ConfigError("a selected row cannot be read; load the page again") from error
    if not all(isinstance(key, list) for key in keys):
        raise ConfigError("a selected row cannot be read; load the page again")
    return keys


def run_action(action: ConsoleAction, form: ActionForm, keys: Sequence[Sequence[Any]]) -> list[tuple[bool, str]]:
    """Do an action on rows, or its dry run; a row that has changed since it was seen is left alone.

    Returns:
        For each row whether the action can be done, with a sentence.
    """
    found, gone = load_rows(action, form, keys)
    done = list(action.act(form, found)) if found else []
    return done + [(False, f"{name}: {GONE}") for name in gone]


def load_rows(action: ConsoleAction, form: ActionForm, keys: Sequence[Sequence[Any]]) -> tuple[list[Any], list[str]]:
    """Return the unchanged rows of keys, and the names of the rows that have changed or are gone.

    Raises:
        ConfigError: a key has another form.
    """
    kind = KINDS[action.kind]
    found, gone = [], []
    try:
        with engines.reading(form.engine) as connection, engines.explaining_missing_tables():
            for key in keys:
                row = kind.load(connection, key)
                if row is None:
                    gone.append(kind.name(key))
                else:
                    found.append(row)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ConfigError("a selected row cannot be read; load the page again") from error
    return found, gone
