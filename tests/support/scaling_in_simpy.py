"""A service that scales on its queue, in SimPy and by AWS's documents alone: it imports nothing that it is to check.

What the documents leave open is settled as `docs/guides/scaling.md` says of the usual variant: alarms of three and of
fifteen minutes, metrics of SQS two minutes late and those of ECS one. All read 2026-11-27:

- Target tracking computes the capacity that brings the metric to the target, rounded up; out above the target, in a
  tenth below it. While scaling out cools down, what was added counts as part of the next step; while scaling in cools
  down, nothing is scaled in, and a scale-out ends that.
  https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- A step has its lower bound and not its upper one, measured from the alarm's threshold; in an alarm below it, its upper
  and not its lower. An alarm's action is repeated each minute that it lasts.
  https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
- An alarm looks at the last data points that there are, as late ones are waited for; if all there are breach and the
  oldest is as old as those it needs, it rings.
  https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
- A group's next message is received when the one before it is deleted; the oldest available one first. Which of several
  receives that wait gets it is documented nowhere: the longest wait, as in what is checked. It decides which task is
  without work for a moment and may be stopped, and so about whole turns of scaling.
  https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-queues-understanding-logic.html
- A protected task is not stopped while it works.
  https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html
"""

import math
import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import simpy

MINUTE = 60.0
SQS_LATE, ECS_LATE = 2, 1
HIGH_MINUTES, LOW_MINUTES, LOW_SHARE = 3, 15, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A random service, with what is sent to it.

    Args:
        template: the CloudFormation template.
        lanes: messages a task works on at once.
        handler_seconds: of one message.
        start_seconds: until a new task receives.
        sent: when and in which group.
        minutes: how long it is looked at.
    """

    template: dict[str, Any]
    lanes: int
    handler_seconds: float
    start_seconds: float
    sent: Sequence[tuple[float, int]]
    minutes: int

    def properties(self, name: str) -> dict[str, Any]:
        """Return the properties of a resource."""
        found: dict[str, Any] = self.template["Resources"][name]["Properties"]
        return found


@dataclass(slots=True)
class LatenciesAndTasks:
    """The outcome: latencies in seconds, and the tasks wanted after each minute."""

    latencies: list[float] = field(default_factory=list)
    desired: list[int] = field(default_factory=list)


class ScaledQueue:
    """A queue, its tasks and its scaling, as processes of SimPy."""

    def __init__(self, case: Case) -> None:
        self.case, self.figures, self.environment = case, LatenciesAndTasks(), simpy.Environment()
        target = case.properties("Target")
        self.fewest, self.most = int(target["MinCapacity"]), int(target["MaxCapacity"])
        self.desired, self.starting, self.running = self.fewest, 0, 0
        self.waiting: dict[int, deque[float]] = {}
        self.held: set[int] = set()
        self.busy: dict[int, int] = {}
        self._numbers = count()
        self._polls: deque[tuple[int, simpy.Event]] = deque()
        self._points: dict[str, list[float]] = {"visible": [], "flying": [], "running": []}
        self._sums, self._since = [0.0, 0.0, 0.0], 0.0
        self._scaled_at: dict[tuple[str, str], float] = {}
        self._before_out: dict[str, int] = {}

    def run(self) -> LatenciesAndTasks:
        """Return the latencies and tasks of the simulation."""
        for _ in range(self.fewest):
            self.environment.process(self._task(0.0))
        self.environment.process(self._send())
        self.environment.process(self._look())
        self.environment.run(self.case.minutes * MINUTE + 1)
        return self.figures

    def _pass_time(self) -> None:
        """Add what has been there since the last change to the minute's sums, in the order of the points."""
        seconds, self._since = self.environment.now - self._since, self.environment.now
        there = (sum(map(len, self.waiting.values())) - len(self.held), len(self.held), self.running)
        self._sums = [total + value * seconds for total, value in zip(self._sums, there, strict=True)]

    def _send(self) -> Generator[simpy.Event]:
        for sent_at, group in self.case.sent:
            yield self.environment.timeout(sent_at - self.environment.now)
            self._pass_time()
            self.waiting.setdefault(group, deque()).append(sent_at)
            self._receive()

    def _receive(self) -> None:
        """Give each message that is available to the lane that has polled longest."""
        while self._polls and (group := self._oldest()) is not None:
            number, poll = self._polls.popleft()
            if number in self.busy:
                self._pass_time()
                self.held.add(group)
                self.busy[number] += 1
                poll.succeed(group)

    def _task(self, start_seconds: float) -> Generator[simpy.Event]:
        self.starting += 1
        yield self.environment.timeout(start_seconds)
        self._pass_time()
        self.starting -= 1
        if self.starting + self.running >= self.desired:  # it is not wanted any more
            return
        self.running += 1
        number = next(self._numbers)
        self.busy[number] = 0
        for _ in range(self.case.lanes):
            self.environment.process(self._lane(number))

    def _lane(self, number: int) -> Generator[simpy.Event]:
        while number in self.busy:
            poll = self.environment.event()
            self._polls.append((number, poll))
            self._receive()
            yield poll
            group = cast("int", poll.value)
            yield self.environment.timeout(self.case.handler_seconds)
            self._pass_time()
            sent_at = self.waiting[group].popleft()
            self.held.discard(group)
            self.figures.latencies.append(self.environment.now - sent_at)
            self.busy[number] -= 1
            self._stop_idle()
            self._receive()

    def _oldest(self) -> int | None:
        free = [(queue[0], group) for group, queue in self.waiting.items() if queue and group not in self.held]
        return min(free)[1] if free else None

    def _stop_idle(self) -> None:
        """Stop tasks that are too many and at no message."""
        for number in [number for number in sorted(self.busy, reverse=True) if not self.busy[number]]:
            if self.running + self.starting > self.desired:
                self.busy.pop(number)
                self.running -= 1

    def _look(self) -> Generator[simpy.Event]:
        """Note what CloudWatch shows of each minute, the average, and scale at its end."""
        for minute in range(1, self.case.minutes + 1):
            yield self.environment.timeout(minute * MINUTE - self.environment.now)
            self._pass_time()
            for name, total in zip(self._points, self._sums, strict=True):
                self._points[name].append(total / MINUTE)
            self._sums = [0.0, 0.0, 0.0]
            self._scale()
            self.figures.desired.append(self.desired)

    def _scale(self) -> None:
        wishes = [
            wish
            for name in ("Track", "Out", "In")
            if name in self.case.template["Resources"] and (wish := self._wish(name)) is not None
        ]
        now, before = self.environment.now, self.desired
        bounded = [(max(self.fewest, min(self.most, wanted)), name) for wanted, name in wishes]
        wanted, name = max(bounded, default=(before, ""))
        if wanted == before:
            return
        if wanted > before:
            self._before_out[name] = self._base(name)
            self._scaled_at = {key: when for key, when in self._scaled_at.items() if key[1] != "in"}
        self._scaled_at[name, "out" if wanted > before else "in"] = now
        self.desired = wanted
        for _ in range(wanted - self.running - self.starting):
            self.environment.process(self._task(self.case.start_seconds))
        self._stop_idle()

    def _wish(self, name: str) -> tuple[int, str] | None:
        if name == "Track":
            return self._track()
        policy = self.case.properties(name)["StepScalingPolicyConfiguration"]
        alarm = self.case.properties(f"{name}Alarm")
        periods, minutes = alarm["EvaluationPeriods"], len(self._points["visible"])
        values = self._points["visible"][: max(0, minutes - SQS_LATE)][-periods:]
        is_above = alarm["ComparisonOperator"].startswith("Greater")
        beyond = [value - alarm["Threshold"] for value in values]
        if not values or minutes < periods or any((each <= 0) if is_above else (each >= 0) for each in beyond):
            return None
        for step in policy["StepAdjustments"]:
            low = step.get("MetricIntervalLowerBound", -math.inf)
            high = step.get("MetricIntervalUpperBound", math.inf)
            if (low <= beyond[-1] < high) if is_above else (low < beyond[-1] <= high):
                return self._wait_for_cooldown(name, policy["Cooldown"], step["ScalingAdjustment"])
        return None

    def _track(self) -> tuple[int, str] | None:
        policy = self.case.properties("Track")["TargetTrackingScalingPolicyConfiguration"]
        target, minutes = policy["TargetValue"], len(self._points["visible"])
        values = []
        for minute in range(max(0, minutes - LOW_MINUTES), minutes):
            at_queue, in_service = min(minute, minutes - 1 - SQS_LATE), min(minute, minutes - 1 - ECS_LATE)
            if at_queue >= 0 and self._points["running"][in_service]:
                work = self._points["visible"][at_queue] + self._points["flying"][at_queue]
                values.append(work / self._points["running"][in_service])
        if not values:
            return None
        wanted = math.ceil(round(values[-1] / target * self._base("Track"), 9))
        if len(values) >= HIGH_MINUTES and min(values[-HIGH_MINUTES:]) > target:
            return (wanted, "Track") if wanted > self.desired else None
        if len(values) == LOW_MINUTES and max(values) < LOW_SHARE * target:
            fewer = math.ceil(round(values[-1] / target * self.desired, 9))
            return self._wait_for_cooldown("Track", policy["ScaleInCooldown"], fewer - self.desired)
        return None

    def _wait_for_cooldown(self, name: str, in_seconds: float, change: int) -> tuple[int, str] | None:
        """Return the result of a change under the policy's cooldown."""
        if change < 0:
            is_cooling = self._scaled_at.get((name, "in"), -math.inf) + in_seconds > self.environment.now
            return None if is_cooling else (self.desired + change, name)
        more = self._base(name) + change
        return (
            (more, name) if more > self.desired else None
        )  # a lesser need than before adds nothing, and takes nothing

    def _base(self, name: str) -> int:
        """Return the tasks to which a policy adds: during its cooldown, the tasks before its first addition."""
        properties, tracking = self.case.properties(name), "TargetTrackingScalingPolicyConfiguration"
        seconds: float = (
            properties[tracking]["ScaleOutCooldown"]
            if name == "Track"
            else properties["StepScalingPolicyConfiguration"]["Cooldown"]
        )
        is_cooling = self._scaled_at.get((name, "out"), -math.inf) + seconds > self.environment.now
        before = self._before_out.get(name, self.desired) if is_cooling else self.desired
        return min(before, self.desired)


def random_case(seed: int) -> Case:
    """Return a service of random bounds and policies, and random traffic of a few hours for it."""
    draw = random.Random(seed)  # noqa: S311 (a case that repeats itself)
    lanes, handler_seconds = draw.randint(1, 4), draw.choice([4.0, 10.0, 25.0])
    fewest = draw.randint(1, 3)
    most = fewest + draw.randint(2, 10)
    per_task = lanes / handler_seconds
    hours = draw.randint(2, 4)
    sent: list[tuple[float, int]] = []
    now = 0.0
    level = draw.uniform(0.1, 0.9)
    changes_at = 0.0
    while True:
        if now >= changes_at:
            level, changes_at = draw.choice([0.05, 0.3, 0.6, 0.9, 1.3]), now + draw.uniform(900, 3_600)
        now += draw.expovariate(max(0.002, level * most * per_task))
        if now >= hours * 3_600 or len(sent) == 4_000:
            break
        sent.append((round(now, 3), draw.randrange(100)))
    return Case(
        template=_template(draw, fewest, most, lanes, handler_seconds),
        lanes=lanes,
        handler_seconds=handler_seconds,
        start_seconds=draw.choice([20.0, 45.0, 90.0]),
        sent=sent,
        minutes=math.ceil((sent[-1][0] + 1) / MINUTE) + 60,
    )


def _template(draw: random.Random, fewest: int, most: int, lanes: int, handler_seconds: float) -> dict[str, Any]:
    target = draw.choice([30, 60, 120, 300]) * lanes / handler_seconds
    policy = {"ServiceNamespace": "ecs", "ScalableDimension": "ecs:service:DesiredCount", "ResourceId": "service/c/s"}
    resources: dict[str, Any] = {
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "q.fifo", "FifoQueue": True}},
        "Cluster": {
            "Type": "AWS::ECS::Cluster",
            "Properties": {
                "ClusterName": "c",
                "ClusterSettings": [{"Name": "containerInsights", "Value": "enabled"}],
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {},
                "Policies": [
                    {
                        "PolicyName": "work",
                        "PolicyDocument": {
                            "Statement": [
                                {"Effect": "Allow", "Action": "sqs:*", "Resource": {"Fn::GetAtt": ["Queue", "Arn"]}},
                                {"Effect": "Allow", "Action": "ecs:UpdateTaskProtection", "Resource": "*"},
                            ]
                        },
                    }
                ],
            },
        },
        "Tasks": {
            "Type": "AWS::ECS::TaskDefinition",
            "Properties": {
                "Cpu": "256",
                "Memory": "512",
                "TaskRoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "ContainerDefinitions": [{"Name": "worker", "Image": "worker"}],
            },
        },
        "Service": {
            "Type": "AWS::ECS::Service",
            "Properties": {"ServiceName": "s", "Cluster": {"Ref": "Cluster"}, "TaskDefinition": {"Ref": "Tasks"}},
        },
        "Target": {
            "Type": "AWS::ApplicationAutoScaling::ScalableTarget",
            "Properties": {**policy, "MinCapacity": fewest, "MaxCapacity": most},
        },
    }
    if draw.random() < 0.6:
        resources["Track"] = _tracking(draw, policy, target)
    else:
        resources |= _steps(draw, policy, target)
    return {"Resources": resources}


def _tracking(draw: random.Random, policy: dict[str, Any], target: float) -> dict[str, Any]:
    def metric(id_: str, namespace: str, name: str, dimensions: dict[str, str]) -> dict[str, Any]:
        named = [{"Name": key, "Value": value} for key, value in dimensions.items()]
        of = {"Namespace": namespace, "MetricName": name, "Dimensions": named}
        return {"Id": id_, "ReturnData": False, "MetricStat": {"Metric": of, "Stat": "Average"}}

    queue, service = {"QueueName": "q.fifo"}, {"ClusterName": "c", "ServiceName": "s"}
    expression = "(FILL(visible, REPEAT) + FILL(flying, REPEAT)) / FILL(running, REPEAT)"
    metrics = [
        {"Id": "load", "Expression": expression},
        metric("visible", "AWS/SQS", "ApproximateNumberOfMessagesVisible", queue),
        metric("flying", "AWS/SQS", "ApproximateNumberOfMessagesNotVisible", queue),
        metric("running", "ECS/ContainerInsights", "RunningTaskCount", service),
    ]
    settings = {
        "TargetValue": target,
        "ScaleOutCooldown": draw.choice([60, 180, 300]),
        "ScaleInCooldown": draw.choice([60, 300]),
        "CustomizedMetricSpecification": {"Metrics": metrics},
    }
    return {
        "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
        "Properties": {
            **policy,
            "PolicyName": "track",
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": settings,
        },
    }


def _steps(draw: random.Random, policy: dict[str, Any], target: float) -> dict[str, Any]:
    threshold = max(1, round(target))
    out_steps = [
        {"MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 2 * threshold, "ScalingAdjustment": 1},
        {"MetricIntervalLowerBound": 2 * threshold, "ScalingAdjustment": draw.randint(2, 4)},
    ]
    in_steps = [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": -draw.randint(1, 2)}]
    found: dict[str, Any] = {}
    for name, comparison, bound, steps in (
        ("Out", "GreaterThanThreshold", threshold, out_steps),
        ("In", "LessThanThreshold", max(1, threshold // 4), in_steps),
    ):
        found[name] = {
            "Type": "AWS::ApplicationAutoScaling::ScalingPolicy",
            "Properties": {
                **policy,
                "PolicyName": name,
                "PolicyType": "StepScaling",
                "StepScalingPolicyConfiguration": {
                    "AdjustmentType": "ChangeInCapacity",
                    "Cooldown": draw.choice([60, 300]),
                    "StepAdjustments": steps,
                },
            },
        }
        found[f"{name}Alarm"] = {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "Namespace": "AWS/SQS",
                "MetricName": "ApproximateNumberOfMessagesVisible",
                "Dimensions": [{"Name": "QueueName", "Value": "q.fifo"}],
                "Statistic": "Average",
                "Period": 60,
                "EvaluationPeriods": draw.randint(1, 3) if name == "Out" else draw.choice([5, 15]),
                "Threshold": bound,
                "ComparisonOperator": comparison,
                "AlarmActions": [{"Ref": name}],
            },
        }
    return found
