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

from sluice.clock import Clock


class Keys(NamedTuple):
    """Credentials as they are now; a token only with temporary ones."""

    access_key: str
    secret_key: str
    token: str | None = None


class Signer:
    """Signs requests that have the same path and headers. It asks for `keys` once a second, because they may expire."""

    def __init__(
        self,
        *,
        service: str,
        region: str,
        host: str,
        path: str,
        headers: tuple[tuple[str, str], ...],
        keys: Callable[[], Keys],
        clock: Clock,
    ) -> None:
        self._service, self._region, self._path = service, region, quote(path, safe="/~")
        self._headers = (*headers, ("host", host))
        self._keys, self._clock = keys, clock
        self._second = -1

    def signed(self, body: bytes) -> list[tuple[str, str]]:
        """Return all headers of a request with that body, but for its length."""
        second = self._clock.now_us() // 1_000_000
        if second != self._second:
            self._prepare(second)
        request = self._request_start + hashlib.sha256(body).hexdigest()
        to_sign = self._to_sign_start + hashlib.sha256(request.encode()).hexdigest()
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        return [*self._sent, ("authorization", self._authorization_start + signature)]

    def _prepare(self, second: int) -> None:
        keys = self._keys()
        stamp = f"{datetime.fromtimestamp(second, tz=UTC):%Y%m%dT%H%M%SZ}"
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        token = () if keys.token is None else (("x-amz-security-token", keys.token),)
        self._sent = sorted((*self._headers, ("x-amz-date", stamp), *token))
        names = ";".join(name for name, _ in self._sent)
        listed = "".join(f"{name}:{value}\n" for name, value in self._sent)
        self._request_start = f"POST\n{self._path}\n\n{listed}\n{names}\n"
        self._to_sign_start = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        self._authorization_start = (
            f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature="
        )
        key = f"AWS4{keys.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key
        self._second = second
