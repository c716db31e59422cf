"""The database's address, from the secret the stacks name."""

import json
from typing import Any

from sqlalchemy import URL

from sluice.errors import ConfigError

_FIELDS = ("username", "password", "host", "dbname")
_PORT, _PORT_MAX = 5432, 65_535


def database_url(secrets: Any, secret_arn: str) -> str:
    """Return the URL of the database whose credentials are in a secret, as RDS writes it.

    Args:
        secrets: a Secrets Manager client.
        secret_arn: of the secret: JSON with username, password, host, dbname and perhaps port.

    Raises:
        ConfigError: the secret holds something else; its values are not shown.

    AWS: https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html
    (read 2026-11-21).
    """
    text = secrets.get_secret_value(SecretId=secret_arn).get("SecretString", "")
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    said = said if isinstance(said, dict) else {}
    absent = [name for name in _FIELDS if not isinstance(said.get(name), str) or not said[name]]
    if absent:
        raise ConfigError(
            f"secret {secret_arn} lacks {', '.join(absent)}, allowed is JSON with {', '.join(_FIELDS)} and perhaps"
            " port; correct the secret"
        )
    port = str(said.get("port", _PORT))
    if not port.isdecimal() or not 1 <= int(port) <= _PORT_MAX:
        raise ConfigError(
            f"secret {secret_arn} has a port that is none, allowed is 1 to {_PORT_MAX}; correct the secret"
        )
    url = URL.create(
        "postgresql",
        username=said["username"],
        password=said["password"],
        host=said["host"],
        port=int(port),
        database=said["dbname"],
    )
    return url.render_as_string(hide_password=False)
