"""Refuse a Python that is too old at once: pip 23 searches for ten minutes before it says so."""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RequirePython(BuildHookInterface[Any]):
    """Ends a build, and so pip's first look at the metadata, where `requires-python` is not met."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's signature)
        """End a build by a Python below 3.12."""
        if sys.version_info < (3, 12):  # noqa: UP036 (an older one comes here)
            raise SystemExit(f"Sluice needs Python 3.12 or newer, this is {sys.version.split()[0]}: python3.13 -m pip")
