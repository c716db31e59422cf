"""Advice names the limit of a consumer, and the change of its declaration that helps."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.declaration import Consumer, Environment
from sluice.rehearse.advice import advise, ceilings
from sluice.rehearse.declared_service import service_of
from sluice.rehearse.model.traffic import DrawnTraffic, constant
from sluice.rehearse.reading.cloudformation import load_template
from sluice.rehearse.reading.template import read_services
from tests.support.declaration import ENVIRONMENTS
from tests.support.templates.synthesis import synthesize

pytestmark = pytest.mark.xdist_group("rehearsal")  # one worker compiles the simulation

BILLING = Consumer(name="billing", lanes=4, max_tasks=5, min_tasks=1, expected_groups=200)
PLACE = replace(ENVIRONMENTS["prod"], consumers=(BILLING,))


def _steady(per_second: float) -> DrawnTraffic:
    return DrawnTraffic(name="steady", rates=constant(per_second, 60), group_count=200)


@pytest.mark.parametrize("environment", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_declared_service_is_the_one_its_template_scales(environment: Environment, tmp_path: Path) -> None:
    """So advice on a declaration is about the service that would be deployed."""
    synthesize(environment, tmp_path)

    deployed = {service.name: service for service in read_services(*load_template(tmp_path).values())}

    declared = [service_of(environment, consumer) for consumer in environment.consumers]
    assert {service.name: service for service in declared} == deployed


def test_the_lowest_ceiling_comes_first() -> None:
    """1.02 s a message: 20 lanes do 19.6 a second, 200 groups 196, a group with a tenth of all messages 9.8."""
    found = ceilings(PLACE, BILLING, groups=200, hottest_share=0.1)

    assert [(ceiling.name, round(ceiling.per_second, 1)) for ceiling in found[:3]] == [
        ("hottest group", 9.8),
        ("lanes and tasks", 19.6),
        ("groups", 196.1),
    ]


def test_advice_starts_with_the_cheapest_change_that_keeps_the_latency() -> None:
    """40 messages a second want 41 lanes, and 20 are declared."""
    advice = advise(PLACE, BILLING, _steady(40))

    assert advice.ceilings[0].name == "lanes and tasks"
    assert advice.declared.p95_seconds is not None
    assert advice.declared.p95_seconds > 60
    assert advice.changes[0].p95_seconds is not None
    assert advice.changes[0].p95_seconds < advice.declared.p95_seconds
    assert "lanes" in advice.changes[0].text


def test_nothing_is_advised_where_the_latency_is_kept() -> None:
    """Two messages a second are a tenth of what the declared lanes can do."""
    assert advise(PLACE, BILLING, _steady(2)).changes == []
