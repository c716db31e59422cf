"""Check the zip package of a Lambda function: a folder that the project builds of its locked packages before synth.

CDK zips and hashes the folder; neither synth nor deployment needs Docker. A wrong package is refused at synth, and not
found by the first invocation.
"""

from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

from sluice import limits
from sluice.constructs.services.images import module_file
from sluice.declaration import Consumer, Lambda
from sluice.declaration.fields.image import Architecture
from sluice.declaration.validation import require

PYTHON = (3, 13)
"""The version of Python in Lambda's runtime, and the one that the package's wheels are built for."""
_MACHINES = {Architecture.ARM64: "aarch64", Architecture.X86_64: "x86_64"}


def require_package(consumer: Consumer, declared: Lambda, folder: Path, *, architecture: Architecture) -> None:
    """Refuse a folder that is too large for Lambda, or whose function could not import Sluice, handlers or entry point.

    AWS: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html (250 MB unzipped) and
    https://docs.aws.amazon.com/lambda/latest/dg/python-package.html (read 2026-11-27). Tags of wheels:
    https://packaging.python.org/en/latest/specifications/binary-distribution-format/ (read 2026-11-27).

    Raises:
        ConfigError: the folder is not there, lacks Sluice, the handlers or the entry point, is too large, or holds a
            wheel for other processors or for another Python.
    """
    machine, build = _MACHINES[architecture], "build it with `make package`"

    def require_that(is_met: object, allowed: str) -> None:
        require(consumer, is_met, field="runtime", seen=f"Lambda(package={str(folder)!r})", allowed=allowed)

    require_that(folder.is_dir(), f"a folder that is there; {build}")
    require_that((folder / "sluice" / "messaging").is_dir(), f"a folder that holds the package sluice; {build}")
    own = None if declared.entry_point is None else declared.entry_point.rpartition(".")[0]
    for module in filter(None, (consumer.handlers, own)):
        is_there = module_file(module, [folder]) is not None
        require_that(is_there, f"a folder that holds the module {module}; copy it there, or {build}")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    require_that(
        size <= limits.FUNCTION_PACKAGE_BYTES_MAX,
        f"at most {limits.FUNCTION_PACKAGE_BYTES_MAX:,} bytes, and it has {size:,}; leave packages out, or declare"
        " Lambda without a package, which takes the image",
    )
    wrong = sorted({wheel for wheel, tags in _wheels(folder) if not any(_fits(tag, machine) for tag in tags)})
    require_that(
        not wrong,
        f"wheels for Python {'.'.join(map(str, PYTHON))} on {machine}, and {', '.join(wrong)} is for another; {build}",
    )


def _wheels(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each wheel that is installed in a folder, and its tags, such as cp313-abi3-linux_x86_64."""
    for file in sorted(folder.glob("*.dist-info/WHEEL")):
        tags = HeaderParser().parsestr(file.read_text(encoding="utf-8")).get_all("Tag", [])
        if tags:
            yield file.parent.name.removesuffix(".dist-info"), tags


def _fits(tag: str, machine: str) -> bool:
    """Return whether a wheel with this tag runs on a machine such as `aarch64`, with the runtime's Python."""
    python, abi, platform = tag.split("-", 2)
    own = f"cp{PYTHON[0]}{PYTHON[1]}"
    is_python = abi in ("abi3", "none") or own in python.split(".")
    return is_python and (platform == "any" or platform.endswith(f"_{machine}"))
