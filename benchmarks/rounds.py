"""Measure several things in turn, each once a round, so that a slow minute of the machine slows all of them."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """The values of one quantity, one for each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.values)

    @property
    def noise(self) -> str:
        """Return the difference of largest and smallest value, in percent of the median."""
        return f"{(max(self.values) - min(self.values)) / self.median:.0%}"

    def over(self, other: "Measurement") -> "Measurement":
        """Return the ratio of this measurement to the other, round by round."""
        return Measurement(tuple(mine / its for mine, its in zip(self.values, other.values, strict=True)))

    @property
    def ratio(self) -> str:
        """Return the text `median (smallest to largest)`, for a measurement that is a ratio."""
        return f"{self.median:.2f} ({min(self.values):.2f} to {max(self.values):.2f})"


def interleave[K](cells: Mapping[K, Callable[[], float]], rounds: int) -> dict[K, Measurement]:
    """Run all cells `rounds` times and return their results; every second round runs them in reverse order."""
    values: dict[K, list[float]] = {key: [] for key in cells}
    for number in range(rounds):
        order = list(cells.items())
        for key, measure in order if number % 2 == 0 else reversed(order):
            values[key].append(measure())
    return {key: Measurement(tuple(seen)) for key, seen in values.items()}
