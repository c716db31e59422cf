"""Cutting down what fails to the least that still fails, by trying: delta debugging.

Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002: this is their `ddmin`, on two lists in
turn, the faults of a schedule and the messages of its load.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkResult[F, M]:
    """The faults and messages that shrinking left.

    Args:
        faults: none can be left out without it being right again, unless the tries were used up.
        messages: the same.
        tries: how many runs it took.
        is_least: whether the tries sufficed.
    """

    faults: tuple[F, ...]
    messages: tuple[M, ...]
    tries: int
    is_least: bool


class _NoTriesLeftError(Exception):
    """Raised when the tries are used up."""


def shrink[F, M](
    faults: Sequence[F],
    messages: Sequence[M],
    fails: Callable[[Sequence[F], Sequence[M]], bool],
    *,
    tries_max: int,
) -> ShrinkResult[F, M]:
    """Return the fewest faults and messages that still fail.

    Args:
        faults: with which it fails.
        messages: with which it fails.
        fails: whether it does with those: a run, in the same way for the same arguments.
        tries_max: so many runs at most.
    """
    left: tuple[tuple[F, ...], tuple[M, ...]] = (tuple(faults), tuple(messages))
    tries = 0

    def try_again(some_faults: Sequence[F], some_messages: Sequence[M]) -> bool:
        nonlocal tries, left
        if tries == tries_max:
            raise _NoTriesLeftError
        tries += 1
        is_failing = fails(some_faults, some_messages)
        if is_failing:
            left = tuple(some_faults), tuple(some_messages)
        return is_failing

    try:
        before = None
        while before != left:
            before = left
            _least(left[0], lambda some: try_again(some, left[1]))
            _least(left[1], lambda some: try_again(left[0], some))
    except _NoTriesLeftError:
        return ShrinkResult(faults=left[0], messages=left[1], tries=tries, is_least=False)
    return ShrinkResult(faults=left[0], messages=left[1], tries=tries, is_least=True)


def _least[T](items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> None:
    """Try parts of the items, and what is left without one, ever smaller; who is asked keeps what failed."""
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
        rests = [[item for chunk in chunks if chunk is not left_out for item in chunk] for left_out in chunks]
        smaller = next((part for part in (*(chunks if parts == 2 else ()), *rests) if fails(part)), None)
        if smaller is not None:
            parts = 2 if len(smaller) <= size else max(parts - 1, 2)
            items = smaller
        elif parts >= len(items):
            return
        else:
            parts = min(len(items), 2 * parts)
    if items:
        fails(())
