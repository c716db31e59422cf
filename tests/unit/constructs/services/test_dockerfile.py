"""The text of a Dockerfile tells whether it copies a file into its image, or leaves it open."""

from pathlib import PurePosixPath

import pytest

from sluice.constructs.services.dockerfile import copies

FILE = PurePosixPath("orders/services/billing.py")
HOLDS = {
    "its folder": "FROM python:3.13\nCOPY orders orders/",
    "the whole context": "FROM python:3.13\nCOPY . .",
    "from the context's root": "FROM python:3.13\nCOPY /orders /app/",
    "never from above the context": "FROM python:3.13\nCOPY ../orders /app/",
    "the file": "FROM python:3.13\ncopy ./orders/services/billing.py /app/",
    "in a list": 'FROM python:3.13\nCOPY --chown=10001:10001 ["lock", "orders", "/app/"]',
    "with flags": "FROM python:3.13\nCOPY --link --chmod=0644 orders orders/",
    "as one of several, continued": "FROM python:3.13\nCOPY lock \\\n  # why\n\n  orders \\\n  /app/",
    "continued with another escape": "# syntax=docker/dockerfile:1\n# escape=`\nFROM python\nCOPY `\n  orders /app/",
    "by a wildcard": "FROM python:3.13\nCOPY ord*s/services/*.py /app/",
    "by ADD": "FROM python:3.13\nADD orders /app/",
    "in the stage that the last one begins with": "FROM python:3.13 AS base\nCOPY orders /app/\nFROM base\nUSER 10001",
    "in the stage that an argument's default names": "ARG OF=base\nFROM p AS base\nCOPY orders /a/\nFROM ${OF}",
    "among what is not known": "FROM python:3.13\nCOPY --from=build / /\nCOPY $MORE /app/\nCOPY orders /app/",
}
LACKS = {
    "nothing is copied": "FROM python:${VERSION}-slim\nRUN pip install orders",
    "another folder": "FROM python:3.13\nCOPY shipping orders/services/",
    "a folder whose name begins with its own": "FROM python:3.13\nCOPY order orders/",
    "another file": "FROM python:3.13\nCOPY orders/services/audit.py orders/services/",
    "something deeper": "FROM python:3.13\nCOPY orders/*/*/templates orders/",
    "a wildcard for one level": "FROM python:3.13\nCOPY orders/*.py /app/",
    "in a comment": "FROM python:3.13\n# COPY orders orders/",
    "in what an argument's default names": "ARG BASE=python:3.13\nFROM ${BASE}\nCOPY lock orders/",
    "in another stage": "FROM python:3.13 AS build\nCOPY orders orders/\nFROM python:3.13\nUSER 10001",
    "in what a here-document runs": "FROM python:3.13\nRUN <<EOF\nCOPY orders orders/\nEOF\nCOPY lock /app/",
    "no Dockerfile at all": "FROM",
}
OPEN = {
    "from another stage": "FROM python:3.13\nCOPY --from=build /app /app",
    "all but": "FROM python:3.13\nCOPY --exclude=*.md orders orders/",
    "a variable": "FROM python:3.13\nCOPY ${SOURCE} /app/",
    "a variable that may name a stage": "FROM $BASE\nCOPY lock /app/",
    "an argument without a default": "ARG BASE\nFROM ${BASE}\nCOPY lock /app/",
    "any depth": "FROM python:3.13\nCOPY **/*.py /app/",
    "a mount": "FROM python:3.13\nRUN --mount=type=bind,target=/src pip install /src",
    "from elsewhere": "FROM python:3.13\nADD https://example.com/orders.git /app/",
    "an archive": "FROM python:3.13\nADD dist/orders.tar.gz /app/",
    "no list": "FROM python:3.13\nCOPY [orders, /app/]",
}


@pytest.mark.parametrize("case", [*HOLDS, *LACKS, *OPEN])
def test_copied_files_of_a_dockerfile_are_found(case: str) -> None:
    expected = True if case in HOLDS else None if case in OPEN else False

    assert copies({**HOLDS, **LACKS, **OPEN}[case], FILE) is expected
