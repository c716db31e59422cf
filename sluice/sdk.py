"""The configuration of AWS's clients: each with its timeouts, and tried once unless something else is said.

AWS's own default is to retry by itself, which a caller that counts attempts cannot see.
"""

from typing import Any

from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from sluice.error_codes import CREDENTIALS_REFUSED
from sluice.errors import SET_CREDENTIALS

CORRECT_PROFILE = "correct the profile in AWS's configuration, or set AWS_PROFILE to another one"
RECORD_FOLDER = "SLUICE_RECORD"
"""The variable by which a program knows that each boto3 client it makes is recorded."""
CONNECT_SECONDS = 4
"""A connection that took longer has failed; a client that waits less for an answer waits less for this, too."""


_LOGIN = (exceptions.SSOError, exceptions.TokenRetrievalError, getattr(exceptions, "LoginError", exceptions.SSOError))
_PROFILE = (
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.InvalidConfigError,
    exceptions.ConfigParseError,
    exceptions.ConfigNotFound,
    exceptions.UnknownCredentialError,
)
NO_CREDENTIALS: tuple[type[Exception], ...] = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    FileNotFoundError,
    PermissionError,
    *_LOGIN,
)
"""Raised before a call is made, for want of credentials, or of the file that they are in."""
UNANSWERED: tuple[type[Exception], ...] = (
    exceptions.BotoCoreError,
    ResponseParserError,
    KeyError,
    RuntimeError,
    OSError,
    ValueError,
)
"""Raised of a call that AWS did not answer, which may pass. Not all are botocore's own: KeyError of an answer in XML
that is none of AWS, as a proxy's page may be; RuntimeError of refreshed credentials that have ended already; OSError
and ValueError of what credentials and certificates are read from."""
_ENDPOINT = "look at --endpoint-url"
_STEPS: tuple[tuple[Any, str], ...] = (
    (_LOGIN, "log in again, as with `aws sso login`, or set AWS_PROFILE to another profile"),
    (exceptions.NoCredentialsError, SET_CREDENTIALS),
    (exceptions.ProfileNotFound, "correct AWS_PROFILE, or unset it"),
    (_PROFILE, CORRECT_PROFILE),
    (exceptions.NoRegionError, "set AWS_DEFAULT_REGION"),
    (exceptions.ProxyConnectionError, "look at HTTP_PROXY, HTTPS_PROXY and NO_PROXY"),
    (exceptions.SSLError, "look at AWS_CA_BUNDLE and --endpoint-url"),
    (exceptions.BotoCoreError, _ENDPOINT),  # some are an OSError as well: who was too slow is no file
    (OSError, "look at that file"),
    (RuntimeError, SET_CREDENTIALS),
)


def next_step(error: BaseException) -> str:
    """Return the advice that follows an error of botocore: what the reader has to correct or look at."""
    code = str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, exceptions.ClientError) else ""
    if code.startswith(CREDENTIALS_REFUSED):
        return SET_CREDENTIALS
    return next((step for kinds, step in _STEPS if isinstance(error, kinds)), _ENDPOINT)


def config(
    *, answer_seconds: float = 10, connect_seconds: float = CONNECT_SECONDS, tries: int = 1, connections: int = 10
) -> Config:
    """Return the configuration of a client."""
    return Config(
        connect_timeout=min(connect_seconds, answer_seconds),
        read_timeout=answer_seconds,
        retries={"total_max_attempts": tries},
        max_pool_connections=connections,
    )
