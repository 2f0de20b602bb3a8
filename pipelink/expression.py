"""Expressions over facts: they compute, they do not execute."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Mapping

from simpleeval import InvalidExpression, NameNotDefined, SimpleEval

from pipelink.abi import MAX_EXPRESSION
from pipelink.diagnostics import PipeLinkError

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BOUND = 1 << 63
# Whatever is not here is refused before it is evaluated: attributes, calls, texts, subscripts.
_NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Name)
_PARTS = (*_NODES, *_OPERATORS, ast.And, ast.Or, ast.Load)


class ExpressionError(PipeLinkError):
    """The text is no expression, or has no value; the message is a clause."""


def names(text: str) -> frozenset[str]:
    """The facts that an expression reads."""
    return frozenset(node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name))


def evaluate(text: str, facts: Mapping[str, int]) -> int:
    """The integer value of `text`; conditions give 0 or 1."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if text in facts:
        return facts[text]
    _parse(text)
    try:
        value = SimpleEval(operators=_OPERATORS, functions={}, names=dict(facts)).eval(text)
    except NameNotDefined as error:
        raise ExpressionError(f"{_shown(text)} reads '{error.name}', which has no value") from error
    except ZeroDivisionError as error:
        raise ExpressionError(f"{_shown(text)} divides by zero") from error
    except (InvalidExpression, ArithmeticError, TypeError, KeyError) as error:
        raise ExpressionError(f"{_shown(text)} can't be computed: {error}") from error
    except RecursionError as error:
        raise ExpressionError(f"{_shown(text)} is nested too deeply") from error
    if not isinstance(value, int) or abs(value) >= _BOUND:
        raise ExpressionError(f"{_shown(text)} is no 64-bit integer")
    return int(value)


def _parse(text: str) -> ast.Expression:
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(
            f"an expression of {len(text)} characters, {MAX_EXPRESSION} at most"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{_shown(text)} is no expression") from error
    for node in ast.walk(tree):
        foreign = isinstance(node, ast.Constant) and type(node.value) is not int
        if foreign or not isinstance(node, _PARTS):
            raise ExpressionError(
                f"{_shown(text)} is more than integers, facts, + - * // %, comparisons, and, or"
            )
    return tree


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 80 else f"'{text[:77]}...'"
