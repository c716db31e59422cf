"""Parameters of templates, as the command line gives them, and as the files of the AWS CLI and of CloudFormation do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice.errors import ConfigError

_FORMS = (
    '[{"ParameterKey": "NAME", "ParameterValue": "VALUE"}, …], ["NAME=VALUE", …], {"Parameters": {"NAME": "VALUE", …}}'
    ' and {"NAME": "VALUE", …}'
)


def read_parameters(texts: Sequence[str], file: Path | None) -> Mapping[str, str]:
    """Return the values by name; what the command line says replaces what the file does.

    Args:
        texts: each `NAME=VALUE`.
        file: JSON of the AWS CLI or of CloudFormation; None reads none.

    Raises:
        ConfigError: something is of another form; the message names it.
    """
    found = {} if file is None else _in_file(file)
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"--parameter is {text!r}, allowed is NAME=VALUE")
        found[name] = value
    return found


def _in_file(file: Path) -> dict[str, str]:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {file} ({error.strerror}); give another one with --parameters") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--parameters {file} is not JSON ({error}); allowed are {_FORMS}") from error
    entries = _entries(document)
    if any(not isinstance(value, str | int | float) for value in entries.values()):
        raise ConfigError(f"--parameters {file} is {document!r:.60}, allowed are {_FORMS}")
    return {name: str(value) for name, value in entries.items()}


def _entries(document: Any) -> dict[str, Any]:
    """Return name to value; a None among them is of another form."""
    match document:
        case {"Parameters": dict(values)}:
            return _entries(values)
        case dict():
            return {str(name): value for name, value in document.items()}
        case list():
            return dict(map(_entry, document))
    return {"": None}


def _entry(entry: Any) -> tuple[str, Any]:
    match entry:
        case {"ParameterKey": str(name), "ParameterValue": value}:
            return name, value
        case str(text) if "=" in text:
            return text.partition("=")[0], text.partition("=")[2]
    return "", None
