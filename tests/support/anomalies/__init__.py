"""Every anomaly once, in a history written by hand that shows it and no other, beside one that just does not."""

from tests.support.anomalies.case import Case
from tests.support.anomalies.content import CASES as _CONTENT
from tests.support.anomalies.dead_letters import CASES as _DEAD_LETTERS
from tests.support.anomalies.duplication import CASES as _DUPLICATION
from tests.support.anomalies.effects import CASES as _EFFECTS
from tests.support.anomalies.existence import CASES as _EXISTENCE
from tests.support.anomalies.ordering import CASES as _ORDERING
from tests.support.anomalies.time import CASES as _TIME

CASES: dict[str, Case] = {
    case.anomaly: case
    for cases in (_EXISTENCE, _DUPLICATION, _ORDERING, _TIME, _DEAD_LETTERS, _CONTENT, _EFFECTS)
    for case in cases
}

__all__ = ["CASES", "Case"]
