"""The database's address, from the secret the stacks name."""

import json
from typing import Any

from sqlalchemy import URL

from sluice.errors import ConfigError

_FIELDS = ("username", "password", "host", "dbname")


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
    absent = [name for name in _FIELDS if not isinstance(said, dict) or not said.get(name)]
    if absent:
        raise ConfigError(
            f"secret {secret_arn} lacks {', '.join(absent)}, allowed is JSON with {', '.join(_FIELDS)} and perhaps"
            " port; correct the secret"
        )
    url = URL.create(
        "postgresql",
        username=said["username"],
        password=said["password"],
        host=said["host"],
        port=int(said.get("port", 5432)),
        database=said["dbname"],
    )
    return url.render_as_string(hide_password=False)
