"""A client of SNS or SQS for the hot calls, at a tenth of boto3's price; what it answers and raises is boto3's.

It is built beside a boto3 client, from what that documents: its `meta`, its `exceptions`, its session's credentials.
That client stays as it is. It does every other call, and those whose parameters it would refuse or convert. A
call is tried once. Nobody can listen to it: who needs boto3's hooks is given boto3's client, by `open_client`.
"""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.utils import get_environ_proxies, normalize_url_path

from sluice import sdk
from sluice.aws.codec import Unusual
from sluice.aws.connections import Connections
from sluice.aws.http import Address, NoConnectionError, to_botocore
from sluice.aws.operation import AwsOperation, read_keys
from sluice.clock import wall_us
from sluice.errors import ConfigError, EndpointError

LIGHT, BOTO3 = "light", "boto3"
KINDS = (LIGHT, BOTO3)
_log = logging.getLogger(__name__)
_INSTRUMENTATION = "opentelemetry.instrumentation.botocore"


def open_client(service: str, *, endpoint_url: str | None, region: str, config: Config, kind: str = LIGHT) -> Any:
    """Return a client of `sns` or `sqs`: the light one, unless boto3's is wanted or needed.

    Args:
        service: `sns` or `sqs`.
        endpoint_url: None is AWS's own.
        region: of it.
        config: of both clients; the light one tries once, whatever that says.
        kind: one of `KINDS`.

    Raises:
        ConfigError: there is no such kind.
        EndpointError: a `credential_process` prints what is no JSON, or no time.
    """
    if kind not in KINDS:
        raise ConfigError(f"client is {kind!r}, allowed are {' and '.join(KINDS)}; correct it")
    try:
        client = boto3.client(service, endpoint_url=endpoint_url, region_name=region, config=config)
    except BotoCoreError:  # of which some are a ValueError
        raise
    except ValueError as error:
        raise EndpointError(
            f"AWS's credentials cannot be read ({type(error).__name__}: {error}); {sdk.CORRECT_PROFILE}"
        ) from error
    reason = f"{BOTO3} is asked for" if kind == BOTO3 else _need_of_boto3(client)
    if reason is None:
        try:
            return _KINDS[service](client, _session())
        except (Unusual, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
    _log.debug("calls of %s go through boto3: %s", service, reason)
    return client


def _session() -> boto3.Session:
    """Return the session that `boto3.client` uses."""
    if boto3.DEFAULT_SESSION is None:
        boto3.setup_default_session()
    assert boto3.DEFAULT_SESSION is not None, "it was set up"
    return boto3.DEFAULT_SESSION


def _need_of_boto3(client: Any) -> str | None:
    """Return the first thing configured that only boto3's client can do; None if there is nothing."""
    config, url = client.meta.config, client.meta.endpoint_url
    proxies = get_environ_proxies(url) if config.proxies is None else config.proxies
    path = urlsplit(url).path or "/"
    needs = {
        "a proxy": bool(proxies),
        "a client certificate": config.client_cert is not None,
        "another signature": config.signature_version != "v4" or config.auth_scheme_preference is not None,
        "an endpoint by FIPS or dual stack": bool(config.use_fips_endpoint or config.use_dualstack_endpoint),
        "adaptive retries": (config.retries or {}).get("mode") == "adaptive",
        "no credentials": _session().get_credentials() is None,
        "`sluice record`": sdk.RECORD_FOLDER in os.environ,
        "a Lambda function, whose calls carry a header against recursion": "AWS_LAMBDA_FUNCTION_NAME" in os.environ,
        "OpenTelemetry's instrumentation of botocore": _is_instrumented(),
        "botocore's log at DEBUG": logging.getLogger("botocore").isEnabledFor(logging.DEBUG),
        "an endpoint's path that is signed otherwise than it is written": (
            normalize_url_path(path) != path or quote(path, safe="/~%") != path or bool(urlsplit(url).query)
        ),
    }
    return next((need for need, is_there in needs.items() if is_there), None)


def _is_instrumented() -> bool:
    """Return whether OpenTelemetry has instrumented botocore in this process."""
    if _INSTRUMENTATION not in sys.modules:
        return False
    return bool(sys.modules[_INSTRUMENTATION].BotocoreInstrumentor().is_instrumented_by_opentelemetry)


@dataclass(frozen=True, slots=True)
class Meta:
    """A boto3 client's `meta`, without `events`: the hot calls announce nothing there."""

    service_model: Any
    region_name: str
    endpoint_url: str
    config: Config


class _LightClient:
    """The common base of the clients of both services.

    Args:
        client: of boto3, to the same place.
        session: of boto3, whose credentials sign.

    Raises:
        Unusual: botocore's model of a call says what is not known here.
        OSError: the certificates to trust cannot be read.
    """

    def __init__(self, client: Any, session: boto3.Session, operations: Sequence[str]) -> None:
        meta = client.meta
        self.meta = Meta(meta.service_model, meta.region_name, meta.endpoint_url, meta.config)
        self.exceptions = client.exceptions
        self._boto3 = client
        profile = session.profile_name if session.profile_name in session.available_profiles else None
        self._address = address = address_of(client, botocore.session.Session(profile=profile))
        self._connections = Connections(address, idle_max=meta.config.max_pool_connections)
        keys = read_keys(session.get_credentials())
        self._operations = {
            name: AwsOperation(
                name, meta=meta, exceptions=client.exceptions, address=address, keys=keys, now_us=wall_us
            )
            for name in operations
        }

    def __getattr__(self, name: str) -> Any:
        """Return what boto3's client does with a call that is not hot."""
        return getattr(self._boto3, name)

    def _call(self, name: str, params: dict[str, Any]) -> Any:
        """Make a hot call; parameters that only botocore can treat go through boto3's client."""
        operation = self._operations[name]
        try:
            request = operation.sign(operation.encode(params))
        except Unusual:
            return getattr(self._boto3, xform_name(name))(**params)
        try:
            response = self._connections.post(request)
        except (OSError, NoConnectionError) as error:
            raise to_botocore(error, self._address.url) from error
        return operation.result(response)

    def close(self) -> None:
        """Close every connection."""
        self._connections.close()
        self._boto3.close()


def address_of(client: Any, configured: botocore.session.Session) -> Address:
    """Return where a boto3 client's calls go, with its timeouts and what a session of its profile trusts.

    Raises:
        OSError: the certificates to trust cannot be read.
    """
    config, bundle = client.meta.config, configured.get_config_variable("ca_bundle")
    if bundle is None:
        bundle = os.environ.get("REQUESTS_CA_BUNDLE")  # as botocore does
    is_kept_alive = (
        configured.get_config_variable("tcp_keepalive") if config.tcp_keepalive is None else config.tcp_keepalive
    )
    return Address.of(
        client.meta.endpoint_url,
        connect_seconds=config.connect_timeout,
        answer_seconds=config.read_timeout,
        bundle=bundle,
        is_kept_alive=bool(is_kept_alive),
    )


class LightSns(_LightClient):
    """A client of SNS for `publish_batch`; each method is the one of a boto3 client."""

    def __init__(self, client: Any, session: boto3.Session) -> None:
        super().__init__(client, session, ("PublishBatch",))

    def publish_batch(self, **params: Any) -> Any:
        """Publish up to ten messages."""
        return self._call("PublishBatch", params)


class LightSqs(_LightClient):
    """A client of SQS for what workers call; each method is the one of a boto3 client."""

    def __init__(self, client: Any, session: boto3.Session) -> None:
        operations = (
            *("ReceiveMessage", "DeleteMessage", "DeleteMessageBatch", "SendMessageBatch"),
            *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"),
        )
        super().__init__(client, session, operations)

    def receive_message(self, **params: Any) -> Any:
        """Receive up to ten messages."""
        return self._call("ReceiveMessage", params)

    def delete_message(self, **params: Any) -> Any:
        """Delete a message."""
        return self._call("DeleteMessage", params)

    def delete_message_batch(self, **params: Any) -> Any:
        """Delete up to ten messages."""
        return self._call("DeleteMessageBatch", params)

    def change_message_visibility(self, **params: Any) -> Any:
        """Hide a message for longer, or give it back."""
        return self._call("ChangeMessageVisibility", params)

    def change_message_visibility_batch(self, **params: Any) -> Any:
        """Hide up to ten messages for longer."""
        return self._call("ChangeMessageVisibilityBatch", params)

    def send_message_batch(self, **params: Any) -> Any:
        """Send up to ten messages."""
        return self._call("SendMessageBatch", params)


_KINDS = {"sns": LightSns, "sqs": LightSqs}
