"""Pack Sluice's wheel again from the installed files, so that a new project installs it from its own folder.

The name is not registered on PyPI: whoever registers it could run code in each image build that looks for it there.
Format: https://packaging.python.org/en/latest/specifications/binary-distribution-format/ (read 2026-11-26).
"""

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

_NAME = "sluice-fifo"
_FOLDER = Path(__file__).resolve().parents[3]
_PACKAGES = ("contract_tests", "sluice", "spark_load")
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")
_FILE_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file; a fixed one makes equal wheels of equal files


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder, and beside it `requirements.txt` with its hash; return the wheel."""
    version = distribution(_NAME).version
    stem = f"{_NAME.replace('-', '_')}-{version}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    records = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _contents(stem):
            archive.writestr(_entry(name), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            records.append(f"{name},sha256={digest},{len(content)}\n")
        record = f"{stem}.dist-info/RECORD"
        archive.writestr(_entry(record), "".join([*records, f"{record},,\n"]))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "requirements.txt").write_text(f"{_NAME}=={version} --hash=sha256:{digest}\n", encoding="utf-8")
    return wheel


def _contents(stem: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name in the wheel and the content of each file, without Python's compiled files."""
    for package in _PACKAGES:
        for file in sorted((_FOLDER / package).rglob("*")):
            if file.is_file() and file.parent.name != "__pycache__":
                yield file.relative_to(_FOLDER).as_posix(), file.read_bytes()
    installed = distribution(_NAME)
    for name in _METADATA:
        text = installed.read_text(name)
        if text is not None:
            yield f"{stem}.dist-info/{name}", text.encode()


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a file's entry in the zip: compressed, with fixed time and permissions."""
    entry = zipfile.ZipInfo(name, _FILE_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16  # Unix permissions are the upper sixteen bits
    return entry
