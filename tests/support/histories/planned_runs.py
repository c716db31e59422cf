"""The judge of a planned run with thresholds that every value crosses."""

from collections.abc import Sequence
from dataclasses import replace

from sluice.judge.checker import Expectation, Thresholds
from sluice.judge.checker.verdict import Verdict
from sluice.judge.engine import JudgeEngine
from sluice.judge.judge import PlannedMessages, RunFacts, judge
from tests.support.histories.builders import EXPECTATION

STRICT = replace(
    EXPECTATION,
    effects_recorded=("billing",),
    subscription_dead_letter_queues={"shipping": "events"},
    fan_out_skew_seconds_max=5,
    passed_over_seconds_max=10,
    stuck_seconds_max=20,
)
_THRESHOLDS = Thresholds(
    latency_seconds_max=0.001, drain_seconds_max=0.001, recovery_seconds_max=0.0, throttled_share_max=0.0
)


def judge_run(engine: JudgeEngine, expectation: Expectation, *, recorders: Sequence[str] = ()) -> Verdict:
    facts = RunFacts(
        expectation=replace(expectation, max_receive_count={"billing": 3}),
        target="endpoint",
        recorders=dict.fromkeys(recorders, "billing"),
        plan=PlannedMessages(message_count=10, lateness_budget_seconds=0.001),
        thresholds=_THRESHOLDS,
        allowed={"C7": "two producers publish each group"},
    )
    return judge(engine, facts)
