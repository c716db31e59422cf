"""Numbers with their units, as people read them."""

from collections.abc import Sequence

NONE = "—"
QUANTILES = ("p50", "p95", "p99", "max")
"""The quantiles of a latency, in the order in which they are shown."""


def duration(us: float | None) -> str:
    """Return a duration in microseconds as text with three significant digits; None is a dash."""
    if us is None:
        return NONE
    if abs(us) < 1_000:
        return f"{us / 1_000:.2g} ms" if us else "0 ms"
    if abs(us) < 999_500:
        return f"{us / 1_000:.3g} ms"
    if abs(us) < 120_000_000:
        return f"{us / 1_000_000:.3g} s"
    minutes, seconds = divmod(round(us / 1_000_000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def seconds(value: float | None) -> str:
    """Return a duration in seconds as text; None is a dash."""
    return duration(None if value is None else value * 1_000_000)


def rate(per_second: float | None) -> str:
    """Return a number of messages per second as text; None is a dash."""
    if per_second is None:
        return NONE
    return f"{per_second:,.0f}/s" if per_second >= 1_000 else f"{per_second:.3g}/s"


def times(count: int) -> str:
    """Return a count as text: once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, which gets an s unless the count is 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return each name in short: without the suffix .fifo, and without the words that all names begin with."""
    words = [name.removesuffix(".fifo").split("-") for name in names]
    alike = 0
    if len(names) > 1:
        while all(len(word) > alike + 1 and word[alike] == words[0][alike] for word in words):
            alike += 1
    return {name: "-".join(word[alike:]) for name, word in zip(names, words, strict=True)}
