# SPDX-License-Identifier: GPL-2.0-only
"""This package finds a header among the layers of a packet by the name of its form.

`stub.py` makes the text of `__init__.pyi`, which tells type checkers the fields of each form: `packet["pds.ack"]` is a
`PdsAckValues` there, a mapping whose keys are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class FormLookup:
    """This class finds headers by the names of their forms: `packet["pds.ack"]`, `"pds.ack" in packet`."""

    __slots__ = ()

    layers: Sequence[Any]

    def __getitem__(self, form: str) -> Mapping[str, Any]:
        """Return the values of the first layer whose form is `form` or a variant of it: `pds.ack` finds
        `pds.ack.probe`.

        Raises `KeyError` if there is none.
        """
        for layer in self.layers:
            if layer.form == form or layer.form.startswith(form + "."):
                values: Mapping[str, Any] = layer.values
                return values
        raise KeyError(form)

    def __contains__(self, form: str) -> bool:
        return any(layer.form == form or layer.form.startswith(form + ".") for layer in self.layers)
