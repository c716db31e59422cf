"""The Python environment of the competitors in the benchmarks, with its own versions: benchmarks/competitors.lock."""

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ENVIRONMENT = _HERE.parent / ".venv-benchmarks"
PYTHON = str(_ENVIRONMENT / "bin" / "python")
"""The interpreter of the environment; it exists after `install`."""


def install() -> None:
    """Create the environment if it is missing, and install exactly the versions of competitors.lock."""
    uv = str(Path(sys.executable).parent / "uv")
    if not _ENVIRONMENT.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_ENVIRONMENT)], check=True)
    subprocess.run([uv, "pip", "sync", "--quiet", "--python", PYTHON, str(_HERE / "competitors.lock")], check=True)
