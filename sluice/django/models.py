"""Django's models of the tables of outbox and inbox, derived from SQLAlchemy's definitions of these tables.

They are for reading and for the admin. Django does not manage them: outbox, relay and worker write the rows, and the
migrations create the tables as `sluice schema apply` does.
"""

from typing import Any

import sqlalchemy as sa
from django.db import models

from sluice.messaging.database import migrations as versioning
from sluice.messaging.inbox import tables as inbox
from sluice.messaging.outbox import tables as outbox

TABLES = {
    "OutboxMessage": outbox.messages,
    "OutboxGroup": outbox.groups,
    "OutboxLease": outbox.leases,
    "OutboxAct": outbox.audit,
    "InboxGroup": inbox.groups,
    "InboxConsumer": inbox.consumers,
    "InboxException": inbox.exceptions,
    "InboxParked": inbox.parked,
    "InboxRedrive": inbox.redrives,
    "InboxPause": inbox.pauses,
    "InboxAttempt": inbox.attempts,
    "InboxAct": inbox.audit,
    "TablesVersion": versioning.versions,
}
"""The table of each model, by the model's name."""
_VERBOSE = {
    "OutboxMessage": "outbox message",
    "OutboxAct": "act on the outbox",
    "InboxGroup": "group",
    "InboxException": "dead letter or gap",
    "InboxParked": "parked message",
    "InboxAct": "act on the inbox",
}


def fields(table: sa.Table) -> list[tuple[str, Any]]:
    """Return (name, field) of each field of a table's model.

    The admin takes no composite key. The model of parked messages has SQS's message id as its key instead, which is
    unique, because each queue's copy of a message has another one.
    https://docs.djangoproject.com/en/5.2/topics/composite-primary-key/#composite-primary-keys-and-the-admin-site (read
    2026-11-27)
    """
    keys = ["sqs_message_id"] if table is inbox.parked else [column.name for column in table.primary_key]
    composite: list[tuple[str, Any]] = [] if len(keys) == 1 else [("pk", models.CompositePrimaryKey(*keys))]
    return composite + [(column.name, _field(column, is_key=keys == [column.name])) for column in table.columns]


def options(name: str) -> dict[str, Any]:
    """Return the options of the `Meta` class of the model with this name."""
    verbose = _VERBOSE.get(name, TABLES[name].name.removeprefix("sluice_").replace("_", " "))
    plural = {"InboxException": {"verbose_name_plural": "dead letters and gaps"}}.get(name, {})
    return {"managed": False, "db_table": TABLES[name].name, "verbose_name": verbose, **plural}


def _field(column: "sa.Column[Any]", *, is_key: bool) -> "models.Field[Any, Any]":
    if is_key and column.autoincrement is True:
        return models.BigAutoField(primary_key=True)
    kinds: dict[type[Any], Any] = {
        sa.BigInteger: models.BigIntegerField,
        sa.Integer: models.IntegerField,
        sa.Boolean: models.BooleanField,
        sa.Text: models.TextField,
    }
    kind = next(kinds[type_] for type_ in kinds if isinstance(column.type, type_))
    return kind(primary_key=True) if is_key else kind(null=column.nullable)


def _model(name: str) -> type[models.Model]:
    """Return the model of the table that `TABLES` names so."""
    meta = type("Meta", (), options(name))
    return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **dict(fields(TABLES[name]))})


OutboxMessage = _model("OutboxMessage")
OutboxGroup = _model("OutboxGroup")
OutboxLease = _model("OutboxLease")
OutboxAct = _model("OutboxAct")
InboxGroup = _model("InboxGroup")
InboxConsumer = _model("InboxConsumer")
InboxException = _model("InboxException")
InboxParked = _model("InboxParked")
InboxRedrive = _model("InboxRedrive")
InboxPause = _model("InboxPause")
InboxAttempt = _model("InboxAttempt")
InboxAct = _model("InboxAct")
TablesVersion = _model("TablesVersion")
