"""Choose and open the transport of a run."""

from typing import Any

import botocore.session
from botocore.exceptions import NoCredentialsError
from botocore.utils import get_environ_proxies

from sluice.aws.client import address_of
from sluice.aws.operation import AwsOperation, read_keys
from sluice.clock import Clock, wall_us
from sluice.errors import ConfigError
from sluice.recorder.recorder import Recorder
from spark_load.publish.transport import BOTO3, OUTBOX, SOCKETS, Transport
from spark_load.publish.transport.formats import CALLS
from spark_load.publish.transport.http import HttpTransport
from spark_load.publish.transport.ledger import Ledger
from spark_load.publish.transport.sdk import SdkTransport


def choose_transport(
    name: str | None,
    endpoint_url: str,
    saboteur: str | None,
    *,
    destination: str = "topic",
    has_bundles: bool = False,
) -> str:
    """Return the transport of a run: the named one, or the cheapest one that supports the run's options.

    Raises:
        ConfigError: the named transport does not support saboteurs or bundles, or an outbox has no choice.
    """
    if destination == OUTBOX:
        for option, value in (("--transport", name), ("--sabotage", saboteur)):
            if value is not None:
                raise ConfigError(
                    f"{option} is {value!r}, allowed with destination 'outbox' is none: relays publish, with the client"
                    " they always have; leave it out"
                )
        return OUTBOX
    if name == SOCKETS and saboteur is not None:
        raise ConfigError(
            f"transport is {name!r} with saboteur {saboteur!r}, allowed is {BOTO3}, which saboteurs work on; leave out"
            " --transport"
        )
    if name == SOCKETS and has_bundles:
        raise ConfigError(
            f"transport is {name!r} with bundles, allowed is {BOTO3}: a request of {SOCKETS} has a frame for messages"
            " alone; leave out --transport"
        )
    needs_sdk = has_bundles or saboteur is not None or bool(get_environ_proxies(endpoint_url))
    return name or (BOTO3 if needs_sdk else SOCKETS)


def open_transport(
    name: str, client: Any, *, recorder: Recorder, ledger: Ledger, clock: Clock, has_bundles: bool = False
) -> Transport:
    """Return the transport of that name, to the endpoint of a boto3 client, with the client's region and credentials.

    A transport over boto3 uses the client, which records. The one over sockets uses the ledger, and no proxy.
    """
    if name == BOTO3:
        return SdkTransport(client, recorder, has_bundles=has_bundles)
    url = client.meta.endpoint_url
    if get_environ_proxies(url):
        raise ConfigError(
            f"HTTPS_PROXY is set for {url}, and transport {name!r} knows no proxies; use boto3, or unset it"
        )
    session, service = botocore.session.Session(), client.meta.service_model.service_name
    credentials = session.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    try:
        address = address_of(client, session)
    except OSError as error:
        raise ConfigError(
            f"the certificates to trust cannot be read ({error}); name a file of them in AWS_CA_BUNDLE"
        ) from error
    operation = AwsOperation(
        CALLS[service].operation,
        meta=client.meta,
        exceptions=client.exceptions,
        address=address,
        keys=read_keys(credentials),
        now_us=wall_us,
    )
    return HttpTransport(address, operation, ledger, service=service, clock=clock)
