"""A relay's process: read settings, check database and topic, then run the relay."""

import os
import random
import sys
from typing import Any

import boto3
from sqlalchemy.exc import DBAPIError

from sluice import sdk
from sluice.cli.options import ProcessOptions
from sluice.cli.services.running import log_to, process_metrics, recording
from sluice.cli.targets import DatabaseTarget
from sluice.clock import SystemClock
from sluice.declaration import Environment, metrics, naming
from sluice.endpoint import checked_url
from sluice.errors import ConfigError, EndpointError
from sluice.messaging import failpoints
from sluice.messaging.database import connections, engines, migrations, server_settings
from sluice.messaging.errors import TransientError
from sluice.messaging.liveness import SLACK_SECONDS, Liveness, LivenessWatch
from sluice.messaging.outbox import tables
from sluice.messaging.outbox.store import Lag, Store
from sluice.messaging.relay import publisher
from sluice.messaging.relay.commit_wait import CommitWait
from sluice.messaging.relay.hooks import RelayHooks
from sluice.messaging.relay.lease import Lease
from sluice.messaging.relay.relay import Relay, RelaySettings, run
from sluice.messaging.telemetry.metrics import RelayMetrics
from sluice.messaging.telemetry.recording import RelayRecording
from sluice.messaging.waiting import Stop, Wait
from sluice.terminal import output
from sluice.terminal.exits import PARTLY
from sluice.terminal.logger import Logger

_log = Logger()
_ANSWER_SECONDS = 30  # timeout of a database's answer; the lease's length if that is longer


def run_relay(
    target: DatabaseTarget,
    process: ProcessOptions,
    *,
    topic_arn: str | None,
    endpoint_url: str | None,
    poll_seconds: float,
    lease_seconds: float,
    keep_seconds: float,
    listen: bool,
    until_empty: bool,
) -> None:
    """Run a relay of a topic until the process is asked to stop; with `until_empty`, until nothing can be published.

    Each argument is the option of that name of `sluice relay`.
    """
    log_to(sys.stderr, process.log_level)
    settings = RelaySettings(
        poll_seconds=poll_seconds,
        lease_seconds=lease_seconds,
        keep_sent_seconds=keep_seconds,
        keep_groups_seconds=max(consumer.inbox_retention_seconds for consumer in target.environment.consumers),
        event_bytes_max=target.environment.event_bytes_max,
        bundle_events_max=target.environment.topics[0].bundle_events_max,
    )
    if listen and target.engine.dialect.name != "postgresql":
        raise ConfigError(f"--listen is given with {target.engine.dialect.name}, allowed is postgresql; leave it out")
    measured = process_metrics(
        metrics.OUTBOX,
        metrics.dimensions(target.environment),
        interval_seconds=metrics.OUTBOX_INTERVAL_SECONDS,
        is_embedded=process.is_measured,
        prometheus=process.prometheus,
    )
    checked_endpoint = None if endpoint_url is None else checked_url(endpoint_url)
    sns = publisher.client(checked_endpoint, target.environment.region, kind=process.client)
    arn = (topic_arn or _topic_arn(target.environment, checked_endpoint)).strip()
    answer_seconds = max(lease_seconds, _ANSWER_SECONDS)
    connections.end_waits(target.engine, answer_seconds)
    stop = Stop()
    stop.on_signals()
    failpoint = failpoints.from_environment(os.environ, failpoints.RELAY + failpoints.RELAY_BUNDLES)
    store = Store(target.engine, target.topic)
    if pending_elsewhere := _pending_elsewhere(target, store):
        _log.warning("events wait for other topics, which this relay does not publish", pending=pending_elsewhere)
    lease = Lease(target.engine, target.topic, lease_seconds=lease_seconds)
    database = target.engine.dialect.name
    start_fields = {
        "owner": lease.owner,
        "topic": target.topic,
        "topic_arn": arn,
        "database": database,
        "listen": listen,
    }
    _log.info("starting", **start_fields, poll_seconds=settings.poll_seconds, lease_seconds=settings.lease_seconds)
    _check_topic(sns, arn, until_empty=until_empty)
    with recording(process.record, run=target.topic, worker="relay", client=sns, names={arn: target.topic}) as recorder:
        hooks: list[RelayHooks] = [RelayMetrics(measured, SystemClock())]
        if recorder is not None:
            hooks.append(RelayRecording(recorder))
        relay = Relay(
            store,
            lease,
            publisher.Publisher(sns, arn),
            settings=settings,
            failpoint=failpoint,
            hooks=hooks,
        )
        listening = CommitWait(target.engine, target.topic, stop) if listen else None
        wait: Wait = stop if listening is None else listening
        ending = _UntilEmpty(wait, store, relay)
        is_notified = bool if listening is None else listening.is_notified
        # The longest step of the relay: one call of SNS and one answer of the database, both with a timeout.
        step_seconds = publisher.CALL_SECONDS_MAX + answer_seconds + SLACK_SECONDS
        clock = SystemClock()
        watch = LivenessWatch(Liveness(clock), process.alive, within_seconds=step_seconds, clock=clock)
        rng = random.Random()  # noqa: S311 (jitter is not a secret)
        run(relay, ending if until_empty else wait, settings, rng=rng, watch=watch, is_notified=is_notified)
    if until_empty:
        _report_left(store.lag(), is_finished=ending.is_finished)


def _check_topic(sns: Any, arn: str, *, until_empty: bool) -> None:
    """Refuse a topic that is not as a relay needs it; only warn where it cannot be looked at now.

    With `until_empty`, missing credentials are refused as well: the command would wait for them for ever.
    """
    try:
        publisher.check_topic(sns, arn)
    except TransientError as error:
        if until_empty and (cause := error.__cause__) is not None and publisher.lacks_credentials(cause):
            raise EndpointError(f"AWS takes no credentials ({error}); {sdk.next_step(cause)}") from error
        _log.warning("the topic could not be looked at", topic_arn=arn, error=str(error))


def _report_left(left: Lag, *, is_finished: bool) -> None:
    """Exit with 1 if SNS refused messages, or if the process was stopped before it had published all others."""
    if left.quarantined_count or (left.pending_count and not is_finished):
        pending = "waiting behind" if is_finished else "not published yet"
        counts = left.count_text(left.quarantined_count), left.count_text(left.pending_count)
        output.line(f"{counts[0]} quarantined, {counts[1]} {pending}; see `outbox ls`", is_error=True)
        sys.exit(PARTLY)


class _UntilEmpty:
    """A `Wait` for `--until-empty`: it also stops the relay as soon as only blocked messages are left."""

    def __init__(self, wait: Wait, store: Store, leading: Relay) -> None:
        self._wait, self._store, self._relay = wait, store, leading
        self.is_finished = False

    def wait(self, seconds: float) -> None:
        """Wait, unless nothing is left to publish. The relay calls it when no message is due.

        Raises:
            DBAPIError: the database does not answer; a relay that ends by itself does not wait for it.
        """
        is_finished = self._store.is_finished()
        self.is_finished = is_finished and (self._relay.is_leading or self._relay.is_standing_by)
        if not self.is_stopped():
            self._wait.wait(seconds)

    def is_stopped(self) -> bool:
        """Return whether the relay has to stop."""
        return self.is_finished or self._wait.is_stopped()


def _pending_elsewhere(target: DatabaseTarget, store: Store) -> dict[str, int]:
    """Return how many messages wait for other topics, by topic; refuse a database without the outbox's tables.

    The result is empty where the database does not answer yet: the relay waits for it later.
    """
    try:
        with engines.reading(target.engine) as connection:
            migrations.require(connection, tables.versioned)
            server_settings.require(connection, tables.RELAY_RIGHTS)
        return store.pending_elsewhere()
    except DBAPIError as error:
        if not engines.may_pass_at_start(error):
            raise
    except server_settings.OnStandby as error:
        _log.warning("waiting for a primary", error=str(error))
    return {}


def _topic_arn(environment: Environment, endpoint_url: str | None) -> str:
    """Return the ARN of the environment's first topic, in the declared account or in that of the credentials."""
    account = environment.account
    if account is None:
        sts = boto3.client("sts", endpoint_url=endpoint_url, region_name=environment.region, config=sdk.config())
        account = sts.get_caller_identity()["Account"]
    return naming.topic_arn(environment, account)
