"""Hooks of MkDocs (`mkdocs.yml`), which calls them by name when `make site` builds the pages of docs/.

They add a page of the API reference for each package that a user imports from, with the names in its `__all__`; other
names are private. A link to a file outside docs/ becomes text, since the site has no such page; any other link without
a target fails the build.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.language import PUBLIC, listed_names

_PROJECT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of the API reference, and a page that lists them."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (installed for the site alone)

    pages = {f"api/{package}.md": "\n".join(_reference(package)) for package in PUBLIC}
    links = "\n".join(f"- [`{package}`]({package}.md)" for package in PUBLIC)
    pages["api/index.md"] = (
        f"# API reference\n\nThe packages that you import from. Every other name is private.\n\n{links}\n"
    )
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with its links out of docs/ replaced by their text."""
    folder = posixpath.dirname(page.file.src_uri)

    def keep_inner_link(link: re.Match[str]) -> str:
        is_outside = posixpath.normpath(posixpath.join(folder, link[2])).startswith("..")
        return link[1] if is_outside else link[0]

    return _LINK.sub(keep_inner_link, markdown)


def _reference(package: str) -> Iterator[str]:
    """Yield the parts of a package's page in Markdown; `:::` lets mkdocstrings insert the docstring of a name."""
    source = _PROJECT / package.replace(".", "/") / "__init__.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    yield f"# {package}\n\n{ast.get_docstring(tree)}\n"
    for name in sorted(listed_names(tree)):
        yield f"::: {package}.{name}\n"
