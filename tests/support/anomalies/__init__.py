"""Every anomaly once, in a history written by hand that shows it and no other, beside one that just does not.

A family's cases are the `CASES` of a module in this folder.
"""

import importlib
import pkgutil

from tests.support.histories.builders import Case

_FAMILIES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
CASES: dict[str, Case] = {case.anomaly: case for family in _FAMILIES for case in family.CASES}
