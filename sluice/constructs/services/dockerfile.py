"""Tell from a Dockerfile's text whether its image has a file of the build context.

COPY and ADD are understood, in both forms, with continuation lines, wildcards and here-documents, in the last stage and
in the stages that it is based on. FROM may name an ARG with a default. Unknown is what is copied from another stage or
a URL, or depends on other variables or on a mount.
Reference: https://docs.docker.com/reference/dockerfile/ (read 2026-11-23).
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple


class _Instruction(NamedTuple):
    name: str
    rest: str


def copies(text: str, file: PurePosixPath) -> bool | None:
    """Return whether a Dockerfile copies a file of the build context into its image; None where that is unknown.

    Args:
        text: the Dockerfile.
        file: relative to the context.
    """
    return _any(_has(instruction, file) for instruction in _last_stage(text))


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    """Return True if a verdict is True, else None if one is None (unknown), else False."""
    found = set(verdicts)
    if True in found:
        return True
    return None if None in found else False


def _last_stage(text: str) -> list[_Instruction]:
    """Return the instructions of the last stage, after those of the stages that it is based on."""
    stages: dict[str, list[_Instruction]] = {}
    stage: list[_Instruction] = []
    defaults: dict[str, str] = {}  # values of each ARG before the first FROM, which each FROM may use
    for instruction in _instructions(text):
        if instruction.name == "ARG" and not stage:
            name, _, default = instruction.rest.partition("=")
            defaults |= {f"${{{name}}}": default} if default else {}
        elif instruction.name == "FROM":
            rest = instruction.rest
            for name, default in defaults.items():
                rest = rest.replace(name, default)
            from_instruction = _Instruction("FROM", rest)
            words = [word for word in rest.lower().split() if not word.startswith("--")]
            stage = [inherited for image in words[:1] for inherited in stages.get(image, [from_instruction])]
            stages |= dict.fromkeys(words[2:], stage)  # FROM IMAGE AS NAME
        else:
            stage.append(instruction)
    return stage


def _instructions(text: str) -> Iterator[_Instruction]:
    """Yield the instructions of a Dockerfile, with continuation lines joined, without comments and here-documents."""
    directive = re.match(r"(?:#.*\n)*?#\s*escape\s*=\s*`", text, re.IGNORECASE)
    escape, whole = "`" if directive else "\\", ""
    lines = iter(text.splitlines())
    for line in lines:
        part = line.strip()
        if not part or part.startswith("#"):
            continue
        whole += part.removesuffix(escape)
        if part.endswith(escape):
            continue
        name, rest = (*whole.split(maxsplit=1), "")[:2]
        whole = ""
        yield _Instruction(name.upper(), rest)
        for end_word in re.findall(r"<<-?[\"']?(\w+)", rest):
            while next(lines, end_word).strip() != end_word:
                pass  # a line of a here-document


def _has(instruction: _Instruction, file: PurePosixPath) -> bool | None:
    """Return whether an instruction brings a file into the image; None where that is unknown."""
    name, rest = instruction
    if name == "FROM":  # an unknown variable in place of a whole image may name an earlier stage
        return None if "$" in rest and ":" not in re.sub(r"\$\{.*?\}", "", rest) else False
    if name not in ("COPY", "ADD"):
        return None if name == "RUN" and "--mount" in rest else False
    flags, arguments = re.fullmatch(r"((?:--\S+\s+)*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
    if "--from" in flags or "--exclude" in flags:
        return None
    try:
        *sources, _ = json.loads(arguments) if arguments.startswith("[") else arguments.split()
    except ValueError:
        return None
    return _any(_covers(source, file, is_add=name == "ADD") for source in sources)


def _covers(source: str, file: PurePosixPath, *, is_add: bool) -> bool | None:
    """Return whether a source is a file of the context, or a folder above it."""
    if "$" in source or "**" in source or source.startswith("<<"):
        return None
    if is_add and ("://" in source or source.startswith("git@") or ".tar" in source):
        return None  # ADD unpacks archives
    pattern = PurePosixPath(posixpath.normpath(f"/{source}")).parts[1:]  # `..` cannot leave the context
    return len(pattern) <= len(file.parts) and all(map(fnmatchcase, file.parts, pattern))
