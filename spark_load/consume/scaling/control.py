"""Scale the workers of a run by the deployed policy, in compressed time: a minute of the policy takes a few seconds.

Only the time and the control loop are not real. The queue, the processes, their starts, SIGTERM and scale-in protection
are. The loop is that of `sluice.rehearse.model.control_loop`; it gets the queue's numbers from SQS, with the same delay
as metrics on AWS.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from sluice.clock import SystemClock, eventually
from sluice.judge.folder import json_files
from sluice.judge.folder.layout import REHEARSAL_FILE
from sluice.recorder.journal import read_journal
from sluice.rehearse.model.control_loop import USUAL, ControlLoop
from spark_load.consume import forked_worker
from spark_load.consume.scaling import observation
from spark_load.consume.scaling.ecs_agent import EcsAgent
from spark_load.consume.scaling.observation import Observation, ObservedPace, QueueRecord, RehearsedService, Sample
from spark_load.consume.scaling.task_pool import TaskPool
from spark_load.consume.worker_processes import (
    WorkerProcess,
    WorkersResult,
    databases,
    recorder,
    require_ended_well,
    start,
    stop,
)
from spark_load.profiles.profile import Profile
from spark_load.runtime.coordinator import RunStep, TaskProgress
from spark_load.runtime.task_context import LoadRun

_POLL_SECONDS = 1.0  # how long a worker's poll of an empty queue lasts
_TEND_SECONDS = 0.1
_SAMPLES_A_MINUTE = 10
_READY_SECONDS = 120
_MINUTES_AFTER_MAX = 60
_QUIET_MINUTES = USUAL.lag_minutes + USUAL.high_minutes
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


def seconds_max(profile: Profile) -> float:
    """Return how long after the last publish the services may take to return to their fewest tasks."""
    minutes = 0.0 if profile.minute_seconds is None else _MINUTES_AFTER_MAX * profile.minute_seconds
    return profile.drain_timeout_seconds + minutes


@dataclass(slots=True, kw_only=True)
class _Service:
    """One service during the run: its queue, its tasks, its control loop, and what was observed of it."""

    queue: str
    url: str
    seen: Observation
    pool: TaskPool
    loop: ControlLoop
    known: Callable[..., Any]
    samples: list[Sample] = field(default_factory=list)

    @property
    def is_back(self) -> bool:
        """Return whether it has its fewest tasks, and its queue was empty so long that no late metric can scale it."""
        fewest = self.seen.rehearsed.service.min_tasks
        latest_values = [self.seen.series[name][-_QUIET_MINUTES:] for name in ("visible", "inflight")]
        is_quiet = all(values == [0.0] * _QUIET_MINUTES for values in latest_values)
        return is_quiet and self.pool.desired == fewest and self.pool.is_settled


def work(run: LoadRun) -> WorkersResult:
    """Run the workers of every queue as their policies say, until all is done and every service is at its fewest tasks.

    Raises:
        EndpointError: a worker did not start, or ended with an error; the message has its last words.
        NotReachedError: the first workers did not begin in time.

    Runs on the driver, in a thread of its own. Writes `rehearsal.json` into the run's folder.
    """
    with EcsAgent(SystemClock()) as agent:
        rehearsal = _Rehearsal(run, agent)
        try:
            rehearsal.run()
        finally:
            rehearsal.stop()
        return rehearsal.report()


class _Rehearsal:
    """Scales all services of a run, and writes the observation beside the prediction."""

    def __init__(self, run: LoadRun, agent: EcsAgent) -> None:
        from sluice.rehearse.model.simulation import KnownMetrics  # noqa: PLC0415 (it needs numba, and few runs scale)

        self._run, self._agent, self._clock = run, agent, SystemClock(run.clock_offset_us)
        self._profile, self._coordinator = run.plan.profile, run.coordinator(self._clock)
        self._sqs, self._databases = run.deployment.client("sqs"), databases(run)
        self._workers: dict[str, WorkerProcess] = {}
        self._services: list[_Service] = []
        self._begun_us, self._late_seconds_max = 0, 0.0
        for queue, rehearsed in run.services.items():
            seen = Observation(rehearsed=rehearsed)
            self._services.append(
                _Service(
                    queue=queue,
                    url=run.deployment.queue_urls[queue],
                    seen=seen,
                    pool=TaskPool(
                        rehearsed.consumer,
                        self._starter(queue, rehearsed),
                        agent=agent,
                        stop_timeout_seconds=rehearsed.service.stop_timeout_seconds,
                        clock=self._clock,
                    ),
                    loop=ControlLoop(rehearsed.service, USUAL),
                    known=KnownMetrics(rehearsed.service, seen.series, USUAL.lag_minutes),
                )
            )

    def _starter(self, queue: str, rehearsed: RehearsedService) -> Callable[[str], Any]:
        """Return a function that starts a worker of a queue as the task with a given name, and returns its process."""

        def begin(name: str) -> Any:
            uri = self._agent.uri(name) if rehearsed.service.is_protected else None
            worker = start(self._run, queue, rehearsed.consumer, name, self._databases[rehearsed.consumer], uri)
            self._workers[name] = worker
            return worker.process

        return begin

    @property
    def _minute_seconds(self) -> float:
        assert self._profile.minute_seconds is not None, "else nothing is scaled"
        return self._profile.minute_seconds

    def run(self) -> None:
        """Scale until every service is back at its fewest tasks, the driver says stop, or it takes too long."""
        forked_worker.prepare()
        for service in self._services:
            service.pool.scale(service.seen.rehearsed.service.min_tasks)
        eventually(
            self._are_first_ready,
            timeout_seconds=_READY_SECONDS,
            describe="the first workers to receive",
            clock=self._clock,
        )
        self._coordinator.report(TaskProgress(worker="scaling", role="consume"), now=True)
        self._begun_us = self._coordinator.wait_for(RunStep.START)
        published_at: float | None = None
        minute = 0
        while not self._coordinator.is_stopped():
            self._pass_minute(minute)
            if published_at is None and self._coordinator.has_reached(RunStep.PUBLISHED):
                published_at = self._clock.monotonic()
            if published_at is not None:
                is_over = self._clock.monotonic() - published_at > seconds_max(self._profile)
                for service in self._services:
                    service.seen.is_back = service.is_back
                if is_over or all(service.is_back for service in self._services):
                    return
            for service in self._services:
                _decide(service, minute)
                service.samples.clear()
            minute += 1

    def _are_first_ready(self) -> bool:
        self._tend()
        return self._coordinator.is_stopped() or all(service.pool.is_settled for service in self._services)

    def _pass_minute(self, minute: int) -> None:
        """Sample queues and tasks until the minute is over, and add it to the observation."""
        for number in range(1, _SAMPLES_A_MINUTE + 1):
            until_us = self._begun_us + round((minute + number / _SAMPLES_A_MINUTE) * self._minute_seconds * 1e6)
            while (left := (until_us - self._clock.now_us()) / 1e6) > 0 and not self._coordinator.is_stopped():
                self._tend()
                self._clock.sleep(min(_TEND_SECONDS, left))
            self._tend()
            self._late_seconds_max = max(self._late_seconds_max, -left)
            for service in self._services:
                service.samples.append(self._sample(service))
        for service in self._services:
            observation.add_minute(
                service.seen.series,
                service.samples,
                desired=service.pool.desired,
                lanes=service.seen.rehearsed.lanes,
                pace=self._pace,
            )

    def _tend(self) -> None:
        """Tend to the tasks of every service; raise if a task has ended by itself with an error."""
        for service in self._services:
            service.pool.tend()
            for task in service.pool.tasks_ended_by_themselves:
                self._require_ended_well(task.name)

    def _require_ended_well(self, task_name: str) -> None:
        worker = self._workers[task_name]
        require_ended_well(worker.process, worker.title)

    def _sample(self, service: _Service) -> Sample:
        """Return a sample of a service's queue and tasks."""
        try:
            answer = self._sqs.get_queue_attributes(QueueUrl=service.url, AttributeNames=list(_COUNTS))
            visible, in_flight = (int(answer["Attributes"][name]) for name in _COUNTS)
        except (BotoCoreError, ClientError):
            return Sample(None, None, service.pool.running_count)
        return Sample(visible, in_flight, service.pool.running_count)

    @property
    def _pace(self) -> ObservedPace:
        return ObservedPace(
            begun_us=self._begun_us,
            minute_seconds=self._minute_seconds,
            poll_seconds=_POLL_SECONDS,
            handler_seconds=self._profile.handler_seconds,
        )

    def stop(self) -> None:
        """End every worker that still runs."""
        stop([worker.process for worker in self._workers.values()], self._clock)

    def report(self) -> WorkersResult:
        """Write the observation beside the prediction, and return it."""
        from spark_load.consume.scaling import prediction  # noqa: PLC0415 (it needs numba, and few runs scale)

        for service in self._services:
            service.seen.tasks = service.pool.tasks
            worked = [task for task in service.pool.tasks if task.polls_us is not None]  # others may have been stopped
            service.seen.recorders = {task.name: recorder(self._run, self._workers[task.name]) for task in worked}
            for task in worked:
                if task.killed_us is None:
                    self._require_ended_well(task.name)
        recorders = {name: service.queue for service in self._services for name in service.seen.recorders.values()}
        if not self._begun_us:
            return WorkersResult(recorders=recorders)
        results = {
            service.seen.rehearsed.consumer: prediction.result(service.seen, self._journals(service), self._pace)
            for service in self._services
        }
        document = {
            "minute_seconds": self._minute_seconds,
            "times_faster": self._pace.factor,
            "handler_seconds": self._profile.handler_seconds * self._pace.factor,
            "variant": USUAL.name,
            "late_seconds_max": round(self._late_seconds_max, 3),
            "services": results,
        }
        json_files.replace(self._run.folder / REHEARSAL_FILE, json.dumps(document, indent=1) + "\n")
        return WorkersResult(
            recorders=recorders,
            scaling=prediction.sentences(results, self._pace),
            unknowns=[
                f"{service.seen.rehearsed.consumer} did not come back to its fewest tasks"
                f" ({service.seen.rehearsed.service.min_tasks}) with an empty queue within"
                f" {seconds_max(self._profile):g} s of the last publish; see {REHEARSAL_FILE}"
                for service in self._services
                if not service.seen.is_back
            ],
        )

    def _journals(self, service: _Service) -> QueueRecord:
        topic = self._run.deployment.topic
        return observation.read_records(self._events(), addresses=(topic, service.queue), queue=service.queue)

    def _events(self) -> Iterator[Mapping[str, Any]]:
        for path in sorted(self._run.journals.iterdir()):
            yield from read_journal(path).to_pylist()


def _decide(service: _Service, minute: int) -> None:
    """Let the policy decide after a minute, and apply its decision."""
    before = service.pool.desired
    decision = service.loop.decide(minute, before, service.known)
    if decision.desired != before:
        service.seen.decisions.append((minute, before, decision.desired, decision.because or ""))
    service.pool.scale(decision.desired)
