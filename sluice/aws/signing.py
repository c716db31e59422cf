"""AWS Signature Version 4 for one kind of request: POST to one address, the same headers every time.

AWS: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html (read 2026-11-21).
What does not change within a second is made once a second; the rest is two hashes and one keyed hash a request.
"""

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote


class SigningKeys(NamedTuple):
    """The current credentials. Only temporary ones have a token; an empty token counts as none."""

    access_key: str
    secret_key: str
    token: str | None = None


class _SigningContext(NamedTuple):
    """The parts of a signature that all requests of a second with the same keys share."""

    second: int
    keys: SigningKeys
    key: bytes
    request_start: str
    to_sign_start: str
    head_start: str


class Signer:
    """Signs requests that have the same path and headers; used by any number of threads.

    Args:
        path: as it is requested.
        headers: of every request, lower case; all are signed.
        unsigned_headers: sent with them, not signed.
        keys: are read for each request, because they may expire.
        now_us: the wall clock, which the service's must not be far from.
    """

    def __init__(
        self,
        *,
        service: str,
        region: str,
        host: str,
        path: str,
        headers: tuple[tuple[str, str], ...],
        unsigned_headers: tuple[tuple[str, str], ...] = (),
        keys: Callable[[], SigningKeys],
        now_us: Callable[[], int],
    ) -> None:
        self._service, self._region, self._path = service, region, path
        self._headers, self._unsigned = (*headers, ("host", host)), unsigned_headers
        self._keys, self._now_us = keys, now_us
        self._prepared: _SigningContext | None = None

    def request(self, body: bytes) -> bytes:
        """Return the whole request with that body, from its first line to its last byte."""
        second, keys = self._now_us() // 1_000_000, self._keys()
        prepared = self._prepared
        if prepared is None or prepared.second != second or prepared.keys != keys:
            prepared = self._prepared = self._prepare(second, keys)
        canonical = prepared.request_start + hashlib.sha256(body).hexdigest()
        to_sign = prepared.to_sign_start + hashlib.sha256(canonical.encode()).hexdigest()
        signature = hmac.digest(prepared.key, to_sign.encode(), "sha256").hex()
        head = f"{prepared.head_start}{signature}\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode("latin-1") + body

    def _prepare(self, second: int, keys: SigningKeys) -> _SigningContext:
        """Return the parts of the signature that all requests of this second with these keys share."""
        stamp = f"{datetime.fromtimestamp(second, tz=UTC):%Y%m%dT%H%M%SZ}"
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        token = (("x-amz-security-token", keys.token),) if keys.token else ()
        signed = sorted((*self._headers, ("x-amz-date", stamp), *token))
        names = ";".join(name for name, _ in signed)
        listed = "".join(f"{name}:{value}\n" for name, value in signed)
        sent = "".join(f"{name}: {value}\r\n" for name, value in (*signed, *self._unsigned))
        key = f"AWS4{keys.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return _SigningContext(
            second,
            keys,
            key,
            request_start=f"POST\n{quote(self._path, safe='/~')}\n\n{listed}\n{names}\n",
            to_sign_start=f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n",
            head_start=f"POST {self._path} HTTP/1.1\r\n{sent}authorization: AWS4-HMAC-SHA256"
            f" Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature=",
        )
