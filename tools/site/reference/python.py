# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the pages of the Python API: the names that each public module exports, with their docstrings."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import isclass, isfunction
from typing import Any

MODULES = {
    "uetproto": "uetproto/__init__.pyi",
    "uetproto.api.fi": "uetproto/api/fi/__init__.py",
    "uetproto.api.verbs": "uetproto/api/verbs/__init__.py",
    "uetproto.api.distributed": "uetproto/api/distributed/__init__.py",
    "uetproto.live": "uetproto/live/__init__.py",
    "uetproto.columns": "uetproto/columns.py",
    "uetproto.diff": "uetproto/diff/__init__.py",
    "uetproto.schemas": "uetproto/schemas/__init__.py",
    "uetproto.layers": "uetproto/layers/__init__.py",
    "uetproto.scapy": "uetproto/scapy.py",
    "uetproto.testing": "uetproto/testing/__init__.py",
}
"""The modules that a program imports by name, and their files. Each has a page."""
SHOWN = 60
"""Number of characters from which the value of a constant is left out."""


def pages() -> dict[str, tuple[str, Callable[[], str]]]:
    """Return the places and the texts of the pages, by the files of the modules."""
    return {file: (f"reference/{name}.md", partial(page, name)) for name, file in MODULES.items()}


def page(name: str) -> str:
    """Return the page of a module, for autodoc of Sphinx."""
    module = import_module(name)
    seen: set[int] = set()
    documents = [_document(name, member, getattr(module, member), seen) for member in sorted(exported(module))]
    text = "".join(documents)
    return f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :no-index:\n\n{text}```\n"


def exported(module: Any) -> list[str]:
    """Return the names that a module exports: those in `__all__`, or else what it defines itself."""
    if hasattr(module, "__all__"):
        layers = getattr(module, "LAYERS", {}).values()  # one for each header: the table of headers has them
        names = (name for name in module.__all__ if not name.startswith("__"))
        return [name for name in names if not any(getattr(module, name) is layer for layer in layers)]
    own = (name for name in vars(module) if not name.startswith("_"))
    return [name for name in own if getattr(getattr(module, name), "__module__", None) == module.__name__]


def _document(module: str, name: str, value: Any, seen: set[int]) -> str:
    """Return the directive for one name. `seen` has the objects of the page so far: a second one has no entry in the
    index."""
    elsewhere = getattr(value, "__module__", module).split(".")[:3] != module.split(".")[:3] and module != "uetproto"
    again = "   :no-index:\n" if id(value) in seen or elsewhere else ""
    if isclass(value):
        seen.add(id(value))
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f".. {kind}:: {module}.{name}\n   :members:\n   :undoc-members:\n{again}\n"
    if isfunction(value):
        seen.add(id(value))
        return f".. autofunction:: {module}.{name}\n{again}\n"
    shown = repr(value)
    return f".. py:data:: {module}.{name}\n{f'   :value: {shown}' if len(shown) < SHOWN else ''}\n\n"
