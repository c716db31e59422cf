"""The frozen declaration as values; processes that tests start find its file by $SLUICE_DECLARATION."""

from pathlib import Path

from sluice.declaration import load_declaration

FILE = Path(__file__).resolve().parent / "declarations" / "environments.py"
ENVIRONMENTS = load_declaration(FILE)
environment = ENVIRONMENTS.environment
