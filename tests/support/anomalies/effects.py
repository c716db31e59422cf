"""R: effects of the runtime's consumers. Billing records the effect of each message."""

import json
from dataclasses import replace
from typing import Any

from sluice.history.events import HistoryEvent, Kind
from tests.support.histories.builders import EXPECTATION, Case, effect_event, only, publish_of, receive_of, sane

_RECORDED = replace(EXPECTATION, effects_recorded=("billing",))


def _effect(idx: int, at_ms: int, *, state: str = "contiguous", kind: Kind = Kind.HANDLED) -> HistoryEvent:
    """Return an effect being committed in billing; it is received at 100 + 20 idx, and deleted 8 later."""
    return replace(
        effect_event(receive_of(sane(), idx)),
        kind=kind.value,
        invoked_at_us=at_ms * 1_000,
        responded_at_us=(at_ms + 1) * 1_000,
        detail=json.dumps({"state": state}),
    )


_ALL = [_effect(0, 106), _effect(1, 126), _effect(2, 146)]


def _case(anomaly: str, effects: list[HistoryEvent], **more: Any) -> Case:
    return Case(anomaly=anomaly, events=[*sane(), *effects], expectation=_RECORDED, **more)


def _missing() -> Case:
    """Violation: message 1 is deleted without an effect. Near miss: it was parked."""
    return _case(
        "R1",
        [_ALL[0], _ALL[2]],
        idxs=(1,),
        sentence="received and deleted, and never handled or set aside",
        witness=(publish_of(sane(), 1), receive_of(sane(), 1)),
        near_miss=[*sane(), _ALL[0], _effect(1, 126, kind=Kind.PARKED), _ALL[2]],
    )


def _twice() -> Case:
    """The effect of message 1 is committed twice; or once."""
    again = _effect(1, 136)
    return _case(
        "R2",
        [*_ALL, again],
        idxs=(1,),
        sentence="its effect was committed 2 times",
        witness=(_ALL[1], again),
        near_miss=[*sane(), *_ALL],
    )


def _case_reordered() -> Case:
    """Violation: the effect of 1 is committed after that of 2. Near miss: it is marked late, as a policy allows."""
    events = [event for event in sane() if (event.kind, event.queue, event.idx) != ("deleted", "billing", 1)]
    late = only(sane(), kind="deleted", queue="billing", idx=1)
    slow = [_ALL[0], _ALL[2], _effect(1, 148)]
    lost = replace(late, outcome="info", responded_at_us=None)
    return Case(
        anomaly="R3",
        events=[*events, lost, *slow],
        expectation=_RECORDED,
        idxs=(1, 2),
        sentence="the effect of the second was committed before the first was begun",
        witness=(_ALL[2], _effect(1, 148)),
        near_miss=[*events, lost, *slow[:2], _effect(1, 148, state="late")],
    )


def _after_delete() -> Case:
    """Message 2 is deleted before its effect is begun; or its effect was set aside first."""
    after = _effect(2, 160)
    return _case(
        "R4",
        [*_ALL[:2], after],
        idxs=(2,),
        sentence="deleted before its effect was begun",
        witness=(receive_of(sane(), 2), only(sane(), kind="deleted", queue="billing", idx=2), after),
        near_miss=[*sane(), *_ALL[:2], _effect(2, 146, kind=Kind.PARKED), after],
    )


CASES = [_missing(), _twice(), _case_reordered(), _after_delete()]
