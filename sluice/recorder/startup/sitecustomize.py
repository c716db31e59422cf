"""Python imports this first in a program under `sluice record`: the recording begins, then any other sitecustomize.

Whatever Python the program runs on reads this file, so it uses nothing new before the version is known.
"""

import importlib.machinery
import importlib.util
import os
import sys

if sys.version_info < (3, 12):  # noqa: UP036 (ours is newer, the program's may not be)
    _seen = f"{sys.version_info[0]}.{sys.version_info[1]}"
    sys.stderr.write(
        f"sluice: not recorded: this program runs on Python {_seen}, the recorder needs 3.12 or newer; run it on that\n"
    )
elif importlib.util.find_spec("botocore") is not None:  # else the program makes no client
    from sluice.recorder import every_client

    every_client.start()
_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _here])
if _other is not None and _other.loader is not None:
    _other.loader.exec_module(importlib.util.module_from_spec(_other))
