"""Make the contract suite's options known to a user's own `pytest --pyargs contract_tests --target simulator`.

pytest reads options before it collects tests, and looks early for a conftest.py only at arguments that are paths. With
`--pyargs` it would refuse the suite's options before it found the suite's conftest.py.
"""

from __future__ import annotations

import importlib
import re

import pytest

_SUITE = re.compile(r"contract_tests(\.\w+)*(::.*)?")


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Register the suite's conftest.py if an argument names the suite; its name is its path, as for any conftest.py."""
    if "--pyargs" in args and any(map(_SUITE.fullmatch, args)):
        conftest = importlib.import_module("contract_tests.conftest")
        if not early_config.pluginmanager.has_plugin(str(conftest.__file__)):
            early_config.pluginmanager.register(conftest, str(conftest.__file__))
