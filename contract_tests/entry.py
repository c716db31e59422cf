"""Load the contract suite's options in every run of pytest, where somebody's own pytest runs the suite.

pytest reads options before it collects, and looks for a conftest.py only where an argument is a path. So in `pytest
--pyargs contract_tests --target simulator` the suite's conftest.py would be found after its options were refused.
"""

from __future__ import annotations

import importlib
import re

import pytest

_SUITE = re.compile(r"contract_tests(\.\w+)*(::.*)?")


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Load the suite's conftest.py under the name by which pytest knows one, its path."""
    if "--pyargs" in args and any(map(_SUITE.fullmatch, args)):
        conftest = importlib.import_module("contract_tests.conftest")
        if not early_config.pluginmanager.has_plugin(str(conftest.__file__)):
            early_config.pluginmanager.register(conftest, str(conftest.__file__))
