"""Breaks one promise each, between a boto3 client and the service: the proof that a test, or the judge, can turn red.

A saboteur hooks into the client. It rewrites parameters before they are sent, answers a call itself, or rewrites an
answer; the service behind it stays honest. `sabotage(clients, name)` installs one on all clients of a caller, which
then share its memory. `every=n` makes it strike at each n-th opportunity only.
"""

from collections.abc import Iterable

from botocore.client import BaseClient

from sluice.errors import ConfigError
from sluice.saboteurs import dead_letters, deployment, outcomes, queues, receiving, sending, topics, visibility
from sluice.saboteurs.base import Saboteur

__all__ = ["SABOTEURS", "Saboteur", "sabotage", "saboteur"]

SABOTEURS: dict[str, Saboteur] = {
    name: entry
    for area in (receiving, sending, visibility, outcomes, queues, dead_letters, topics, deployment)
    for name, entry in area.SABOTEURS.items()
}


def saboteur(name: str) -> Saboteur:
    """Return the saboteur of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in SABOTEURS:
        raise ConfigError(f"saboteur {name!r} is unknown, allowed is one of {', '.join(SABOTEURS)}")
    return SABOTEURS[name]


def sabotage(clients: Iterable[BaseClient], name: str, *, every: int = 1) -> None:
    """Install one saboteur on all these clients, with one memory.

    Raises:
        ConfigError: there is no saboteur of that name.
    """
    made = saboteur(name).make(every)
    for client in clients:
        made.attach(client)
