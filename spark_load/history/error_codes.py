"""What an error code in a history means. A publisher and the judge read it alike."""

_THROTTLED = ("Throttl", "TooManyRequests", "RequestLimit", "RequestThrottled", "SlowDown", "ServiceUnavailable")


def is_throttled(code: str) -> bool:
    """Return whether an error code says: not so fast. The status counts where a service gives no code."""
    return code.startswith(_THROTTLED) or code in {"429", "503"}
