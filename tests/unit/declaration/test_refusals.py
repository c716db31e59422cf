"""A refusal is one readable line for any declared value."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.declaration import Consumer, Environment, load_declaration, naming
from sluice.errors import ConfigError

LONG = "x" * 100_000
HUGE = 10**5_000  # of which Python makes no text


class Unspeakable:
    """A value without a text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _environment(**fields: object) -> Environment:
    return Environment(**{"name": "a", "region": "eu-central-1", "consumers": (Consumer(name="a"),)} | fields)  # type: ignore[arg-type]


def _load(folder: Path, text: str) -> None:
    file = folder / "environments.py"
    file.write_text(text, encoding="utf-8")
    load_declaration(file).environment(LONG)


@pytest.mark.parametrize(
    "declare",
    [
        lambda _: Consumer(name=LONG, lanes=0),
        lambda _: Consumer(name="a", **{LONG: 1}),  # type: ignore[arg-type]
        lambda _: Consumer(LONG),  # type: ignore[call-arg]
        lambda _: Consumer(name="a", lanes=HUGE),
        lambda _: Consumer(name="a", lanes=Unspeakable()),  # type: ignore[arg-type]
        lambda _: Consumer(name="a", poison=LONG),  # type: ignore[arg-type]
        lambda _: Consumer(name="a", filter_policy={LONG: [{"prefix": 3}]}),
        lambda _: _environment(consumers=(Consumer(name="a"),) * 5_000),
        lambda _: _environment(consumers=Consumer(name=LONG)),
        lambda _: _environment(tags={LONG: 1}),
        lambda _: naming.queue_name(_environment(), Consumer(name=LONG)),
        lambda folder: _load(folder, "from sluice.declaration import *\nENVIRONMENTS = (Environment(), )"),
        lambda folder: _load(
            folder,
            "from sluice.declaration import *\n"
            "ENVIRONMENTS = (Environment(name='a', region='eu-central-1', consumers=(Consumer(name='a'),)),)",
        ),
        lambda folder: _load(folder, f"from sluice.declaration import *\nPoison.{LONG}"),
    ],
    ids=[
        "long-name",
        "long-keyword",
        "long-positional-argument",
        "number-without-text",
        "value-without-text",
        "long-value",
        "long-filter-key",
        "five-thousand-equal-names",
        "consumer-in-place-of-consumers",
        "long-tag-key",
        "queue-of-a-long-name",
        "python-error-in-the-file",
        "unknown-environment-with-a-long-name",
        "long-attribute-in-the-file",
    ],
)
def test_a_refusal_is_bounded(tmp_path: Path, declare: Callable[[Path], object]) -> None:
    """A value, a name or a key is cut where the refusal is made: not every program that shows it has a bound.

    `LONG` has 100,000 characters; the text of the refusal quotes at most a few hundred of them.
    """
    with pytest.raises(ConfigError) as refused:
        declare(tmp_path)

    assert len(str(refused.value)) < 1_500
