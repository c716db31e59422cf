"""Randomness that is a pure function of (seed, number, purpose), alike for one number and for a million at once.

The mixing function is splitmix64 (Steele, Lea and Flood 2014): a few multiplications, where a cryptographic hash of
every message would be the larger part of planning it.
"""

from typing import Any

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15


def mixed(number: Any) -> Any:
    """Return 64 well mixed bits of a 64-bit number: an int, or a numpy array of uint64."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)


def uniform(seed: int, number: Any, purpose: int) -> Any:
    """Return what looks like a draw from [0, 1); draws for different purposes are independent.

    `number` is not negative: an int, or a numpy array of uint64 for as many draws.
    """
    key = mixed(mixed(seed & _MASK) + _STEP * (purpose + 1) & _MASK)
    return (mixed(number * _STEP + key & _MASK) >> 11) * 2.0**-53
