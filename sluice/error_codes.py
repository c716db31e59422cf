"""The meaning of AWS's error codes for a caller who calls again: one for publishers, relays, tests and the judge."""

CREDENTIALS_REFUSED = (
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "AuthFailure",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "MissingAuthenticationToken",
)
"""What the codes begin with that refuse who calls; what the caller may do is another question."""
_THROTTLED = ("Throttl", "TooManyRequests", "RequestLimit", "RequestThrottled", "SlowDown", "ServiceUnavailable")


def is_throttled(code: str) -> bool:
    """Return whether an error code says: not so fast. The status counts where a service gives no code."""
    return code.startswith(_THROTTLED) or code in {"429", "503"}
