"""The only module that assembles a worker: for the command line, for a program that embeds a worker, and for tests.

    build_worker(Consumer(name="billing"), queue=queue_url, database=database_url, handlers=Handlers.of(module)).run()

`build_worker` takes a consumer's declaration; `assemble_worker` takes the parts that follow from a declaration. Neither
checks the live queue or the tables: `sluice worker` checks them before.
"""

import random
import re
import threading
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import boto3
from sqlalchemy import Engine

from sluice.aws.client import LIGHT
from sluice.clock import Clock, SystemClock
from sluice.declaration import Consumer
from sluice.declaration.arguments import check_argument_types
from sluice.errors import ConfigError
from sluice.messaging import failpoints
from sluice.messaging.database import connections, engines
from sluice.messaging.failpoints import Failpoint
from sluice.messaging.handlers import Handlers
from sluice.messaging.inbox.admission import Inbox
from sluice.messaging.inbox.groups import InboxPolicy
from sluice.messaging.inbox.pause import PauseWatch
from sluice.messaging.liveness import AliveFile, Liveness, process_name
from sluice.messaging.sqs import queue as queues
from sluice.messaging.sqs.queue import Queue
from sluice.messaging.waiting import Stop, Wait
from sluice.messaging.worker.drainer import Drainer
from sluice.messaging.worker.hooks import WorkerHooks, WorkerHookSet
from sluice.messaging.worker.lane import Lane
from sluice.messaging.worker.processing.deleter import DELETED_MAX, Deleter, threads_of
from sluice.messaging.worker.processing.handler_runner import HandlerRunner
from sluice.messaging.worker.processing.message_lease import Heartbeat
from sluice.messaging.worker.processing.processor import MessageProcessor
from sluice.messaging.worker.scale_in_protection import Protection
from sluice.messaging.worker.settings import ProcessorSettings, WorkerSettings
from sluice.messaging.worker.signs import Deadlines, Signs
from sluice.messaging.worker.worker import Parts, Worker
from sluice.terminal.printable import printable

_BUSY_SECONDS = 1_800  # longest protection from scale-in without a pause; longer if a handler may take longer
# one to extend leases, one to release messages at the end; the deleting threads have further ones
_RENEWAL_CONNECTIONS = 2
_HOST = re.compile(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com")


class Options(TypedDict, total=False):
    """Optional parts of a worker; see `assemble_worker`."""

    renewals: Queue | None
    stop: Stop | None
    wait: Wait | None
    clock: Clock | None
    rng: random.Random | None
    failpoint: Failpoint
    hooks: Sequence[WorkerHooks]
    alive: AliveFile | None
    agent_uri: str | None


@check_argument_types
def build_worker(
    consumer: Consumer,
    *,
    queue: Queue | str,
    database: Engine | str,
    handlers: Handlers,
    lanes: int | None = None,
    idle_seconds: float | None = None,
    is_ordered: bool | None = None,
    bundle_events_max: int = 1,
    client: str = LIGHT,
    **options: Unpack[Options],
) -> Worker:
    """Return a worker for a consumer, ready to `run`.

    Args:
        consumer: the declaration of the consumer.
        queue: URL of the queue; or a queue, whose client is not changed and has to serve as many threads as there are
            lanes.
        database: URL of the database with the inbox's tables; or an engine, which is not changed.
        handlers: the handlers of its events.
        lanes: message groups to work on at once; None means the declared number.
        idle_seconds: end the worker after this time without a message; None means never.
        is_ordered: whether the queue is FIFO; None decides by the queue's name.
        bundle_events_max: as the consumer's topic declares it.
        client: the client to make for a URL, `light` or `boto3`.
        options: further arguments of `assemble_worker`.

    Raises:
        ConfigError: a value or a URL is not valid.
    """
    url = queue.strip() if isinstance(queue, str) else queue.url
    is_ordered = url.endswith(".fifo") if is_ordered is None else is_ordered
    settings = WorkerSettings.of_consumer(consumer, lanes=lanes, idle_seconds=idle_seconds)
    processor_settings = ProcessorSettings.of_consumer(
        consumer, is_ordered=is_ordered, bundle_events_max=bundle_events_max
    )
    if isinstance(queue, str):
        timeout_seconds = processor_settings.timeout_seconds
        polls, prompt = clients(None, _region(url), lanes=settings.lanes, timeout_seconds=timeout_seconds, kind=client)
        queue = Queue(polls, url)
        options.setdefault("renewals", Queue(prompt, url))
    if isinstance(database, str):
        database = engines.engine(database)
        connections.end_waits(database, processor_settings.hold_seconds_max)
    return assemble_worker(
        queue=queue,
        engine=database,
        handlers=handlers if consumer.types is None else handlers.of_consumer(consumer),
        inbox=Inbox(InboxPolicy.of_consumer(consumer), clock=options.get("clock"), worker=process_name()),
        settings=settings,
        processor_settings=processor_settings,
        **options,
    )


def clients(
    endpoint_url: str | None, region: str, *, lanes: int, timeout_seconds: int, kind: str = LIGHT
) -> tuple[Any, Any]:
    """Return two SQS clients: for lanes, and for calls that may not wait for as long as a poll: extensions, deletes."""
    prompt_seconds = Heartbeat.answer_seconds(timeout_seconds)
    return (
        queues.client(endpoint_url, region, connections=lanes, kind=kind),
        queues.client(
            endpoint_url,
            region,
            connections=_RENEWAL_CONNECTIONS + threads_of(lanes),
            answer_seconds=prompt_seconds,
            kind=kind,
        ),
    )


def _region(url: str) -> str:
    """Return the region in a queue's URL, or the region of the environment variables if the URL has none."""
    found = _HOST.match(url)
    region = boto3.Session().region_name if found is None else found[1]
    if region is None:
        raise ConfigError(f"queue URL {printable(url)} names no region, and neither does AWS_DEFAULT_REGION; set it")
    return str(region)


@check_argument_types
def assemble_worker(
    *,
    queue: Queue,
    engine: Engine,
    handlers: Handlers,
    inbox: Inbox,
    settings: WorkerSettings,
    processor_settings: ProcessorSettings,
    renewals: Queue | None = None,
    stop: Stop | None = None,
    wait: Wait | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    failpoint: Failpoint = failpoints.do_nothing,
    hooks: Sequence[WorkerHooks] = (),
    alive: AliveFile | None = None,
    agent_uri: str | None = None,
    signs: Signs | None = None,
) -> Worker:
    """Return a worker, ready to `run`; a test calls single steps of its `parts` instead.

    `renewals` is the same queue with a client of short timeouts, for calls that other work waits for: extensions and
    deletions. None means `queue`. Other arguments that may be None then have the value for a process of its own: the
    machine's clock, true randomness, a stop that nobody has requested, signs of life with deadlines from the settings.
    `agent_uri` is ECS_AGENT_URI of the task.
    """
    if processor_settings.commits_bundles:
        handlers.require_sessions()
    stop = Stop() if stop is None else stop
    clock = SystemClock() if clock is None else clock
    wait = stop if wait is None else wait
    rng = random.Random() if rng is None else rng  # noqa: S311 (neither jitter nor an attempt id is a secret)
    hook_set = WorkerHookSet(hooks)
    renewals = queue if renewals is None else renewals
    shutdown = threading.Event()
    signs = _signs(settings, processor_settings, clock) if signs is None else signs
    pause = PauseWatch(engine, processor_settings.consumer, clock=clock, give_sign=signs.expect_end_of_work)
    heartbeat = Heartbeat(renewals, timeout_seconds=processor_settings.timeout_seconds, clock=clock)
    runner = HandlerRunner(handlers=handlers, failpoint=failpoint, hooks=hook_set)
    deleter = Deleter(
        renewals,
        is_working=heartbeat.is_working,
        waiting_max=DELETED_MAX + settings.lanes,
        backoff=processor_settings.database_backoff,
        wait=wait,
        rng=rng,
        hooks=hook_set,
        failpoint=failpoint,
    )
    processor = MessageProcessor(
        engine,
        queue,
        inbox,
        runner,
        heartbeat,
        deleter,
        settings=processor_settings,
        wait=wait,
        clock=clock,
        rng=rng,
        hooks=hook_set,
        give_sign=signs.expect_end_of_work,
        pause=pause,
    )
    drainer = Drainer(
        engine,
        inbox,
        runner,
        settings=processor_settings,
        clock=clock,
        rng=rng,
        hooks=hook_set,
        shutdown=shutdown,
        signs=signs,
        pause=pause,
    )
    parts = Parts(
        engine=engine,
        queue=renewals,
        inbox=inbox,
        heartbeat=heartbeat,
        processor=processor,
        deleter=deleter,
        drainer=drainer,
        shutdown=shutdown,
        lanes=[
            Lane(queue, processor, settings=settings, wait=wait, clock=clock, rng=rng, signs=signs, pause=pause)
            for _ in range(settings.lanes)
        ],
        protection=Protection(
            agent_uri, clock, busy_seconds_max=max(_BUSY_SECONDS, 2 * processor_settings.hold_seconds_max)
        ),
        pause=pause,
        hooks=hook_set,
        signs=signs,
        alive=alive,
    )
    return Worker(parts, settings=settings, stop=stop, clock=clock)


def _signs(settings: WorkerSettings, processor_settings: ProcessorSettings, clock: Clock) -> Signs:
    deadlines = Deadlines.of_worker(
        lanes=settings.lanes,
        rest_seconds_max=settings.backoff.cap_seconds,
        timeout_seconds=processor_settings.timeout_seconds,
        handler_seconds_max=processor_settings.hold_seconds_max,
    )
    return Signs(Liveness(clock), deadlines)
