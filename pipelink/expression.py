"""Expressions over facts: they compute, they do not execute.

The value is the one that C++ computes of the same expression in the owner's code: 64-bit integers,
`//` and `%` round towards zero, `and` and `or` give a truth. Texts can be compared and nothing else.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from simpleeval import InvalidExpression, NameNotDefined, SimpleEval

from pipelink.abi import MAX_EXPRESSION, Value
from pipelink.diagnostics import PipeLinkError

_BOUND = 1 << 63


class ExpressionError(PipeLinkError):
    """The text is no expression, or has no value; the message is a clause."""


def _number(value: Value) -> int:
    if isinstance(value, str):
        raise TypeError(f"the text '{value[:40]}' is no number")
    return int(value)


def _arithmetic(compute: Callable[[int, int], int]) -> Callable[[Value, Value], int]:
    def checked(left: Value, right: Value) -> int:
        value = compute(_number(left), _number(right))
        if abs(value) >= _BOUND:
            raise OverflowError("it passes 64 bits")
        return value

    return checked


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def checked(left: Value, right: Value) -> bool:
        if isinstance(left, str) != isinstance(right, str):
            raise TypeError("it compares a text with a number")
        return compare(left, right)

    return checked


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: compare(_number(left), _number(right))


def _quotient(left: int, right: int) -> int:
    value = abs(left) // abs(right)
    return value if (left < 0) == (right < 0) else -value


_OPERATORS = {
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.FloorDiv: _arithmetic(_quotient),
    ast.Mod: _arithmetic(lambda left, right: left - right * _quotient(left, right)),
    ast.USub: lambda value: -_number(value),
    ast.Not: lambda value: not _number(value),
    ast.Eq: _comparison(operator.eq),
    ast.NotEq: _comparison(operator.ne),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
}
_FUNCTIONS = {"min": _arithmetic(min), "max": _arithmetic(max)}
# Whatever is not here is refused before it is evaluated: attributes, subscripts, other calls.
_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Constant,
    ast.Name,
)
_PARTS = (*_NODES, *_OPERATORS, ast.And, ast.Or, ast.Load)
_LANGUAGE = (
    "integers, texts, facts, + - * // %, comparisons, and, or, not, if else, min and max of two"
)


class _Evaluator(SimpleEval):  # type: ignore[misc]
    """`and` and `or` as in C++: a truth, and the right side only if the left does not decide."""

    def _eval_boolop(self, node: ast.BoolOp) -> bool:
        decides = isinstance(node.op, ast.Or)
        for value in node.values:
            if bool(_number(self._eval(value))) == decides:
                return decides
        return not decides

    def _eval_ifexp(self, node: ast.IfExp) -> Value:
        chosen = node.body if _number(self._eval(node.test)) else node.orelse
        value: Value = self._eval(chosen)
        return value


def names(text: str) -> frozenset[str]:
    """The facts that an expression reads."""
    return _names(text)


def evaluate(text: str, facts: Mapping[str, Value]) -> Value:
    """The value of `text`; a condition gives a truth."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if text in facts:
        return facts[text]
    tree = _parse(text)
    try:
        evaluator = _Evaluator(operators=_OPERATORS, functions=_FUNCTIONS, names=facts)
        value: Value = evaluator.eval(text, previously_parsed=tree.body)
    except NameNotDefined as error:
        raise ExpressionError(f"{_shown(text)} reads '{error.name}', which has no value") from error
    except ZeroDivisionError as error:
        raise ExpressionError(f"{_shown(text)} divides by zero") from error
    except RecursionError as error:
        raise ExpressionError(f"{_shown(text)} is nested too deeply") from error
    except (InvalidExpression, ArithmeticError, TypeError, KeyError) as error:
        raise ExpressionError(f"{_shown(text)} can't be computed: {error}") from error
    if not isinstance(value, str) and abs(value) >= _BOUND:
        raise ExpressionError(f"{_shown(text)} is no 64-bit integer")
    return value


def evaluate_number(text: str, facts: Mapping[str, Value]) -> int:
    """The value of `text` where a number is due; a truth is 0 or 1."""
    value = evaluate(text, facts)
    if isinstance(value, str):
        raise ExpressionError(f"{_shown(text)} is the text '{value[:40]}', a number is due")
    return int(value)


@lru_cache(maxsize=4096)
def _names(text: str) -> frozenset[str]:
    nodes = list(ast.walk(_parse(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in called)


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.Expression:
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"an expression of {len(text)} characters, {MAX_EXPRESSION} at most")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(text, mode="eval")
        nodes = list(ast.walk(tree))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        foreign = not all(_known(node, called) for node in nodes)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{_shown(text)} is no expression") from error
    if foreign:
        raise ExpressionError(f"{_shown(text)} is more than {_LANGUAGE}")
    return tree


def _known(node: ast.AST, called: set[int]) -> bool:
    if isinstance(node, ast.Name):
        return node.id not in _FUNCTIONS or id(node) in called
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, str, bool)
    if isinstance(node, ast.Call):
        simple = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        return simple and len(node.args) == 2 and not node.keywords
    return isinstance(node, _PARTS)


def _shown(text: str) -> str:
    return f"'{text}'" if len(text) <= 80 else f"'{text[:77]}...'"
