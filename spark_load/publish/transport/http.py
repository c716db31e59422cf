"""The transport over plain sockets: it encodes, signs and records calls; `sockets` has the connections."""

from collections.abc import Sequence

from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from sluice.aws.http import Address
from sluice.aws.operation import AwsOperation
from sluice.clock import Clock
from sluice.history.events import CallOutcome
from spark_load.publish.transport import TransportAnswer, TransportCall
from spark_load.publish.transport.formats import EntryResults, body_encoder
from spark_load.publish.transport.ledger import Ledger, RecordedCall
from spark_load.publish.transport.sockets import SocketArrival, SocketExchange, SocketRequest

_OK = CallOutcome.OK.value
_CONNECTIONS_MAX = 64
_SERVER_ERROR = 500


class HttpTransport:
    """A `Transport` over sockets."""

    def __init__(
        self, address: Address, operation: AwsOperation, ledger: Ledger, *, service: str, clock: Clock
    ) -> None:
        self._exchange = SocketExchange(address, connections_max=_CONNECTIONS_MAX, clock=clock)
        self._operation, self._encode = operation, body_encoder(service, operation)
        self._ledger, self._clock = ledger, clock
        self._on_their_way: dict[int, RecordedCall] = {}
        self._keys = 0

    @property
    def room(self) -> int:
        """Return how many calls may be sent now."""
        return self._exchange.room

    def send(self, calls: Sequence[TransportCall]) -> None:
        """Record all calls, then send them.

        All have the same instant as `invoked_at_us`, which is early for the last.
        """
        signed = [self._operation.sign(self._encode(call)) for call in calls]
        recorded_calls = self._ledger.record_intents(calls, invoked_at_us=self._clock.now_us())
        requests = []
        for recorded_call, content in zip(recorded_calls, signed, strict=True):
            self._keys += 1
            self._on_their_way[self._keys] = recorded_call
            requests.append(SocketRequest(self._keys, content))
        self._exchange.post(requests)

    def answers(self, wait_seconds: float) -> Sequence[TransportAnswer]:
        """Return the calls that were answered or given up.

        Answers are recorded with the next calls, or when none is in flight.
        """
        if not self._on_their_way:
            return ()
        answers = [self._answer(arrival) for arrival in self._exchange.arrivals(wait_seconds)]
        if not self._on_their_way:
            self._ledger.flush()
        return answers

    def _answer(self, arrival: SocketArrival) -> TransportAnswer:
        recorded_call = self._on_their_way.pop(arrival.key)
        results, is_answered = self._results(recorded_call.call, arrival)
        self._ledger.add_answer(recorded_call, results, responded_at_us=arrival.at_us if is_answered else None)
        return TransportAnswer(recorded_call.call, _errors(results))

    def _results(self, call: TransportCall, arrival: SocketArrival) -> tuple[EntryResults, bool]:
        """Return (results of each message, whether the response is an answer at all)."""
        came = arrival.came
        if isinstance(came, Exception):
            never_left = isinstance(came, EndpointConnectionError | ConnectTimeoutError)
            return EntryResults.alike(call.size, _outcome(has_no_effect=never_left), type(came).__name__), False
        try:
            return EntryResults.of(call, self._operation.result(came)), True
        except ClientError as error:
            code = error.response["Error"].get("Code") or str(came.status)
            # A refusal had no effect. A server error may have had one.
            return EntryResults.alike(call.size, _outcome(has_no_effect=came.status < _SERVER_ERROR), code), True
        except (ResponseParserError, KeyError) as error:
            return EntryResults.alike(call.size, _outcome(has_no_effect=False), type(error).__name__), False

    def close(self) -> None:
        """Record the answers, and close every connection."""
        self._ledger.flush()
        self._exchange.close()


def _outcome(*, has_no_effect: bool) -> str:
    return (CallOutcome.FAIL if has_no_effect else CallOutcome.INFO).value


def _errors(results: EntryResults) -> dict[int, str]:
    """Return the error code of each message that was not accepted, by its position."""
    if results.outcomes.count(_OK) == len(results.outcomes):
        return {}
    pairs = zip(results.outcomes, results.errors, strict=True)
    return {position: error or outcome for position, (outcome, error) in enumerate(pairs) if outcome != _OK}
