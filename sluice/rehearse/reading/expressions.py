"""CloudWatch metric math, read from its text as a tree of `sluice.declaration.metric_math`.

AWS documents no precedence. The usual one is assumed, from tight to loose: `^` (right-associative), unary minus, `* /`,
`+ -`, comparisons, `AND`, `OR` (left-associative).

AWS: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html (read 2026-11-23).
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from sluice.declaration.metric_math import (
    FUNCTIONS,
    STATISTICS,
    Combination,
    Fill,
    Function,
    If,
    Metric,
    Negation,
    Number,
    Operation,
    Period,
    Term,
)
from sluice.errors import ConfigError

_SPELLED = {"&&": "AND", "||": "OR"}
_GRAMMAR = r"""
    ?start: either
    ?either: both | either OR both -> operation
    ?both: comparison | both AND comparison -> operation
    ?comparison: total | comparison COMPARISON total -> operation
    ?total: product | total PLUS product -> operation | total MINUS product -> operation
    ?product: signed | product TIMES signed -> operation
    ?signed: power | MINUS signed -> negated
    ?power: value | value POWER signed -> operation
    ?value: NUMBER -> number
        | NAME -> metric
        | WORD "(" [argument ("," argument)*] ")" -> call
        | "(" either ")"
    ?argument: either | WORD -> word | "[" either ("," either)* "]" -> array

    OR.2: "OR" | "||"
    AND.2: "AND" | "&&"
    COMPARISON: "==" | "!=" | "<=" | ">=" | "<" | ">"
    PLUS: "+"
    MINUS: "-"
    TIMES: "*" | "/"
    POWER: "^"
    NUMBER: /\d+(\.\d*)?|\.\d+/
    NAME: /[a-z][A-Za-z0-9_]*/
    WORD: /[A-Z][A-Z0-9_]*/
    %ignore /\s+/
"""
_CALLS = (
    "FILL(series, REPEAT or LINEAR or a value)",
    "IF(condition, value)",
    "IF(condition, value, value)",
    "PERIOD(metric)",
    *(f"{name}(series)" for name in (*FUNCTIONS, *STATISTICS)),
    *(f"{name}([series, …])" for name in STATISTICS),
)
_NAMES = {
    "OR": "OR",
    "AND": "AND",
    "COMPARISON": "a comparison",
    "PLUS": "+",
    "MINUS": "-",
    "TIMES": "* or /",
    "POWER": "^",
    "NUMBER": "a number",
    "NAME": "an id",
    "WORD": "a function",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[",
    "RSQB": "]",
    "COMMA": "a comma",
    "$END": "the end",
}


def parse(text: str, expressions: Mapping[str, Term] | None = None) -> Term:
    """Return the tree of a metric math expression; `parse(term.text()) == term` for every term that is read here.

    Args:
        text: the expression as CloudWatch takes it.
        expressions: id -> term of the other expressions it may name, which are put in place of their ids.

    Raises:
        ConfigError: the text is not metric math, or a function is not evaluated here; one line with the position.
    """
    try:
        return _Reader(text, expressions or {}).term(_parser().parse(text))
    except UnexpectedToken as error:
        seen = repr(str(error.token)) if error.token else "the end"
        raise _refusal(text, error.pos_in_stream if error.token else len(text), seen, error.accepts or ()) from error
    except UnexpectedCharacters as error:
        raise _refusal(text, error.pos_in_stream, repr(error.char), error.allowed or ()) from error
    except RecursionError as error:
        raise _refusal(text, 0, "too deep a nesting", ()) from error


@functools.cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False)


def _refusal(text: str, position: int | None, seen: str, allowed: Iterable[str]) -> ConfigError:
    """Return the error for an expression's text: the position, what stands there, and what is allowed there."""
    words = ", ".join(sorted(_NAMES.get(name, name) for name in allowed)) or "metric math"
    return ConfigError(
        f"metric math {text!r}, character {(position or 0) + 1}: {seen} is not understood; allowed here: {words};"
        " correct the expression"
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Makes terms of a parsed expression."""

    text: str
    expressions: Mapping[str, Term]

    def term(self, tree: Tree[Token]) -> Term:
        """Return the term of a part of the tree; ids of other expressions are replaced by their terms."""
        children: list[Any] = tree.children
        match tree.data:
            case "number":
                return Number(float(children[0]))
            case "metric":
                return self.expressions.get(str(children[0]), Metric(str(children[0])))
            case "negated":
                return Negation(self.term(children[1]))
            case "operation":
                left, sign, right = children
                return Operation(self.term(left), _SPELLED.get(str(sign), str(sign)), self.term(right))
        return self._call(*children)

    def _call(self, name: Token, *arguments: Tree[Token]) -> Term:
        """Return the term of a function by the kinds of its arguments: terms, one array, or a term and a word."""
        kinds = tuple(argument.data if argument.data in {"array", "word"} else "term" for argument in arguments)
        match str(name), kinds:
            case "FILL", ("term", "word") if (word := str(arguments[1].children[0])) in {"REPEAT", "LINEAR"}:
                return Fill(self.term(arguments[0]), cast("Literal['REPEAT', 'LINEAR']", word))
            case "FILL", ("term", "term"):
                return Fill(*map(self.term, arguments))
            case "IF", ("term", "term") | ("term", "term", "term"):
                return If(*map(self.term, arguments))
            case "PERIOD", ("term",) if isinstance(metric := self.term(arguments[0]), Metric):
                return Period(metric)
            case function, ("term",) if function in {*FUNCTIONS, *STATISTICS}:
                return Function(function, self.term(arguments[0]))
            case statistic, ("array",) if statistic in STATISTICS:
                parts: list[Any] = arguments[0].children
                return Combination(statistic, tuple(map(self.term, parts)))
        forms = [form for form in _CALLS if form.startswith(f"{name}(")]
        names = {form.partition("(")[0] for form in _CALLS}
        raise _refusal(
            self.text, name.start_pos, f"{name} with these arguments" if forms else str(name), forms or names
        )
