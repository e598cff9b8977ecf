# SPDX-License-Identifier: GPL-2.0-only
"""This module has a named tuple class for each header: `BthHeader.read(data).psn`, `BthHeader.pack(opcode, …)`.

`codec.header_class` makes a class when its name is first used. `tuples.pyi`, generated from the tables, declares all
classes, so that a type checker finds every use of a field that a table no longer has.
"""

from typing import Any

from uetproto.wire.codec import class_name, header_class
from uetproto.wire.forms import FORMS

_HEADERS = {class_name(header): header for header in FORMS.values()}


def __getattr__(name: str) -> Any:
    if name not in _HEADERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = header_class(_HEADERS[name])
    return made
