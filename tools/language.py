"""Count the names and docstrings that break the rules of language: `python -m tools.language`, a part of `make lint`.

A function is a verb or says what it returns. A *participle name* begins with a participle and does not go on with a
noun: `_written`, `_moved_from`, `sent_to`. Before a noun a participle is an adjective: `delayed_messages`. A second
word counts as a noun unless it is one of `_NO_NOUN`: prepositions, adverbs and conjunctions. Verbs whose base form
looks like a participle are verbs: `run`, `put`, `set`, `read`, `cut`, `split`.

A module and a folder are nouns: their names neither end with a participle nor begin with a preposition. A class has one
meaning in the whole repository: tests and benchmarks give their own classes other names than the product's. The
rules for classes hold for type aliases.

A name in back-quotes of a docstring has to exist: in the code, in a string of it, in another file, or in a path.
Otherwise it is stale.

`--list` prints every place. `--draw SEED` prints twenty functions, docstrings and tests for a reader who has never seen
this repository; the same seed draws the same ones of the same files.
"""

import argparse
import ast
import builtins
import gc
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1]
_PRODUCT = ("contract_tests", "emulator", "sluice", "spark_load", "stacks", "tools")
_EXAMPLES = "sluice/templates/"  # for new projects, whose classes have common names: `Base`, `Order`
_TESTS = ("benchmarks", "tests")
PUBLIC = (
    *("contract_tests.promises", "sluice.declaration", "sluice.messaging"),
    *("sluice.recorder", "sluice.saboteurs", "sluice.testing"),
)
"""The packages a user imports from; their `__all__` lists the public interface."""
LIMITS = {
    "participle functions": 2,
    "participle classes": 0,
    "participle modules": 0,
    "empty docstrings": 0,
    "docstrings that begin with a question word": 0,
    "tests named test_what": 0,
    "tests named in more than twelve words": 0,
    "public names with two definitions": 0,
    "classes of the product whose name tests or benchmarks give to others": 0,
    "names in back-quotes that are nowhere": 0,
    "asserts that compare several facts at once": 0,
}
"""The most places of each kind. A limit is the number that was reached; it may be lowered, never raised."""
_IRREGULAR = re.compile(
    r"""begun|bent|borne|bought|bound|broken|brought|built|burnt|caught|chosen|dealt|done|drawn|driven|dug|eaten|fallen
    |fed|felt|forbidden|forgotten|fought|found|frozen|given|gone|got|gotten|grown|heard|held|hidden|hung|kept|known|laid
    |learnt|led|left|lent|lost|made|meant|met|overwritten|paid|rebuilt|redone|said|seen|sent|shown|shrunk|slept|sold
    |sought|spent|spoken|stolen|stood|struck|stuck|sworn|swung|taken|taught|thought|thrown|told|torn|understood|undone
    |withheld|won|worn|wound|written""",
    re.VERBOSE,
)
_NO_PARTICIPLE = re.compile("embed|exceed|feed|indeed|need|proceed|red|seed|shed|speed|succeed")
_NO_NOUN = re.compile(
    r"""after|again|and|apart|as|at|away|back|before|but|by|down|elsewhere|empty|for|from|in|into|of|off|on|only|or|out
    |over|since|through|to|until|up|with""",
    re.VERBOSE,
)
_PREPOSITIONS = {"at", "by", "for", "from", "in", "of", "on", "to", "with"}
_QUOTED = re.compile(r"`((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\([^`]*\))?`")
_COMMENT = re.compile(r"(^|  )#.*", re.MULTILINE)
_OF_OTHERS = {"ddmin", "greenlet", "last_insert_rowid"}  # an algorithm, a package, a function of SQLite
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_QUESTION = re.compile(r"(how|so long|what|whatever|where|whether|who|whoever)\b", re.IGNORECASE)
_OWN_PATH = "tools/language.py"  # its docstrings quote names that break the rules
_BYTES_MAX = 400_000
_WORDS_MAX = 12  # in the name of a test, without `test` itself
_ID = re.compile(r"[A-Z]+-?\d*[.:]?")

type AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
type AnyType = ast.ClassDef | ast.TypeAlias
type Definition = AnyFunction | ast.ClassDef
type Nodes = Sequence[ast.AST]
"""A module and all its statements, the module first; of the names in expressions, the text is read."""


def is_participle(word: str) -> bool:
    """Return whether a lower-case word is the past participle of a verb."""
    is_regular = word.endswith("ed") and not _NO_PARTICIPLE.fullmatch(word)
    return is_regular or _IRREGULAR.fullmatch(word) is not None


def is_participle_function(name: str) -> bool:
    """Return whether a function's name begins with a participle that is no adjective before a noun."""
    first, *others = [*name.strip("_").split("_"), ""][:2]
    has_noun = others != [""] and not _NO_NOUN.fullmatch(others[0])
    return not name.startswith("__") and is_participle(first) and not has_noun


def is_participle_class(name: str) -> bool:
    """Return whether a class's name ends with a participle: `Timed`, `HoldLost`."""
    words = _WORDS.findall(name)
    return bool(words) and is_participle(words[-1].lower())


def is_participle_module(name: str) -> bool:
    """Return whether the name of a module or folder ends with a participle, or begins with a preposition."""
    words = name.removeprefix("test_").strip("_").split("_")
    return is_participle(words[-1]) or (len(words) > 1 and words[0] in _PREPOSITIONS)


def is_empty(docstring: str) -> bool:
    """Return whether a docstring says nothing, or only repeats an id: `A1.`."""
    return _ID.fullmatch(docstring.strip()) is not None or not docstring.strip(" .")


def count(files: Mapping[str, str], others: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the places that break a rule, by the rule's name in `LIMITS`.

    Args:
        files: the source of each file, by its path.
        others: names from other places than these files, which a docstring may quote.
    """
    found: dict[str, list[str]] = {kind: [] for kind in LIMITS}
    trees = {path: _statements(text) for path, text in files.items()}
    for path, nodes in trees.items():
        for kind, place in _places(path, nodes):
            found[kind].append(place)
    found["participle modules"] = sorted({part for path in files for part in _misnamed_parts(path)})
    found["public names with two definitions"] = _doubled_public_names(trees)
    found["classes of the product whose name tests or benchmarks give to others"] = _doubled_types(trees)
    found["names in back-quotes that are nowhere"] = _stale_names(files, trees, others)
    return found


def _statements(text: str) -> Nodes:
    nodes: list[ast.AST] = [ast.parse(text)]
    for node in nodes:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, field, ())
    return nodes


def _doubled_public_names(trees: Mapping[str, Nodes]) -> list[str]:
    """Return the places of each listed name that is defined more than once in the product."""
    public, listed = defaultdict[str, list[str]](list), set[str]()
    for path, (module, *_) in trees.items():
        assert isinstance(module, ast.Module), "a walk begins at its root"
        for top in module.body if path.startswith(_PRODUCT) else []:
            if isinstance(top, ast.ClassDef | ast.FunctionDef | ast.TypeAlias) and _is_importable(top):
                public[_name(top)].append(f"{path}:{top.lineno}: {_name(top)}")
        if path.removesuffix("/__init__.py").replace("/", ".") in PUBLIC:
            listed |= listed_names(module)
    return [place for name in sorted(listed) if len(public[name]) > 1 for place in public[name]]


def _doubled_types(trees: Mapping[str, Nodes]) -> list[str]:
    """Return the places of each class of tests and benchmarks whose name is one of the product's."""
    product, own = set[str](), list[tuple[str, str]]()
    for path, nodes in trees.items():
        for node in _types(nodes):
            if path.startswith(_TESTS):
                own.append((_name(node), f"{path}:{node.lineno}: {_name(node)}"))
            elif path.startswith(_PRODUCT) and not path.startswith(_EXAMPLES):
                product.add(_name(node))
    return [place for name, place in own if name in product and not name.startswith("_")]


def _misnamed_parts(path: str) -> Iterator[str]:
    """Yield the path up to each folder or module that is no noun."""
    parts = path.removesuffix(".py").split("/")
    for count, part in enumerate(parts, start=1):
        if is_participle_module(part):
            yield "/".join(parts[:count])


def _stale_names(files: Mapping[str, str], trees: Mapping[str, Nodes], others: Iterable[str]) -> list[str]:
    """Return the places of names that a docstring has in back-quotes and that are in no code, string or path."""
    known, quoted = {*_OF_OTHERS, *dir(builtins), *others}, list[tuple[str, str]]()
    for path, nodes in trees.items():
        lines = _COMMENT.sub("", files[path]).split("\n")
        for node in nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
                docstring := ast.get_docstring(node)
            ):
                first = node.body[0]
                lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)  # type: ignore[operator]
                place = f"{path}:{getattr(node, 'lineno', 1)}"
                quoted += [] if path == _OWN_PATH else [(place, name) for name in _QUOTED.findall(docstring)]
        known.update(re.split(r"[/.]", path), re.findall(r"\w+", "\n".join(lines)))
    return [f"{place}: {name}" for place, name in quoted if not known.issuperset(name.split("."))]


def draw(files: Mapping[str, str], seed: int) -> Iterator[str]:
    """Yield twenty functions, twenty docstrings and twenty tests, drawn at random, each with its place."""
    rng = random.Random(seed)  # noqa: S311
    kinds: dict[str, list[str]] = {"functions": [], "docstrings": [], "tests": []}
    for path, text in files.items():
        for definition in _definitions(ast.walk(ast.parse(text))):
            place = f"{path}:{definition.lineno}: {definition.name}"
            docstring = ast.get_docstring(definition)
            if isinstance(definition, ast.ClassDef) or not definition.name.startswith("test_"):
                kinds["functions"] += [] if isinstance(definition, ast.ClassDef) else [place]
                kinds["docstrings"] += [f"{place}\n    {docstring.splitlines()[0]}"] if docstring else []
            else:
                kinds["tests"].append(place)
    for kind, places in kinds.items():
        yield f"# {kind}"
        yield from rng.sample(places, 20)


def sources() -> dict[str, str]:
    """Return the text of every Python file that git has, by its path."""
    paths = subprocess.run(["git", "ls-files", "*.py"], cwd=_PROJECT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    return {
        path: (_PROJECT / path).read_text(encoding="utf-8") for path in paths.split() if (_PROJECT / path).is_file()
    }


def names_elsewhere() -> set[str]:
    """Return the words of all paths in git, and of all small files that are neither Python nor documentation."""
    paths = subprocess.run(["git", "ls-files"], cwd=_PROJECT, capture_output=True, text=True, check=True).stdout  # noqa: S607
    names = set(re.findall(r"\w+", paths))
    for path in map(_PROJECT.joinpath, paths.split()):
        if path.suffix not in (".md", ".py", ".html") and path.is_file() and path.stat().st_size < _BYTES_MAX:
            names.update(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace")))
    return names


def main(arguments: list[str]) -> int:
    """Print the counts, and return 1 if one is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m tools.language")
    parser.add_argument("--list", action="store_true", help="print every place")
    parser.add_argument("--draw", type=int, metavar="SEED", help="print twenty functions, docstrings and tests")
    options = parser.parse_args(arguments)
    gc.disable()  # a million nodes without a circle
    files = sources()
    if options.draw is not None:
        print(*draw(files, options.draw), sep="\n")
        return 0
    found = count(files, names_elsewhere())
    for kind, places in found.items():
        is_above = len(places) > LIMITS[kind]
        if is_above or options.list:
            print(*places, sep="\n")
        print(f"{kind}: {len(places)}, allowed are {LIMITS[kind]}{'; rename what is new' if is_above else ''}")
    return int(any(len(places) > LIMITS[kind] for kind, places in found.items()))


def _places(path: str, nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Yield the rule and the place of each fault in a file."""
    module = nodes[0]
    assert isinstance(module, ast.Module), "a walk begins at its root"
    for kind in _docstring_faults(ast.get_docstring(module) or "A module may have none."):
        yield kind, f"{path}:1"
    for definition in _definitions(nodes):
        for kind in _faults(definition):
            yield kind, f"{path}:{definition.lineno}: {definition.name}"
    for made in _types(nodes):
        if is_participle_class(_name(made)):
            yield "participle classes", f"{path}:{made.lineno}: {_name(made)}"
    for node in nodes:
        if isinstance(node, ast.Assert) and _compares_tuples(node.test):
            yield "asserts that compare several facts at once", f"{path}:{node.lineno}"


def _compares_tuples(test: ast.expr) -> bool:
    """Return whether an assert compares two tuples, as in `(a, b) == (1, 2)`: these are two facts."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.left, ast.Tuple)
        and isinstance(test.comparators[0], ast.Tuple)
    )


def _faults(definition: Definition) -> Iterator[str]:
    docstring = ast.get_docstring(definition)
    if docstring is not None:
        yield from _docstring_faults(docstring)
    if isinstance(definition, ast.ClassDef):
        return
    if definition.name.startswith("test_what_"):
        yield "tests named test_what"
    elif definition.name.startswith("test_") and definition.name.count("_") > _WORDS_MAX:
        yield "tests named in more than twelve words"
    elif is_participle_function(definition.name):
        yield "participle functions"


def _docstring_faults(docstring: str) -> Iterator[str]:
    if is_empty(docstring):
        yield "empty docstrings"
    if _QUESTION.match(docstring):
        yield "docstrings that begin with a question word"


def _name(node: Definition | ast.TypeAlias) -> str:
    return node.name.id if isinstance(node, ast.TypeAlias) else node.name


def _is_importable(node: Definition | ast.TypeAlias) -> bool:
    """Return whether users import a name. They do not import commands and fixtures; overloads are not definitions."""
    decorators = "" if isinstance(node, ast.TypeAlias) else " ".join(map(ast.unparse, node.decorator_list))
    others = ("click.command", "fixture", "overload")
    return not _name(node).startswith("_") and not any(other in decorators for other in others)


def _definitions(nodes: Iterable[ast.AST]) -> Iterable[Definition]:
    return (node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))


def _types(nodes: Iterable[ast.AST]) -> Iterable[AnyType]:
    return (node for node in nodes if isinstance(node, ast.ClassDef | ast.TypeAlias))


def listed_names(tree: ast.Module) -> set[str]:
    """Return the names in a module's `__all__`."""
    return {
        str(name.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.walk(node.value)
        if isinstance(name, ast.Constant)
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
