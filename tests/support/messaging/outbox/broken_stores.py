"""Broken stores of a relay, which tests and chaos runs have to catch."""

from collections.abc import Sequence
from typing import override

from sqlalchemy import Connection

from sluice.messaging.outbox.store import Head, Store


class ForgetsBoundaries(Store):
    """Broken: takes a bundle for stored, so that another leader may send its events in another one."""

    @override
    def store_bundles(self, connection: Connection, heads: Sequence[Head]) -> set[int]:
        return {head.id for head in heads}
