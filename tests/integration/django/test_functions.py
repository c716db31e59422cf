"""Handlers of Django's ORM in a Lambda function: the same transaction, order and attempts as with a worker."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from sluice.cli.services.function_handler import make_handler
from sluice.clock import SystemClock
from sluice.declaration import Consumer, Lambda
from sluice.declaration.fields.functions import SCHEDULED_EVENT
from sluice.django import orm_handler
from sluice.django.databases import worker_engine
from sluice.messaging import Context, Event, Outcome, Reject, Retry
from sluice.messaging.errors import OutboxError
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox import tables as inbox_tables
from sluice.testing import LambdaHarness, SimulatedAws
from sluice.testing.lambda_harness import FunctionContext
from tests.support.shop.models import Invoice

_BILLING = Consumer(
    name="billing",
    handlers="shop.handlers",
    max_attempts=3,
    processing_seconds=0.1,
    runtime=Lambda(batch_size=10, timeout_seconds=5),
)


def test_effects_of_the_orm_are_once_and_in_order_in_a_function(alias: str) -> None:
    """A retry, a refusal, a crash before the commit and a batch that comes again, in batches of two groups."""
    outcomes: dict[str, list[Outcome]] = {"a1": [Retry(delay_seconds=1)], "b1": [Reject("not ours")]}

    @orm_handler("order.placed", using=alias)
    def invoice(event: Event, _: Context) -> Outcome | None:
        """Write an invoice, and end as the test says."""
        Invoice.objects.using(alias).create(order=event.data)
        left = outcomes.get(event.data, [])
        return left.pop(0) if left else None

    engine = worker_engine(alias)
    harness = LambdaHarness(Handlers.of_function(invoice), consumer=_BILLING, aws=SimulatedAws(), database=engine)
    for name in ("a1", "b1", "a2", "b2"):
        harness.publish("order.placed", name[0], name)
    harness.crash_before_commit()
    harness.run()
    repeated = harness.redeliver()

    written = list(Invoice.objects.using(alias).order_by("id").values_list("order", flat=True))
    dead = [dead_letter.event and dead_letter.event.data for dead_letter in harness.dead_letters]
    harness.close()
    engine.dispose()
    assert [order for order in written if order.startswith("a")] == ["a1", "a2"]
    assert [order for order in written if order.startswith("b")] == ["b2"]
    assert dead == ["b1"]
    assert repeated == []


@pytest.mark.parametrize("has_tables", [True, False])
def test_a_function_of_a_project_is_measured_and_checked_as_sluices_own(
    sqlite: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    has_tables: bool,
) -> None:
    """Its schedule writes the numbers that alarms look at; without the inbox's tables it does not start."""
    (tmp_path / "their_orm_handlers.py").write_text(
        "from sluice.django import orm_handler\n\n@orm_handler('order.placed')\ndef invoice(event, context): pass\n"
    )
    (tmp_path / "environments.py").write_text(
        "from sluice.declaration import Consumer, Environment, Lambda\n"
        "billing = Consumer(name='billing', handlers='their_orm_handlers', runtime=Lambda())\n"
        "ENVIRONMENTS = (Environment(name='local', consumers=(billing,)),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SLUICE_DECLARATION", str(tmp_path / "environments.py"))
    monkeypatch.setenv("SLUICE_ENV", "local")
    monkeypatch.setenv("SLUICE_CONSUMER", "billing")
    engine = worker_engine(sqlite)
    with ExitStack() as kept:
        kept.callback(engine.dispose)
        if not has_tables:
            with engine.begin() as connection:
                inbox_tables.metadata.drop_all(connection)
            kept.enter_context(pytest.raises(OutboxError, match="tables are not in this database"))
        handler = make_handler(database=engine)
        handler(dict(SCHEDULED_EVENT), FunctionContext(SystemClock(), 10))

        assert "InboxParkedGroups" in capsys.readouterr().out
