"""Read and write the JSON files of a run's folder; an error names the field that is wrong.

An unknown field is no error, because a newer version may have written it.
"""

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sluice.errors import HistoryError
from sluice.terminal.files import write_whole

INT_MAX = (
    2**53
)  # larger numbers are not exact in programs that read JSON as floating point; as an instant, the year 2255
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
"""Configuration of a TypedDict: a text is no number. KEEPS allows unknown fields, and CLOSED refuses them."""
KEEPS = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
CLOSED = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
BRIEF = reprlib.Repr(maxlevel=1, maxstring=80, maxlong=80, maxother=80)
"""Shows any value in one short line; a small YAML file with aliases can describe a huge value."""

type Int = Annotated[int, Field(ge=-INT_MAX, le=INT_MAX)]
type Count = Annotated[int, Field(ge=0, le=INT_MAX)]
type Positive = Annotated[int, Field(ge=1, le=INT_MAX)]
type JsonNumber = Annotated[float, Field(ge=-INT_MAX, le=INT_MAX)]


def one_of(known: Mapping[str, object] | tuple[str, ...]) -> AfterValidator:
    """Return a validator that accepts only known names."""

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"allowed is one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def read[T](path: Path, schema: TypeAdapter[T], *, instead: str) -> T:
    """Return the content of a JSON file; `instead` is the next step if it has another form.

    Raises:
        FileNotFoundError: it does not exist.
        HistoryError: it cannot be read, is not JSON, or has another form: field, value seen, value allowed.
    """
    try:
        return schema.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise HistoryError(f"{path} cannot be read ({error.strerror}); {instead}") from error
    except ValidationError as error:
        raise damage_error(path, error, instead=instead) from error


def damage_error(path: Path, error: ValidationError, *, instead: str, inside: str = "") -> HistoryError:
    """Return the first error of a file as ours; `inside` is the field that was validated."""
    first = error.errors(include_url=False)[0]
    field = ".".join([*([inside] if inside else []), *map(str, first["loc"])])
    message = sentence(first)
    if first["type"] == "json_invalid":
        return HistoryError(f"{path} is damaged ({message}); {instead}")
    if first["type"] == "missing":
        return HistoryError(f"{path} is damaged: {field} is missing; {instead}")
    allowed = message.replace("Input should be", "allowed is")
    return HistoryError(f"{path} is damaged: {field or 'it'} is {BRIEF.repr(first['input'])}, {allowed}; {instead}")


def sentence(error: ErrorDetails) -> str:
    """Return pydantic's description of an error; for a ValueError of ours, its own text."""
    return error["msg"].removeprefix("Value error, ")


def replace(path: Path, text: str, *, instead: str = "") -> None:
    """Write a file as a whole: a reader sees the new content or the old one.

    Raises:
        HistoryError: the file cannot be written; the message has `instead` as the next step, and no record is lost.
    """
    write_whole(path, text, instead=instead or f"make room there, or copy it, and judge it: sluice check {path.parent}")
