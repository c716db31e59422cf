"""Find the history in the folder that a user names, and require that it is one."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from sluice.errors import ConfigError, HistoryError
from sluice.history.events import SCHEMA_VERSION
from sluice.judge.folder.layout import HISTORY, JOURNALS
from sluice.judge.reading import checksums
from sluice.judge.reading.damage import UNREADABLE, reason
from sluice.recorder.journal import SCHEMA, SUFFIX

_TYPES = {"int64": "INT64", "int32": "INT32", "bool": "BOOLEAN", "string": "BYTE_ARRAY (String)"}


def require_history(root: Path) -> None:
    """Raise ConfigError if the folder has no history, HistoryError if its columns are wrong.

    Called before the slow reading.
    """
    if not root.is_dir():
        raise ConfigError(f"{root} is {'a file' if root.exists() else 'not there'}, allowed is a history's folder")
    if not _folders(root):
        raise ConfigError(f"{root} holds no history, allowed are journals (*{SUFFIX}) or Parquet; name another folder")
    folder = folder_of(root)
    if not is_journals(folder):
        for path in sorted(folder.glob("*.parquet")):
            _check_columns(path)


def _check_columns(path: Path) -> None:
    try:
        checksums.require(path)
        schema = pq.read_metadata(path).schema
        columns = [schema.column(index) for index in range(len(schema))]
        found = {column.path: _type(column) for column in columns}
    except UNREADABLE as error:
        raise HistoryError(
            f"{path.parent} is not a history of Sluice: {path.name} is not Parquet ({reason(error)});"
            " copy it again, or leave it out"
        ) from error
    repeated = [name for name, count in Counter(column.path for column in columns).items() if count > 1]
    if repeated:
        raise HistoryError(
            f"{path.parent} is not a history of Sluice: {path.name} has {repeated[0]!r} more than once; write it once"
        )
    missing = [name for name in SCHEMA.names if name not in found]
    if missing:
        raise HistoryError(
            f"{path.parent} has other columns than a history of Sluice, version {SCHEMA_VERSION}:"
            f" {len(missing)} are missing, first {missing[0]!r}; name another folder"
        )
    for field_ in SCHEMA:
        if found[field_.name] != (allowed := _TYPES[str(field_.type)]):
            raise HistoryError(
                f"{path.parent} is not a history of Sluice: {field_.name} in {path.name} is {found[field_.name]},"
                f" allowed is {allowed}; write it as that"
            )


def _type(column: pq.ColumnSchema) -> str:
    """Return the type of a column in Parquet's own words: its physical and its logical type."""
    intended = str(column.logical_type).partition("(")[0]
    stored = f"list of {column.physical_type}" if column.max_repetition_level else str(column.physical_type)
    return stored if intended == "None" else f"{stored} ({intended})"


def _folders(root: Path) -> list[Path]:
    """Return the folders with journals; without any, those with Parquet files, which are made of journals."""
    journals = [folder for folder in (root, root / JOURNALS) if is_journals(folder)]
    return journals or [folder for folder in (root, root / HISTORY) if any(folder.glob("*.parquet"))]


def folder_of(root: Path) -> Path:
    """Return the folder from which a history is read; `require_history` has made sure that there is one."""
    return _folders(root)[0]


def is_journals(folder: Path) -> bool:
    """Return whether the folder holds journals."""
    return bool(journals_in(folder))


def journals_in(folder: Path) -> list[Path]:
    """Return the journals of a folder."""
    return sorted(folder.glob(f"*{SUFFIX}"))
