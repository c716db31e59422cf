"""The rules of language find what breaks them, each in a file made for it, and nothing in one that keeps them."""

import pytest

from tools import language

_GOOD = '''
def delayed_messages():
    """Return what `read_queue` found."""

def read_queue(): ...

class MessageQueue: ...
'''


def _counts(text: str) -> dict[str, int]:
    found = language.count({"sluice/messaging/__init__.py": text, "sluice/other.py": _GOOD})
    return {kind: len(places) for kind, places in found.items() if places}


def test_a_file_that_keeps_the_rules_is_clean() -> None:
    assert _counts(_GOOD.replace("MessageQueue", "Inbox")) == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def _written(): ...", "participle functions"),
        ("def moved_from(): ...", "participle functions"),
        ("class HoldLost: ...", "participle classes"),
        ("type Written = str", "participle classes"),
        ('def f():\n    """A1."""', "empty docstrings"),
        ('"""What becomes of a message."""', "docstrings that begin with a question word"),
        ('def f():\n    """Who reads it."""', "docstrings that begin with a question word"),
        ("def test_what_is_lost_is_found(): ...", "tests named test_what"),
        ("def test_a_b_c_d_e_f_g_h_i_j_k_l_m(): ...", "tests named in more than twelve words"),
        ('def f():\n    """Call `databases.is_locked`."""', "names in back-quotes that are nowhere"),
        ('"""See `gone_function(now)`."""', "names in back-quotes that are nowhere"),
        ("assert (1, 2) == (3, 4)", "asserts that compare several facts at once"),
    ],
)
def test_a_broken_rule_is_counted(text: str, kind: str) -> None:
    assert _counts(text) == {kind: 1}


@pytest.mark.parametrize("path", ["sluice/moved.py", "sluice/declared/environment.py", "tests/unit/test_in_spark.py"])
def test_a_module_that_is_no_noun_is_counted(path: str) -> None:
    (found,) = language.count({path: "", "sluice/messaging/delayed_messages.py": ""})["participle modules"]

    assert path.startswith(found)


def test_a_test_class_with_a_name_of_the_product_is_counted() -> None:
    files = {"sluice/queues.py": "class Queue: ...", "sluice/templates/a.py": "class Base: ..."}
    tests = {"tests/support/a.py": "type Queue = str\nclass Base: ...", "benchmarks/a.py": "class _Queue: ..."}

    found = language.count({**files, **tests})

    assert {kind: places for kind, places in found.items() if places} == {
        "classes of the product whose name tests or benchmarks give to others": ["tests/support/a.py:1: Queue"]
    }


def test_a_public_name_with_two_definitions_is_counted_at_both() -> None:
    assert _counts('__all__ = ["MessageQueue"]\nclass MessageQueue: ...') == {"public names with two definitions": 2}


def test_the_same_seed_draws_the_same_places() -> None:
    files = {path: text for path, text in language.sources().items() if "/docs/" in path}

    assert list(language.draw(files, 35)) == list(language.draw(files, 35))
