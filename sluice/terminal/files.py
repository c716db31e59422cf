"""Files that a command writes: refused before their content is computed, and written as a whole."""

import tempfile
from pathlib import Path

from sluice.errors import HistoryError, unwritable


def require_writable(file: Path, option: str) -> None:
    """Refuse a file whose folder cannot be written to. A command calls it before it computes the file's content.

    Raises:
        ConfigError: the folder cannot be written to; the message names the option that gives the file.
        HistoryError: the disk is full or broken.
    """
    try:
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise unwritable(file, error, f"name a file in a folder that can be written, with {option}") from error


def write_whole(path: Path, text: str, *, instead: str) -> None:
    """Write a file as a whole: a reader sees all of it, or what was there before.

    Raises:
        HistoryError: the file cannot be written; `instead` is the next step, which ends the message.
    """
    draft = path.with_name(f".{path.name}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise HistoryError(f"cannot write {path} ({error.strerror}); {instead}") from error
