"""The transport over plain sockets: it encodes, signs and writes down here; the connections are `sockets`'s matter."""

from collections.abc import Callable, Sequence

from sluice.aws.signing import Keys, Signer
from sluice.clock import Clock
from sluice.history.events import Outcome
from spark_load.publish.transport import Answer, Call
from spark_load.publish.transport.formats import FORMATS, EntryResults, Unreadable
from spark_load.publish.transport.ledger import Ledger, RecordedCall
from spark_load.publish.transport.sockets import Address, Request, Response, SocketExchange

_OK = Outcome.OK.value
_CONNECTIONS_MAX = 64
NEVER_LEFT = ("EndpointConnectionError", "ConnectTimeoutError")
"""Errors, by botocore's names, after which the request certainly had no effect."""


class HttpTransport:
    """A `Transport` over sockets."""

    def __init__(
        self,
        address: Address,
        ledger: Ledger,
        *,
        service: str,
        region: str,
        keys: Callable[[], Keys],
        clock: Clock,
    ) -> None:
        self._exchange = SocketExchange(address, connections_max=_CONNECTIONS_MAX, clock=clock)
        self._ledger, self._clock = ledger, clock
        self._format = FORMATS[service]
        self._signer = Signer(
            service=service,
            region=region,
            host=address.host,
            path=address.path,
            headers=self._format.headers,
            keys=keys,
            now_us=clock.now_us,
        )
        self._on_their_way: dict[int, RecordedCall] = {}
        self._keys = 0

    @property
    def room(self) -> int:
        """Return how many calls may be sent now."""
        return self._exchange.room

    def send(self, calls: Sequence[Call]) -> None:
        """Write all of them down, then send them; the instant of asking is the same for all, and early for the last."""
        signed = [self._signer.request(self._format.encode(call)) for call in calls]
        recorded_calls = self._ledger.record_intents(calls, invoked_at_us=self._clock.now_us())
        requests = []
        for recorded_call, content in zip(recorded_calls, signed, strict=True):
            self._keys += 1
            self._on_their_way[self._keys] = recorded_call
            requests.append(Request(self._keys, content))
        self._exchange.post(requests)

    def answers(self, wait_seconds: float) -> Sequence[Answer]:
        """Return what was answered or given up; written down with the next question, or when nothing is on its way."""
        if not self._on_their_way:
            return ()
        answers = [self._answer(response) for response in self._exchange.responses(wait_seconds)]
        if not self._on_their_way:
            self._ledger.flush()
        return answers

    def _answer(self, response: Response) -> Answer:
        recorded_call = self._on_their_way.pop(response.key)
        results, is_answered = self._results(recorded_call.call, response)
        self._ledger.answered(recorded_call, results, responded_at_us=response.at_us if is_answered else None)
        return Answer(recorded_call.call, _errors(results))

    def _results(self, call: Call, response: Response) -> tuple[EntryResults, bool]:
        """Return what a response says of each message, and whether it is an answer at all."""
        count = call.size
        if response.error is not None:
            outcome = Outcome.FAIL if response.error in NEVER_LEFT else Outcome.INFO
            return EntryResults.alike(count, outcome.value, response.error), False
        body = response.body.decode("utf-8", "replace")
        if response.status >= 300:
            # A refusal had no effect. A server error may have had one.
            outcome = Outcome.FAIL if response.status < 500 else Outcome.INFO
            code = self._format.error_code(response.headers, body) or str(response.status)
            return EntryResults.alike(count, outcome.value, code), True
        try:
            return self._format.results(call, body), True
        except Unreadable:
            return EntryResults.alike(count, Outcome.INFO.value, "ResponseParserError"), False

    def close(self) -> None:
        """Write down what was answered, and close every connection."""
        self._ledger.flush()
        self._exchange.close()


def _errors(results: EntryResults) -> dict[int, str]:
    """Return position to error code, of the messages that were not taken."""
    if results.outcomes.count(_OK) == len(results.outcomes):
        return {}
    pairs = zip(results.outcomes, results.errors, strict=True)
    return {position: error or outcome for position, (outcome, error) in enumerate(pairs) if outcome != _OK}
