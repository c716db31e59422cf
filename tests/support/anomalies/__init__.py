"""Every anomaly once: a hand-written history that shows only this anomaly, and a near miss that shows none.

The cases of a family are the `CASES` of a module in this folder.
"""

import importlib
import pkgutil

from tests.support.histories.builders import Case

_FAMILIES = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
CASES: dict[str, Case] = {case.anomaly: case for family in _FAMILIES for case in family.CASES}
