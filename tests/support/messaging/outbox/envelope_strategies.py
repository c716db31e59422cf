"""Events that a producer may make: anything that AWS accepts."""

import string
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from sluice.messaging import Event

_WORD = string.ascii_letters + string.digits + "_-"
_IDENTIFIER = string.ascii_letters + string.digits + string.punctuation
_SENDABLE = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
_ESCAPED = st.one_of(_SENDABLE, st.sampled_from("\x00\x1f\t\n\r\x7f"))

texts = st.text(_SENDABLE, min_size=1, max_size=20)
words = st.text(_WORD, min_size=1, max_size=20)
types = st.lists(words, min_size=1, max_size=3).map(".".join)
identifiers = st.text(_IDENTIFIER, min_size=1, max_size=128)
numbers = st.integers(1, 2**63 - 2)
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 (bounds)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(_ESCAPED),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(_ESCAPED, max_size=8), inner, max_size=4),
    max_leaves=12,
)
attribute_names = types.filter(lambda name: not name.lower().startswith(("aws.", "amazon.")) and name != "type")


@st.composite
def events(draw: st.DrawFn) -> Event:
    attributes: dict[str, str] = draw(st.dictionaries(attribute_names, texts, max_size=9))
    data: Any = draw(json_values)
    return Event(
        type=draw(types),
        group=draw(identifiers),
        data=data,
        attributes=attributes,
        id=draw(identifiers),
        at=draw(st.none() | instants),
        trace=draw(st.dictionaries(words, st.text(_ESCAPED, max_size=8), max_size=2)),
    )
