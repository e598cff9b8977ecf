# SPDX-License-Identifier: GPL-2.0-only
"""This module finds an adapter by the name that a command line or a file has for it."""

import os
import sys
from functools import partial
from importlib import import_module

from uetproto.errors import LocalError, shown, similar
from uetproto.testing.adapters.adapter import AdapterFactory, described
from uetproto.testing.adapters.engines import PdcEngine
from uetproto.testing.adapters.fep import FepEngine
from uetproto.testing.adapters.library import LibraryAdapter, check_library
from uetproto.testing.adapters.process import ProcessAdapter
from uetproto.testing.adapters.roce import RoceEngine
from uetproto.testing.adapters.sharp_node import SharpNodeEngine
from uetproto.testing.adapters.tss import TssEngine

ENGINES: dict[str, AdapterFactory] = {
    "pdc": PdcEngine, "roce": RoceEngine, "ses": FepEngine, "sharp_node": SharpNodeEngine, "tss": TssEngine,
}  # fmt: skip
"""The adapters of our engines, by the name of the machine that drives them."""

SERVE = "uetproto.testing.adapters.serve"
"""Name of the module that serves an adapter to another process."""
LIBRARIES = (".so", ".dylib")
"""Ends of the names of shared libraries."""


def adapter_named(name: str, own_process: bool = True) -> AdapterFactory:
    """Return the adapter that `name` stands for: one of `ENGINES`, MODULE:CLASS, a shared library (`*.so`), or a
    command line, which is started. A library is loaded in a process of its own if `own_process` is true, so that the
    program survives a crash of the library.

    Modules are also looked for in the current folder. Raises `LocalError` for a name that is none of these.
    """
    if name in ENGINES:
        return ENGINES[name]
    module, colon, attribute = name.partition(":")
    if colon and module.replace(".", "").replace("_", "").isalnum() and attribute.isidentifier():
        return _imported(module, attribute)
    if name.endswith(LIBRARIES) and " " not in name:
        if not own_process:
            return partial(LibraryAdapter, name)
        check_library(name)
        return partial(ProcessAdapter, [sys.executable, "-m", SERVE, name])
    if not name.strip() or ("/" not in name and " " not in name):
        raise LocalError(
            shown(name), f"is no adapter{similar(name, ENGINES)}",
            f"{', '.join(ENGINES)}, MODULE:CLASS, a library such as ./my_stack.so, or a command line such as"
            " './my_stack --adapter'",
            id="unknown-adapter",
        )  # fmt: skip
    return partial(ProcessAdapter, name)


def _imported(module: str, attribute: str) -> AdapterFactory:
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), attribute)
    except ImportError as error:
        raise LocalError(
            f"{module}:{attribute}", f"the module is not imported: {error}", id="adapter-not-loaded"
        ) from error
    except AttributeError as error:
        raise LocalError(f"{module}:{attribute}", str(error), id="adapter-not-loaded") from error
    except (Exception, SystemExit) as error:  # what the user's module raises
        raise LocalError(
            f"{module}:{attribute}", f"the module is not imported: {described(error)}", id="adapter-not-loaded"
        ) from error
    if not callable(found):
        raise LocalError(f"{module}:{attribute}", f"{shown(found)} is no class or function", id="adapter-not-loaded")
    factory: AdapterFactory = found
    return factory
