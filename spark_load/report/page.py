"""The page with charts."""

from sluice.verdict import Verdict
from spark_load.series import Series


def html(verdict: Verdict, said: Series) -> str:
    """Return the page."""
    return f"{verdict.status} {said['run']}"
