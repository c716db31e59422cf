"""An operator's action on an outbox or an inbox needs a reason."""

from collections.abc import Callable
from functools import partial

import pytest

from sluice.errors import ConfigError
from sluice.messaging.database.audit import Operator
from sluice.messaging.inbox.operations import InboxOperator
from sluice.messaging.outbox.operations import OutboxOperator


@pytest.mark.parametrize("operator", [partial(OutboxOperator, topic="t"), partial(InboxOperator, consumer="billing")])
def test_nobody_acts_without_a_reason(operator: Callable[..., Operator]) -> None:
    """Spaces are no reason."""
    with pytest.raises(ConfigError) as refused:
        operator(actor="ada", reason="  ")

    assert str(refused.value) == "the reason is empty, allowed is a sentence: the audit keeps it"
