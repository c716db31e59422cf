"""The check of an endpoint URL, the same for every command line."""

import ipaddress
import re
from urllib.parse import urlsplit

from sluice.errors import ConfigError

_HOST_CHARACTERS_MAX = 255
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


def checked_url(text: str) -> str:
    """Return an endpoint URL without its trailing slash, and without white space around it.

    Raises:
        ConfigError: it is no http or https URL with a host that has a name as DNS knows them, or its port is none.
    """
    text = text.strip()
    refused = ConfigError(f"endpoint is {text!r}, allowed is a URL such as http://127.0.0.1:4566")
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        is_legal = parts.scheme in ("http", "https") and _is_host(host.replace("_", "-")) and parts.port != 0
    except ValueError:
        raise refused from None
    if not is_legal or any(name.isspace() or not name.isprintable() for name in text):
        raise refused
    if "_" in host:
        raise ConfigError(
            f"endpoint is {text!r}, AWS's clients allow no '_' in the name of a host; give it an alias such as"
            f" {host.replace('_', '-')}, or its address"
        )
    return text.rstrip("/")


def _is_host(name: str) -> bool:
    """Return whether botocore takes it, which otherwise raises a ValueError: an IPv6 address, or labels of DNS."""
    if ":" in name:
        return bool(ipaddress.IPv6Address(name))
    return len(name) <= _HOST_CHARACTERS_MAX and all(map(_LABEL.fullmatch, name.removesuffix(".").split(".")))
