"""What counts as an endpoint URL, told once for every command line."""

from urllib.parse import urlsplit

from sluice.errors import ConfigError


def checked_url(text: str) -> str:
    """Return an endpoint URL without its trailing slash.

    Raises:
        ConfigError: it is no http or https URL with a host, or its port is none.
    """
    refused = ConfigError(f"endpoint is {text!r}, allowed is a URL such as http://127.0.0.1:4566")
    try:
        parts = urlsplit(text)
        is_legal = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise refused from None
    if not is_legal or any(character.isspace() for character in text):
        raise refused
    return text.rstrip("/")
