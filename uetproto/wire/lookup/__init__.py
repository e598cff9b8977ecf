# SPDX-License-Identifier: GPL-2.0-only
"""This package finds a header among the layers of a packet by the name of its form.

`stub.py` makes the text of `__init__.pyi`, which tells type checkers the fields of each form: `packet["pds.ack"]` is a
`PdsAckValues` there, a mapping whose keys are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from uetproto.errors import listed, similar
from uetproto.wire.forms import FORMS


class FieldValues(dict[str, Any]):
    """This mapping has the values of a header. Its `KeyError` tells names that are similar to a wrong one."""

    __slots__ = ()

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"{name}: no such field{similar(name, self)}; there are {listed(self)}")


class FormLookup:
    """This class finds headers by the names of their forms: `packet["pds.ack"]`, `"pds.ack" in packet`."""

    __slots__ = ()

    layers: Sequence[Any]

    def __getitem__(self, form: str) -> Mapping[str, Any]:
        """Return the values of the first layer whose form is `form` or a variant of it: `pds.ack` finds
        `pds.ack.probe`.

        Raises `KeyError` if there is none, and for a field that the header does not have; both name what there is.
        """
        layers = self.layers
        for at, layer in enumerate(layers):
            if layer.form == form or layer.form.startswith(form + "."):
                values: Mapping[str, Any] = layer.values
                if type(values) is dict and isinstance(layers, list):
                    values = FieldValues(values)
                    layers[at] = layer._replace(values=values)  # who changes a value changes the packet
                return values
        why = "does not occur here" if form in FORMS else f"no such form{similar(form, FORMS)}"
        raise KeyError(f"{form}: {why}; there are {listed(layer.form for layer in layers)}")

    def __contains__(self, form: str) -> bool:
        return any(layer.form == form or layer.form.startswith(form + ".") for layer in self.layers)
