# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the places in the sources that make errors: the id, the template of the message, and the line."""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

UNFIT = ("out-of-range", "unknown-name", "wrong-format", "wrong-type")
"""Ids that `errors.unfit` chooses from."""
_ID = re.compile(r"[a-z]+(-[a-z0-9]+)*")
_LONGEST = 32
_AS_IS = ("shown", "str", "argument", "repr", "harmless")
"""Functions that show a value, and say nothing about it."""


class ErrorSite(NamedTuple):
    """A place where an error is made."""

    id: str
    template: str
    line: int


def sites(nodes: Iterable[ast.AST]) -> Iterator[ErrorSite]:
    """Yield the places in the nodes of a module that say an id, one for each id."""
    for node in nodes:
        if isinstance(node, ast.Assign) and (found := _assigned(node)) is not None:
            told, value = found
            yield from (ErrorSite(id, _template(told), node.lineno) for id in _ids(value))
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name == "identified" and isinstance(node.args[0], ast.Call):
            yield from (ErrorSite(id, _template(node.args[0].args), node.lineno) for id in _ids(node.args[1]))
        elif (given := next((one.value for one in node.keywords if one.arg == "id"), None)) is not None:
            args = node.args[:1] + node.args[2:] if name == "refuse_mix" else node.args  # the second is another key
            yield from (ErrorSite(id, _template(args), node.lineno) for id in _ids(given))


def without_id(nodes: Iterable[ast.AST], classes: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield class and line of each call of one of the `classes` of errors that says no id."""
    nodes, names = tuple(nodes), set(classes)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    wrapped = {id(call.args[0]) for call in calls if _name(call.func) == "identified"}
    for call in calls:
        if _name(call.func) in names and id(call) not in wrapped and all(one.arg != "id" for one in call.keywords):
            yield _name(call.func), call.lineno


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _assigned(node: ast.Assign) -> tuple[list[ast.expr], ast.expr] | None:
    """Return what an assignment to the name `id` assigns beside it, and the id."""
    target = node.targets[0]
    if isinstance(target, ast.Name) and target.id == "id":
        return [], node.value
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and _name(target.elts[0]) == "id":
        beside = node.value.elts[1]
        return beside.elts if isinstance(beside, ast.Tuple) else [beside], node.value.elts[0]
    return None


def _ids(node: ast.expr) -> Iterator[str]:
    """Yield the ids that an expression may have; none for the id of another error."""
    match node:
        case ast.Constant(value=str(id)) if _ID.fullmatch(id):
            yield id
        case ast.IfExp():
            yield from (*_ids(node.body), *_ids(node.orelse))
        case ast.Call() if _name(node.func) == "unfit":
            yield from UNFIT


def _template(parts: Iterable[ast.expr]) -> str:
    """Return the message that the arguments of an error make, with expressions in braces."""
    texts = [_text(one) for one in parts if not ast.unparse(one).startswith("Errno.")]
    name, value, legal = (*(texts if len(texts) > 1 else ("", *texts)), "", "", "")[:3]
    return "".join((f"{name}: " if name else "", value, f"; legal: {legal}" if legal else ""))


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_text(one) for one in node.values)
        case ast.FormattedValue():
            return _braced(node.value)
    return _braced(node)


def _braced(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and _name(node.func) in ("similar", "known_rules"):
        return ""
    if (
        isinstance(node, ast.Call)
        and _name(node.func) in ("shown", "str", "argument", "repr", "harmless")
        and node.args
    ):
        return " ".join(_text(one) for one in node.args)
    text = ast.unparse(node)
    return f"{{{text}}}" if len(text) <= _LONGEST else "{…}"
