"""Values given on the command line, refused before anything is opened or written."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click

from sluice import limits
from sluice.clock import SystemClock

DAY_SECONDS = 86_400


class Whole(click.IntRange):
    """A whole number between bounds, as an option's type. A refusal names the bounds, which click's own does not."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            upper = "" if self.max is None else f" to {self.max}"
            self.fail(f"it is {str(value)!r}, allowed is a whole number from {self.min}{upper}", param, ctx)


_SEQ_MAX = 2**63 - 2
SEQ = Whole(1, _SEQ_MAX)
"""The type of an option that takes a message's number in its group; no database holds more than 64 bits."""


class NumberType(click.ParamType[float]):
    """A finite number between bounds, as an option's type.

    click's own FLOAT takes `nan`, which no comparison refuses, and `1e300`, which no database holds in microseconds.
    """

    name = "number"

    def __init__(self, unit: str, minimum: float, maximum: float) -> None:
        self.unit, self.minimum, self.maximum = unit, minimum, maximum

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail."""
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not self.minimum <= number <= self.maximum:
            allowed = f"allowed is a number of {self.unit} from {self.minimum:g} to {self.maximum:g}"
            self.fail(f"it is {str(value)!r}, {allowed}", param, ctx)
        return number


class ScaledNumber(click.ParamType[int]):
    """A whole number with a unit behind it, such as 50M, as an option's type.

    Args:
        units: how many each suffix stands for, in lower case; `""` is the suffix of a plain number.
        examples: the values that a refusal shows.
    """

    name = "number"

    def __init__(self, units: Mapping[str, int], *, minimum: int, maximum: int, examples: str) -> None:
        self.units, self.minimum, self.maximum, self.examples = units, minimum, maximum, examples

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail."""
        found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([a-z]*)", str(value).strip(), flags=re.IGNORECASE)
        unit = None if found is None else self.units.get(found[2].lower())
        if found is None or unit is None:
            self.fail(f"it is {str(value)!r}, allowed is a number such as {self.examples}", param, ctx)
        number = round(Decimal(found[1]) * unit)
        if not self.minimum <= number <= self.maximum:
            self.fail(
                f"it is {str(value)!r}, which is {number:,}, allowed is {self.minimum:,} to {self.maximum:,}",
                param,
                ctx,
            )
        return number


COUNT = ScaledNumber(
    {"": 1, "k": 1_000, "m": 1_000_000, "b": 1_000_000_000, "g": 1_000_000_000},
    minimum=0,
    maximum=10**13,
    examples="800000, 250k, 50M or 1.5B",
)
"""The type of an option that takes a count."""
AGE = ScaledNumber(
    {"s": 1, "m": 60, "h": 3_600, "d": DAY_SECONDS},
    minimum=0,
    maximum=100_000 * DAY_SECONDS,
    examples="90s, 15m, 2h or 7d",
)
"""The type of an option that takes an age, in seconds."""
IN_FLIGHT = ScaledNumber(AGE.units, minimum=60, maximum=100_000 * DAY_SECONDS, examples="15m, 2h or 4d")
"""The type of an option that takes how long a message is in flight, in seconds; SQS needs a minute to count it."""
_BYTES = {"": 1, "b": 1, "k": 1_000, "kb": 1_000, "kib": 1_024, "m": 1_000_000, "mb": 1_000_000, "mib": 1_048_576}
SIZE = ScaledNumber(
    _BYTES, minimum=1, maximum=limits.MESSAGE_BYTES_MAX, examples="900, 2k (2,000 bytes), 2KiB (2,048) or 1MiB"
)
"""The type of an option that takes the size of a message, in bytes."""


class Since(click.ParamType[int]):
    """An instant, as an option's type; its value is microseconds since 1970.

    It is given as an age, or as date and time of ISO 8601, which are UTC unless they name an offset.
    """

    name = "since"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the instant, or fail."""
        if isinstance(value, int):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            age = re.fullmatch(r"[0-9.]+ ?[smhd]?", value.strip(), flags=re.IGNORECASE)
            if age is None:
                self.fail(f"it is {value!r}, allowed is an age such as 15m, 2h or 7d, or 2026-11-27T03:00", param, ctx)
            return SystemClock().now_us() - AGE.convert(value, param, ctx) * 1_000_000
        return round((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


class Numbers(click.ParamType[tuple[int, int]]):
    """A number of a group such as 7, or a range of numbers such as 3-9, as an option's type."""

    name = "numbers"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the first and the last number, or fail."""
        if isinstance(value, tuple):
            return value
        first, dash, last = value.partition("-")
        found = (SEQ.convert(first, param, ctx), SEQ.convert(last if dash else first, param, ctx))
        if found[0] > found[1]:
            self.fail(f"it is {value!r}, allowed is a range whose first number is not after its last", param, ctx)
        return found


SINCE = Since()
NUMBERS = Numbers()
