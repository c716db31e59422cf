"""Every anomaly once, in a history written by hand that shows it and no other, beside one that just does not."""

from tests.anomalies.case import Case
from tests.anomalies.content import CASES as _CONTENT
from tests.anomalies.dead_letters import CASES as _DEAD_LETTERS
from tests.anomalies.duplication import CASES as _DUPLICATION
from tests.anomalies.effects import CASES as _EFFECTS
from tests.anomalies.existence import CASES as _EXISTENCE
from tests.anomalies.ordering import CASES as _ORDERING
from tests.anomalies.time import CASES as _TIME

CASES: dict[str, Case] = {
    case.anomaly: case
    for cases in (_EXISTENCE, _DUPLICATION, _ORDERING, _TIME, _DEAD_LETTERS, _CONTENT, _EFFECTS)
    for case in cases
}

__all__ = ["CASES", "Case"]
