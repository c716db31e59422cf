"""What Python imports first in a program under `sluice record`: the recording begins, then any other sitecustomize."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

from sluice.recorder import every_client

every_client.start()
_here = str(Path(__file__).resolve().parent)
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _here])
if _other is not None and _other.loader is not None:
    _other.loader.exec_module(importlib.util.module_from_spec(_other))
