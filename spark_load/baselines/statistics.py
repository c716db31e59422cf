"""Test whether runs are slower than earlier ones: Student's t-test on logarithms of values by run, Holm's correction.

The unit is the run. The messages of a run wait in the same queues, so their latencies depend on each other, and a test
of messages finds a difference between any two runs. Logarithms make differences ratios, and are nearer
to normal than latencies are. A part of a run's deviation may stay until the next run, as on a machine that becomes
warm. That part is estimated from the earlier runs, and makes the variance of a mean larger. What these assumptions
cost is measured: docs/decisions/0016-measured-once.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# Gauss-Legendre quadrature, for the integral in `above`.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_HALVINGS = 60  # of the interval in which `_critical_value` searches
_STAYS_MAX = 0.9  # upper bound of the estimated autocorrelation
_T_MAX = _RATIO_MAX = 1e6


@dataclass(frozen=True, slots=True)
class Slower:
    """Later runs compared with earlier ones.

    Args:
        ratio: of their geometric means, after to before.
        p: probability of at least this ratio if nothing changed.
    """

    ratio: float
    p: float


def slower(before: Sequence[float], after: Sequence[float]) -> Slower:
    """Compare positive values of at least two earlier runs with those of at least one later run."""
    old, new = np.log(before), np.log(after)
    freedom = len(old) + len(new) - 2
    difference = float(new.mean() - old.mean())
    error = _standard_error(old, new)
    if error == 0:
        return Slower(math.exp(difference), 0.0 if difference > 0 else 1.0)
    return Slower(math.exp(difference), upper_tail(difference / error, freedom))


def detectable(before: Sequence[float], *, level: float) -> float:
    """Return about which ratio to the earlier runs a single run needs, so that it is called slower at this level."""
    old = np.log(before)
    squares = float(((old - old.mean()) ** 2).sum())
    standard_error = math.sqrt(squares / (len(old) - 1) * (1 + _growth(len(old), _staying(old)) / len(old)))
    return math.exp(min(_critical_value(level, len(old) - 1) * standard_error, math.log(_RATIO_MAX)))


@lru_cache(64)
def _critical_value(level: float, freedom: int) -> float:
    """Return the value that Student's t with this freedom exceeds with probability `level`, by bisection."""
    low, high = 0.0, _T_MAX
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom) > level else (low, middle)
    return high


def _standard_error(old: np.ndarray, new: np.ndarray) -> float:
    """Return the standard error of the difference of the two means, correlation between runs included."""
    squares = float(((old - old.mean()) ** 2).sum() + ((new - new.mean()) ** 2).sum())
    variance, stays = squares / (len(old) + len(new) - 2), _staying(old)
    return math.sqrt(variance * sum(_growth(len(runs), stays) / len(runs) for runs in (old, new)))


def _staying(runs: np.ndarray) -> float:
    """Return how much of a run's deviation stays until the next: the autocorrelation, without its bias.

    Source of the bias: Kendall, Note on bias in the estimation of autocorrelation, 1954.
    """
    deviations = runs - runs.mean()
    if not deviations.any():
        return 0.0
    found = float((deviations[1:] * deviations[:-1]).sum() / (deviations**2).sum())
    return min(_STAYS_MAX, max(0.0, found + (1 + 3 * found) / len(runs)))


def _growth(count: int, stays: float) -> float:
    """Return the factor by which correlation between runs increases the variance of their mean."""
    return 1 + 2 * sum((1 - lag / count) * stays**lag for lag in range(1, count))


def upper_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t with so many degrees of freedom is above a value.

    With t = sqrt(freedom) * tan(angle) the density is a power of a cosine, which is integrated by Gauss's rule.
    """
    if t < 0:
        return 1 - upper_tail(-t, freedom)
    angle = math.atan(t / math.sqrt(freedom))
    middle, half = (math.pi / 2 + angle) / 2, (math.pi / 2 - angle) / 2
    integral = half * float((_WEIGHTS * np.cos(middle + half * _NODES) ** (freedom - 1)).sum())
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(math.pi)
    return integral * math.exp(log_norm)


def holm(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return probabilities adjusted for their number, so that the chance of any false alarm is at most the level."""
    adjusted, largest = {}, 0.0
    for position, name in enumerate(sorted(probabilities, key=lambda name: probabilities[name])):
        largest = max(largest, min(1.0, (len(probabilities) - position) * probabilities[name]))
        adjusted[name] = largest
    return adjusted
