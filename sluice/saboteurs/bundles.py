"""Saboteurs of bundles: of the events in the messages that a receive returns."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

from botocore.awsrequest import AWSResponse

from sluice.history.bundles import bundle_body, bundled_bodies
from sluice.saboteurs.base import RECEIVE, Hook, Saboteur, address


class _EditBundles(Hook):
    """Changes the events of received bundles, with a fitting MD5; in each queue it begins at another bundle.

    Args:
        edit: returns the new events of a bundle, given the old ones and the first event of the last bundle of another
            group; None if there was no such bundle.
    """

    operations = RECEIVE

    def __init__(self, every: int, edit: Callable[[list[str], str | None], list[str]]) -> None:
        super().__init__(every)
        self._edit = edit

    def begin(self) -> None:
        self._first: dict[str, str] = {}  # the first event of each group's last bundle

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        if self._opportunities == 0:
            self._opportunities = crc32(address(params).rpartition("/")[2].encode()) % self._every
        for message in parsed.get("Messages", []):
            events = [event.body for event in bundled_bodies(message["Body"])]
            if len(events) < 2:
                continue
            group = message.get("Attributes", {}).get("MessageGroupId", "")
            changed = self._edit(events, next((body for name, body in self._first.items() if name != group), None))
            self._first[group] = events[0]
            if changed != events and self.strikes():
                message.update(_body(changed))


class _SplitBundles(Hook):
    """Lets received bundles come as two messages, of which one has the first event."""

    operations = RECEIVE

    def edit_answer(self, params: Mapping[str, Any], parsed: dict[str, Any], http_response: AWSResponse) -> None:
        for message in list(parsed.get("Messages", [])):
            events = [event.body for event in bundled_bodies(message["Body"])]
            if len(events) > 1 and self.strikes():
                other = {**message, "MessageId": f"{message['MessageId'][:-4]}0000", **_body(events[1:])}
                parsed["Messages"].insert(parsed["Messages"].index(message) + 1, other)
                message.update(_body(events[:1]))


def _body(events: list[str]) -> dict[str, str]:
    """Return the fields of a message with these events."""
    body = bundle_body(events)
    return {"Body": body, "MD5OfBody": hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()}


def _edit(edit: Callable[[list[str], str | None], list[str]]) -> Callable[[int], Hook]:
    return lambda every: _EditBundles(every, edit)


SABOTEURS = {
    "drop-bundled-events": Saboteur(
        "leaves the first event out of a bundle", _edit(lambda events, _: events[1:]), ("G3",)
    ),
    "lose-bundle-tails": Saboteur("ends a bundle before its last event", _edit(lambda events, _: events[:-1]), ("E1",)),
    "swap-bundled-events": Saboteur(
        "swaps the first two events of a bundle", _edit(lambda events, _: [*events[1::-1], *events[2:]]), ("C2",)
    ),
    "repeat-bundled-events": Saboteur(
        "has a bundle's first event twice in it", _edit(lambda events, _: [events[0], *events]), ("B1",)
    ),
    "split-bundles": Saboteur("lets a bundle come as two messages", _SplitBundles, ("G3",)),
    "mix-bundles": Saboteur(
        "puts an event of another group into a bundle",
        _edit(lambda events, other: events if other is None else [*events, other]),
        ("G3",),
    ),
}
