"""LocalStack and LocalEmu as whoever talks to them sees them; `emulator`, of a checkout, is what starts them."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping

from sluice.endpoint import checked_url
from sluice.errors import EndpointError

MODIFIED = "SLUICE_SHORT_WINDOW"
"""Set where LocalStack was started with our hooks: queues named `-window3-` deduplicate for 3 s."""
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs without a proxy, which could not reach our loopback."""
_NAMES = ("localstack", "localemu")


def health(endpoint_url: str, *, timeout_seconds: float = 2) -> Mapping[str, object] | None:
    """Return what LocalStack says of itself at that endpoint, or None when whatever answers there is not a LocalStack.

    LocalEmu counts as one.

    Raises:
        ConfigError: the endpoint is no URL.
        EndpointError: nothing answers.
    """
    found = identify(endpoint_url, timeout_seconds=timeout_seconds)
    return None if found is None else found[1]


def identify(endpoint_url: str, *, timeout_seconds: float = 2) -> tuple[str, Mapping[str, object]] | None:
    """Return `localstack` or `localemu`, and what it says of itself; None when whatever answers there is neither.

    Raises:
        ConfigError: the endpoint is no URL.
        EndpointError: nothing answers.
    """
    endpoint_url = checked_url(endpoint_url)
    for name in _NAMES:
        services = _services(endpoint_url, name, timeout_seconds)
        if services is not None:
            return name, services
    return None


def _services(endpoint_url: str, name: str, timeout_seconds: float) -> Mapping[str, object] | None:
    """Return what an emulator of that name reports at the endpoint; None if another server answers."""
    try:
        with direct.open(f"{endpoint_url}/_{name}/health", timeout=timeout_seconds) as answer:
            services = json.load(answer)
    except (urllib.error.HTTPError, http.client.HTTPException, ValueError):
        return None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise EndpointError(
            f"nothing answers at {endpoint_url} ({reason}); start it (in a checkout of Sluice: make emulator), or name"
            " another with --endpoint-url"
        ) from error
    return services if isinstance(services, dict) and "services" in services else None
