"""Sources on the command line: the templates of a declared environment, and values of parameters.

The project's CDK app synthesizes the templates. Parameters have the format of the files for the AWS CLI or
CloudFormation.
"""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice.declaration import Declaration, loading
from sluice.errors import ConfigError

_FORMS = (
    '[{"ParameterKey": "NAME", "ParameterValue": "VALUE"}, …], ["NAME=VALUE", …], {"Parameters": {"NAME": "VALUE", …}}'
    ' and {"NAME": "VALUE", …}'
)
_SYNTH_SECONDS_MAX = 300


@contextmanager
def synthesized_templates(name: str, declaration: Declaration) -> Iterator[Path]:
    """Yield a folder with an environment's templates, made by the CDK app of the working directory.

    The folder is removed at the end of the `with` block. The app is run the way the CDK command line runs it. This
    needs Node.js, but not the CDK command line.

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


def read_parameters(texts: Sequence[str], file: Path | None) -> Mapping[str, str]:
    """Return the values of parameters by name; values of the command line replace values of the file.

    Args:
        texts: each `NAME=VALUE`.
        file: JSON of the AWS CLI or of CloudFormation; None reads none.

    Raises:
        ConfigError: a text or an entry has another form; the message names it.
    """
    found = {} if file is None else _parameters_in_file(file)
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--parameter is {text!r}, allowed is NAME=VALUE")
        found[name] = value
    return found


def _parameters_in_file(file: Path) -> dict[str, str]:
    """Return the values of parameters in a JSON file, by name."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {file} ({error.strerror}); give another one with --parameters") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--parameters {file} is not JSON ({error}); allowed are {_FORMS}") from error
    entries = _parameters_in_document(document)
    if any(not isinstance(value, str | int | float) for value in entries.values()):
        raise ConfigError(f"--parameters {file} is {document!r:.60}, allowed are {_FORMS}")
    return {name: str(value) for name, value in entries.items()}


def _parameters_in_document(document: Any) -> dict[str, Any]:
    """Return the values in a parsed file by name; the value is None where an entry has no allowed form."""
    match document:
        case {"Parameters": dict(values)}:
            return _parameters_in_document(values)
        case dict():
            return {str(name): value for name, value in document.items()}
        case list():
            return dict(map(_named_value, document))
    return {"": None}


def _named_value(entry: Any) -> tuple[str, Any]:
    """Return (name, value) of an entry in a list of parameters; ("", None) if it has no allowed form."""
    match entry:
        case {"ParameterKey": str(name), "ParameterValue": value}:
            return name, value
        case str(text) if "=" in text:
            return text.partition("=")[0], text.partition("=")[2]
    return "", None
