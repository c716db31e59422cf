"""Pause a consumer, and resume it: the inbox's row, which its workers look at, and the mapping of a Lambda function.

A worker stops by itself when it sees the row. A function is invoked by AWS: its event source mapping is disabled, and
enabled again, in the transaction of the row and the audit, which is rolled back if AWS refuses. Without an answer (of
AWS, or to the commit) the mapping may be switched and the row not written: to do the same again ends that.

AWS: https://docs.aws.amazon.com/lambda/latest/api/API_UpdateEventSourceMapping.html (Enabled: "to pause polling and
invocation"; State: Enabling, Enabled, Disabling, Disabled …; read 2026-11-27)
"""

from typing import Any

import boto3
from botocore.exceptions import ClientError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sluice import sdk
from sluice.cli.overview.screen import span_text
from sluice.cli.overview.sources import explain_failure
from sluice.cli.targets import ConsumerTarget
from sluice.clock import Clock, SystemClock
from sluice.declaration import naming
from sluice.errors import EndpointError
from sluice.messaging.database import engines
from sluice.messaging.inbox.pause import PauseOperator

MAPPING_SECONDS_MAX = 60.0
"""How long a command waits for a mapping's new state."""
_POLL_SECONDS = 1.0


class FunctionMapping:
    """The event source mapping from a consumer's queue to its Lambda function.

    Args:
        aws_lambda: boto3's client.

    Raises:
        EndpointError: there is no such mapping, or Lambda refuses to say; the message has the AWS CLI's command.
    """

    def __init__(self, target: ConsumerTarget, aws_lambda: Any) -> None:
        self._lambda, self._region = aws_lambda, target.environment.region
        self.function_name = naming.function_name(target.environment, target.consumer)
        queue = naming.queue_name(target.environment, target.consumer)
        try:
            pages = aws_lambda.get_paginator("list_event_source_mappings").paginate(FunctionName=self.function_name)
            found = [each for page in pages for each in page["EventSourceMappings"]]
        except (ClientError, *sdk.UNANSWERED) as error:
            raise self._refusal(error, f"list-event-source-mappings --function-name {self.function_name}") from error
        mappings = [each for each in found if each["EventSourceArn"].endswith(f":{queue}")]
        if not mappings:
            raise EndpointError(
                f"no event source mapping invokes {self.function_name} with messages of {queue}; deploy the environment"
            )
        self.id = str(mappings[0]["UUID"])
        self.is_disabled = mappings[0]["State"] in ("Disabling", "Disabled")

    def switch(self, *, is_enabled: bool) -> None:
        """Let the mapping poll and invoke, or not; it has its new state some seconds later.

        Raises:
            EndpointError: Lambda refuses; the message has the AWS CLI's command for somebody with the right. Or it did
                not answer, and the mapping may be switched.
        """
        try:
            self._lambda.update_event_source_mapping(UUID=self.id, Enabled=is_enabled)
        except sdk.UNANSWERED as error:
            raise self.unknown(error) from error
        except ClientError as error:
            flag = "--enabled" if is_enabled else "--no-enabled"
            raise self._refusal(error, f"update-event-source-mapping --uuid {self.id} {flag}") from error

    def await_state(self, *, is_enabled: bool, seconds_max: float, clock: Clock) -> str:
        """Return the mapping's state once it is the wanted one, or after so long."""
        wanted, ends_at = "Enabled" if is_enabled else "Disabled", clock.monotonic() + seconds_max
        while True:
            try:
                state = str(self._lambda.get_event_source_mapping(UUID=self.id)["State"])
            except (ClientError, *sdk.UNANSWERED) as error:
                state = f"not known ({explain_failure(error)})"
            if state == wanted or clock.monotonic() >= ends_at:
                return state
            clock.sleep(_POLL_SECONDS)

    def unknown(self, error: Exception) -> EndpointError:
        """Return the error of an act that may be done in part."""
        return EndpointError(
            f"what was done with {self.function_name} is not known ({explain_failure(error)}); do the same again,"
            " and see `sluice status`: its mapping may be switched without a row that says so"
        )

    def _refusal(self, error: Exception, command: str) -> EndpointError:
        return EndpointError(
            f"Lambda refuses ({explain_failure(error)}), so nothing was done; correct the credentials, or let somebody"
            f" with the right run: aws lambda {command} --region {self._region}"
        )


def change_pause(
    target: ConsumerTarget,
    operator: PauseOperator,
    *,
    is_paused: bool,
    confirmed: bool,
    seconds_max: float = MAPPING_SECONDS_MAX,
    clock: Clock | None = None,
) -> str:
    """Pause a consumer or resume it, and return what was done; without `confirmed`, what would be done.

    Args:
        target: the consumer.
        operator: who does it, and why.
        is_paused: whether it is paused afterwards.
        confirmed: False is a dry run, which is rolled back.
        seconds_max: how long to wait for the new state of a function's mapping.
        clock: None means the machine's.

    Raises:
        DeadLetterError: it is paused already, or is not.
        EndpointError: the mapping of its function cannot be changed; then nothing is, or what was done is not known.
    """
    consumer, clock = target.consumer, SystemClock() if clock is None else clock
    with engines.explaining_missing_tables(), target.engine.connect() as connection:
        mapping = None if consumer.runtime is None else FunctionMapping(target, _client(target))
        if is_paused:
            operator.pause(connection)
        else:
            operator.resume(connection, is_disabled=mapping is not None and mapping.is_disabled)
        if confirmed and mapping is not None:
            mapping.switch(is_enabled=not is_paused)
        if confirmed:
            _commit(connection, mapping)
    described = f"{'pause' if is_paused else 'resume'} {consumer.name}"
    if mapping is not None:
        described += f": {'disable' if is_paused else 'enable'} mapping {mapping.id} of function"
        described += f" {mapping.function_name}"
        if confirmed:
            state = mapping.await_state(is_enabled=not is_paused, seconds_max=seconds_max, clock=clock)
            described += f"; its state is {state}"
    elif is_paused:
        described += ": its workers finish what they have received, and receive nothing more"
    if is_paused:
        described += f"; its queue keeps a message for {span_text(consumer.message_retention_seconds)}"
    return described


def _commit(connection: Connection, mapping: FunctionMapping | None) -> None:
    try:
        connection.commit()
    except DBAPIError as error:
        if mapping is None:
            raise
        raise mapping.unknown(error) from error


def _client(target: ConsumerTarget) -> Any:
    return boto3.client(
        "lambda", region_name=target.environment.region, endpoint_url=target.endpoint_url, config=sdk.config()
    )
