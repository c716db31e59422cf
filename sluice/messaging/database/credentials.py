"""The database's URL, from the secret that the stacks name, or for a user who logs in with tokens of IAM.

Connections use TLS, and the server's certificate has to be for its host (`sslmode=verify-full`), unless the secret
itself has another `sslmode`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from sqlalchemy import URL

from sluice import sdk
from sluice.errors import ConfigError
from sluice.terminal.printable import printable

CA_VARIABLE = "SLUICE_DATABASE_CA"
"""The environment variable that names a file with certificates, by which the database's server is verified."""
USER_VARIABLE = "SLUICE_DATABASE_USER"
"""The environment variable that names the user who logs in with tokens of IAM, on the database of `VARIABLES`."""
VARIABLES = {"host": "SLUICE_DATABASE_HOST", "port": "SLUICE_DATABASE_PORT", "dbname": "SLUICE_DATABASE_NAME"}
"""Field of a secret to the environment variable that holds it if the secret, such as one that RDS manages, does not."""
_FIELDS = ("username", "password", "host", "dbname")
_PORT, _PORT_MAX = 5432, 65_535
# https://www.postgresql.org/docs/18/libpq-ssl.html, https://www.postgresql.org/docs/18/libpq-connect.html
# (read 2026-11-21)
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_VERIFY_CA, _VERIFY_FULL = "verify-ca", "verify-full"
RDS_CERTIFICATES = Path(__file__).with_name("rds-certificates.pem")
"""The authorities of RDS and Aurora; where they are from stands in the file."""
_OF_RDS, _OF_PROXY = ".rds.amazonaws.com", ".proxy-"
_CONNECT_SECONDS, _ANSWER_SECONDS, _TRIES = 2, 3, 2  # it answers in milliseconds, and a task waits for it


def client(region: str) -> Any:
    """Return a Secrets Manager client that tries twice, each time for five seconds at most."""
    config = sdk.config(connect_seconds=_CONNECT_SECONDS, answer_seconds=_ANSWER_SECONDS, tries=_TRIES)
    return boto3.client("secretsmanager", region_name=region, config=config)


def database_url(secrets: Any, secret_arn: str, variables: Mapping[str, str]) -> str:
    """Return the URL of the database whose credentials are in a secret of Secrets Manager.

    Args:
        secrets: a Secrets Manager client.
        secret_arn: the ARN of the secret.
        variables: the environment variables.

    Raises:
        ConfigError: the secret does not hold the credentials of a database.
    """
    text = secrets.get_secret_value(SecretId=secret_arn).get("SecretString", "")
    return secret_url(text, f"secret {secret_arn}", variables)


def secret_url(text: str, name: str, variables: Mapping[str, str]) -> str:
    """Return the URL of the database whose credentials a secret holds, as RDS writes it.

    Args:
        text: JSON with username and password, and perhaps host, port, dbname and sslmode.
        name: the secret's name in error messages.
        variables: the environment variables: `VARIABLES` hold the fields that the secret lacks. Without `CA_VARIABLE`,
            a host of RDS is verified by RDS's certificates, any other host by those that OpenSSL trusts.

    Raises:
        ConfigError: the secret does not hold the credentials of a database, or the file of certificates does not exist;
            the message shows no value of the secret.

    AWS: https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html
    (read 2026-11-21); of a secret that RDS manages for a cluster only username and password are documented:
    https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/rds-secrets-manager.html (read 2026-11-23).
    """
    try:
        secret = json.loads(text)
    except ValueError:
        secret = None
    return _url(_fields_of(variables) | secret if isinstance(secret, dict) else {}, name, variables)


def token_url(sign: Callable[..., str], user: str, variables: Mapping[str, str]) -> str:
    """Return the URL of a database of RDS with a new token in it, which is valid for 15 minutes.

    Args:
        sign: makes a token; the method `generate_db_auth_token` of boto3's client of RDS.
        user: the database user who logs in with the token.
        variables: the environment variables: `VARIABLES` with host, port and database name, and `CA_VARIABLE`.

    Raises:
        ConfigError: host or database name is missing, or host and port are not valid.
        BotoCoreError: this process has no credentials of AWS.

    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.IAMDBAuth.html and
    https://docs.aws.amazon.com/boto3/latest/reference/services/rds/client/generate_db_auth_token.html (read 2026-11-26)
    """
    found = _fields_of(variables)
    for field in ("host", "dbname"):
        if field not in found:
            raise ConfigError(
                f"{USER_VARIABLE} is {printable(user)!r} and {VARIABLES[field]} is not set, allowed is a user together"
                f" with {', '.join(VARIABLES.values())}; set them as the outputs of the database's stack say"
            )
    port = found.get("port", str(_PORT))
    try:
        token = sign(DBHostname=found["host"], Port=port, DBUsername=user)
    except ValueError as error:  # of `urlsplit`
        raise ConfigError(
            f"{VARIABLES['host']} is {printable(found['host'])!r} and {VARIABLES['port']} {printable(port)!r}, allowed"
            f" is the name of a host and a port from 1 to {_PORT_MAX}; correct them"
        ) from error
    return _url(found | {"username": user, "password": token}, USER_VARIABLE, variables)


def _fields_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a secret that are in environment variables."""
    return {field: variables[name] for field, name in VARIABLES.items() if variables.get(name)}


def _url(secret: Mapping[str, Any], name: str, variables: Mapping[str, str]) -> str:
    """Return the URL that is made of a secret's fields; refuse missing fields and a bad port."""
    absent = [field for field in _FIELDS if not isinstance(secret.get(field), str) or not secret[field]]
    if absent:
        raise ConfigError(
            f"{name} lacks {', '.join(absent)}, allowed is JSON with {', '.join(_FIELDS)} and perhaps"
            f" port and sslmode; correct the secret, or set {' and '.join(VARIABLES.values())} beside it"
        )
    port = str(secret.get("port", _PORT))
    if not port.isdecimal() or not 1 <= int(port) <= _PORT_MAX:
        raise ConfigError(
            f"{name}, or {VARIABLES['port']} beside it, has a port that is none, allowed is 1 to"
            f" {_PORT_MAX}; correct it"
        )
    ca = variables.get(CA_VARIABLE, _certificates_of(secret["host"]))
    url = URL.create(
        "postgresql",
        username=secret["username"],
        password=secret["password"],
        host=secret["host"],
        port=int(port),
        database=secret["dbname"],
        query=_tls_options(secret.get("sslmode", _VERIFY_FULL), name, ca),
    )
    return url.render_as_string(hide_password=False)


def _certificates_of(host: str) -> str | None:
    """Return the file with the certificates for a host of RDS; None for other hosts, which those of OpenSSL verify.

    RDS Proxy has a certificate that OpenSSL trusts.

    AWS: https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.SSL.html and
    https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/UsingWithRDS.SSL-certificate-rotation.html
    (read 2026-11-23).
    """
    return str(RDS_CERTIFICATES) if host.endswith(_OF_RDS) and _OF_PROXY not in host else None


def _tls_options(mode: object, name: str, ca: str | None) -> Mapping[str, str]:
    """Return libpq's options for TLS: sslmode, and for a verified server sslrootcert.

    Args:
        mode: the sslmode of the secret.
        name: the secret's name in error messages.
        ca: the file with the server's certificates; None means the system's.
    """
    if not isinstance(mode, str) or mode not in _SSL_MODES:
        raise ConfigError(
            f"{name} has an sslmode that is none, allowed is one of {', '.join(_SSL_MODES)}; correct the secret"
        )
    if mode not in (_VERIFY_CA, _VERIFY_FULL):
        return {"sslmode": mode}
    if ca is not None and not Path(ca).is_file():
        raise ConfigError(
            f"{CA_VARIABLE} is '{printable(ca, characters_max=300)}', allowed is a file with the certificates the"
            " database's server is verified by; correct it, or leave it out"
        )
    if ca is None and mode == _VERIFY_CA:  # which libpq refuses with the system's certificates: anybody can have one
        raise ConfigError(
            f"{name} has the sslmode {_VERIFY_CA} and {CA_VARIABLE} is not set, allowed is {_VERIFY_CA}"
            f" with certificates of your own; set it, or use {_VERIFY_FULL}"
        )
    return {"sslmode": mode, "sslrootcert": "system" if ca is None else ca}
