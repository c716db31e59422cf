"""The templates of a declared environment: given, or synthesized by the project's CDK app."""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.declaration import Declaration, loading
from sluice.errors import ConfigError

_SYNTH_SECONDS_MAX = 300


@contextmanager
def synthesized(name: str, declaration: Declaration) -> Iterator[Path]:
    """Give the folder of an environment's templates, made by the CDK app of the working directory, then remove it.

    The app is run as the CDK command line runs it, which is not needed; Node.js is.

    Raises:
        ConfigError: there is no app here, or it refused; the message ends with its last line.
    """
    try:
        settings = json.loads(Path("cdk.json").read_text(encoding="utf-8"))
        command = shlex.split(settings["app"])
        context = json.dumps({**settings.get("context", {}), "env": name})
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no cdk.json in {Path.cwd()}, needed is a CDK app to synthesize {name}; go to the project's"
            " folder, or give a template with --template"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f'cdk.json cannot be used ({error}); it needs a line "app"') from error
    with tempfile.TemporaryDirectory(prefix="sluice-rehearse-") as folder:
        environment = {
            **os.environ,
            "CDK_OUTDIR": folder,
            "CDK_CONTEXT_JSON": context,
            loading.VARIABLE: str(declaration.path),
        }
        try:
            made = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_SYNTH_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"{settings['app']!r} of cdk.json cannot be run ({error})") from error
        if made.returncode:
            last = (made.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
            raise ConfigError(f"{settings['app']!r} of cdk.json ended with {made.returncode}: {last}")
        yield Path(folder)
