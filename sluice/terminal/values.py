"""Values given on the command line, refused before anything is opened or written."""

import re

import click

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

SEQ = click.IntRange(1, 2**63 - 2)
"""A number of a group: more than 64 bits no database holds."""


class Number(click.ParamType[float]):
    """A finite number of something, between bounds.

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


class Age(click.ParamType[int]):
    """An age with its unit, in seconds."""

    name = "age"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds, or fail."""
        found = re.fullmatch(r"([0-9]{1,6})([smhd])", value)
        if found is None:
            self.fail(
                f"{value!r} is not an age, allowed is a number of seconds, minutes, hours or days such as 90m",
                param,
                ctx,
            )
        return int(found[1]) * _UNITS[found[2]]
