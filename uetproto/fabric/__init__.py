# SPDX-License-Identifier: GPL-2.0-only
"""This package runs the traffic patterns by which congestion control is judged: many flows in one fabric (cms.md
§11).

`uetproto.fabric(…)` is a function for users, and Python gives the same name to this package; so the package can be
called.
"""

import sys
from types import ModuleType
from typing import Any


class CalledPackage(ModuleType):
    """This class is the type of the package, which calls `analysis.commands.fabric`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from uetproto.analysis.commands import fabric

        return fabric(*arguments, **options)


sys.modules[__name__].__class__ = CalledPackage
