"""One hot call: its parameters as a signed request, and its response as what boto3 returns or raises."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from botocore.awsrequest import HeadersDict
from botocore.parsers import ResponseParserError, create_parser

from sluice.aws import codec
from sluice.aws.http import OK, Address, Response
from sluice.aws.signing import Signer, SigningKeys

_REFUSED = 300


def read_keys(credentials: Any) -> Callable[[], SigningKeys]:
    """Return a function that returns botocore's current credentials; those of a role are renewed at times."""

    def keys() -> SigningKeys:
        frozen = credentials.get_frozen_credentials()
        return SigningKeys(frozen.access_key, frozen.secret_key, frozen.token)

    return keys


class AwsOperation:
    """A call that is compiled once. Used by any number of threads.

    Args:
        name: as AWS has it, `PublishBatch`.
        meta: of a boto3 client, as the next.
        exceptions: those the service's errors are raised as.
        address: where it goes.
        keys: are read for each request.
        now_us: the wall clock.

    Raises:
        Unusual: botocore's model of it says what is not known here.
    """

    def __init__(
        self,
        name: str,
        *,
        meta: Any,
        exceptions: Any,
        address: Address,
        keys: Callable[[], SigningKeys],
        now_us: Callable[[], int],
    ) -> None:
        self._model, self._exceptions = meta.service_model.operation_model(name), exceptions
        self._parser = create_parser(meta.service_model.resolved_protocol)
        self._decode = codec.answer(self._model)
        self.encode: Callable[[Mapping[str, Any]], bytes] = codec.request_body(self._model)
        self.sign = Signer(
            service=meta.service_model.signing_name,
            region=meta.region_name,
            host=address.host,
            path=address.path,
            headers=codec.request_headers(self._model),
            unsigned_headers=(("user-agent", meta.config.user_agent), ("accept-encoding", "identity")),
            keys=keys,
            now_us=now_us,
        ).request

    def result(self, response: Response) -> dict[str, Any]:
        """Return a parsed response, as boto3 returns it.

        Raises:
            ClientError: the service refused, by the class that a boto3 client's `exceptions` has for it.
            ResponseParserError: the response is not one of this service.
            KeyError: it is XML, but not of this service, as a proxy's page may be; botocore raises it, too.
        """
        try:
            if response.status == OK:
                with suppress(codec.Unusual):
                    return self._decode(response.body, response.headers)
            return self._parse(response)
        # What botocore's parsers, and Python's, meet in what has another form than the model says.
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            message = f"the answer is none of {self._model.name} ({type(error).__name__}: {error})"
            raise ResponseParserError(message) from error

    def _parse(self, response: Response) -> dict[str, Any]:
        """Let botocore parse a response, and raise the exception that it would raise for an error."""
        answer = {
            "status_code": response.status,
            "headers": HeadersDict(response.headers),
            "body": response.body,
            "context": {"operation_name": self._model.name},
        }
        parsed: dict[str, Any] = self._parser.parse(answer, self._model.output_shape)
        if response.status < _REFUSED:
            parsed["ResponseMetadata"]["RetryAttempts"] = 0
            return parsed
        error = parsed.get("Error", {})
        shape = self._model.service_model.shape_for_error_code(error.get("Code"))
        if shape is not None:  # an error that the model describes has its fields beside the usual ones
            parsed |= self._parser.parse(answer, shape)
        parsed["ResponseMetadata"]["RetryAttempts"] = 0
        # SQS tells the name by which the error's class goes beside the one that its older protocol had.
        kind = self._exceptions.from_code(error.get("QueryErrorCode") or error.get("Code"))
        raise kind(parsed, self._model.name)
