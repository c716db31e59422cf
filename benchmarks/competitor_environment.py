"""The environment of what is measured against, of versions of its own: benchmarks/competitors.lock."""

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = _HERE.parent / ".venv-benchmarks"
PYTHON = str(_ENVIRONMENT / "bin" / "python")
"""Its interpreter, once it is installed."""


def install() -> None:
    """Make it as locked, or bring it to that."""
    uv = str(Path(sys.executable).parent / "uv")
    if not _ENVIRONMENT.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_ENVIRONMENT)], check=True)
    subprocess.run([uv, "pip", "sync", "--quiet", "--python", PYTHON, str(_HERE / "competitors.lock")], check=True)
