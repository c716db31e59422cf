"""Saboteurs: each breaks one promise on purpose, to prove that the promise's test, or the judge, can fail.

A saboteur hooks into a boto3 client. It rewrites parameters before they are sent, answers a call in the service's
place, or rewrites an answer; the service itself stays correct. `sabotage(clients, name)` installs one saboteur on
several clients, which then share its memory. With `every=n`, it strikes at each n-th opportunity only.
"""

from collections.abc import Iterable

from botocore.client import BaseClient

from sluice.errors import ConfigError
from sluice.saboteurs import (
    bundles,
    dead_letters,
    deployment,
    mappings,
    outcomes,
    queues,
    receiving,
    sending,
    topics,
    visibility,
)
from sluice.saboteurs.base import Hook, Saboteur

__all__ = ["SABOTEURS", "Saboteur", "sabotage", "saboteur"]

SABOTEURS: dict[str, Saboteur] = {
    name: entry
    for area in (receiving, sending, bundles, visibility, outcomes, queues, dead_letters, topics, mappings, deployment)
    for name, entry in area.SABOTEURS.items()
}


def saboteur(name: str) -> Saboteur:
    """Return the saboteur of that name.

    Raises:
        ConfigError: there is no saboteur of that name.
    """
    if name not in SABOTEURS:
        raise ConfigError(f"saboteur {name!r} is unknown, allowed is one of {', '.join(SABOTEURS)}")
    return SABOTEURS[name]


def sabotage(clients: Iterable[BaseClient], name: str, *, every: int = 1) -> Hook:
    """Install one saboteur on all these clients, which share its memory; return it, so that it can be detached.

    Args:
        clients: of SQS, SNS, Lambda or CloudWatch.
        name: a key of `SABOTEURS`.
        every: n, to strike at each n-th opportunity only.

    Raises:
        ConfigError: there is no saboteur of that name.
    """
    hook = saboteur(name).make(every)
    for client in clients:
        hook.attach(client)
    return hook
