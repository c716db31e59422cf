"""The files that a Dockerfile copies into its image, as far as its text tells.

Read are COPY and ADD of the last stage and of the stages that it begins with, in both forms, with continuations,
wildcards and here-documents; FROM may name an ARG that has a default. What comes from another stage, from elsewhere or
through another variable or a mount is not known.
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
    """Return whether the image of a Dockerfile holds a file of the build context; None where its text does not tell.

    Args:
        text: the Dockerfile.
        file: relative to the context.
    """
    return _any(_has(instruction, file) for instruction in _last_stage(text))


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    found = set(verdicts)
    return True if True in found else None if None in found else False


def _last_stage(text: str) -> list[_Instruction]:
    stages: dict[str, list[_Instruction]] = {}
    stage: list[_Instruction] = []
    defaults: dict[str, str] = {}  # of ARG before the first FROM, which every FROM may name
    for instruction in _instructions(text):
        if instruction.name == "ARG" and not stage:
            name, _, default = instruction.rest.partition("=")
            defaults |= {f"${{{name}}}": default} if default else {}
        elif instruction.name == "FROM":
            rest = instruction.rest
            for name, default in defaults.items():
                rest = rest.replace(name, default)
            begun = _Instruction("FROM", rest)
            words = [word for word in rest.lower().split() if not word.startswith("--")]
            stage = [copied for image in words[:1] for copied in stages.get(image, [begun])]
            stages |= dict.fromkeys(words[2:], stage)  # after AS
        else:
            stage.append(instruction)
    return stage


def _instructions(text: str) -> Iterator[_Instruction]:
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
        for ends_at in re.findall(r"<<-?[\"']?(\w+)", rest):
            while next(lines, ends_at).strip() != ends_at:
                pass


def _has(instruction: _Instruction, file: PurePosixPath) -> bool | None:
    name, rest = instruction
    if name == "FROM":  # a variable alone may name a stage
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
        return None  # unpacked there
    pattern = PurePosixPath(posixpath.normpath(f"/{source}")).parts[1:]  # nothing is above the context
    return len(pattern) <= len(file.parts) and all(map(fnmatchcase, file.parts, pattern))
