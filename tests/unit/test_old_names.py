"""Names that moved are found where they were, with a warning, and no others are."""

import pytest

from sluice.old_names import forward_names


def test_an_old_name_is_found_with_a_warning_that_names_the_new() -> None:
    find = forward_names("old.place", Path="pathlib")

    with pytest.warns(
        DeprecationWarning, match=r"^old\.place\.Path goes with the next version: import it from pathlib$"
    ) as warned:
        found = find("Path")

    assert found.__name__ == "Path"
    assert [warning.filename for warning in warned] == [__file__]


def test_a_name_that_changed_is_found_by_its_old_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"next version: import PurePath from pathlib$"):
        assert forward_names("old.place", Path="pathlib:PurePath")("Path").__name__ == "PurePath"


def test_a_hint_says_what_to_do_instead() -> None:
    with pytest.warns(DeprecationWarning, match="next version: read the guide$"):
        forward_names("old.place", hint="read the guide", Path="pathlib")("Path")


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match=r"module 'old\.place' has no attribute 'Window'"):
        forward_names("old.place", Path="pathlib")("Window")
