"""Costs of every environment a month, idle and under load, and the prices they are made of."""

from collections.abc import Iterator

from sluice.cost.bill import MonthlyMessages, bill
from sluice.cost.prices import PRICES
from tools.pages.declared_fields import ENVIRONMENTS

_IDLE = MonthlyMessages(messages=0, message_bytes=2_000)
_LOADED = MonthlyMessages(messages=50_000_000, message_bytes=2_000)
_ON_AWS = [environment for environment in ENVIRONMENTS.values() if environment.name != "local"]
COLUMNS = tuple(f"{environment.name}, {load}" for environment in _ON_AWS for load in ("idle", "50 million"))


def rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each line of the bills, one with their sums, and one for each cheaper declaration."""
    bills = [bill(environment, volume) for environment in _ON_AWS for volume in (_IDLE, _LOADED)]
    for line in bills[0].lines:
        yield (line, *(f"{made.lines[line]:,.2f}" for made in bills))
    yield ("**a month**", *(f"**{made.usd:,.2f}**" for made in bills))
    for other in bills[0].instead:
        yield (f"with {other}", *(f"{made.instead[other]:,.2f}" if other in made.instead else "" for made in bills))


def price_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each price: its name, US dollars, the unit, and the source."""
    for name, price in PRICES.items():
        yield name, f"{price.usd:g}", price.unit, price.source
