"""Numbers with their units, as people read them."""

import pytest

from sluice.pages import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "—"),
        (0, "0 ms"),
        (40, "0.04 ms"),
        (1_234, "1.23 ms"),
        (999_499, "999 ms"),
        (1_000_000, "1 s"),
        (87_093_311, "87.1 s"),
        (125_000_000, "2 min 05 s"),
        (7_260_000_000, "2 h 01 min"),
    ],
)
def test_durations_are_said_with_their_unit(us: int | None, text: str) -> None:
    assert units.duration(us) == text


def test_queues_are_called_by_what_tells_them_apart() -> None:
    names = ["sluice-local-billing.fifo", "sluice-local-billing-eu.fifo", "sluice-local-audit.fifo"]

    assert list(units.short_names(names).values()) == ["billing", "billing-eu", "audit"]
    assert units.short_names(["a-b.fifo"]) == {"a-b.fifo": "a-b"}
    assert units.short_names(["a-b", "a-b-c"]) == {"a-b": "b", "a-b-c": "b-c"}
