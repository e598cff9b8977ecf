# SPDX-License-Identifier: GPL-2.0-only
"""This package finds the values of a packet by the name of a form, or of a field that filters know.

`stub.py` makes the text of `__init__.pyi`, which tells type checkers which names there are and what they have.
"""

from abc import abstractmethod
from typing import Any

from uetproto.errors import typed
from uetproto.filters.fields import Seen, field_of, fields
from uetproto.wire.forms import FORMS
from uetproto.wire.lookup import FormLookup
from uetproto.wire.packet import RAW_FORMS

_MISSING = object()


class FieldLookup(FormLookup):
    """This class finds headers by the names of their forms, and values by the names of fields, as filters have them."""

    __slots__ = ()

    @property
    @abstractmethod
    def seen(self) -> Seen:
        """Return what the readers of fields look at."""

    def __getitem__(self, name: str) -> Any:
        """Return the fields of a header: `packet["pds.ack"]`; or a value by its name: `packet["uetp.psn"]`.

        A name that can have several values has a list, which is empty if there are none; `acks` is one. Times are in
        seconds. Raises `KeyError` if the packet has no such header or value, and `LocalError` for an unknown name.
        """
        if _is_form(name):
            return super().__getitem__(name)
        found = self.get(name, _MISSING)
        if found is _MISSING:
            raise KeyError(f"{name}: this packet has none")
        return found

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) if _is_form(name) else bool(field_of(name).read(self.seen))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or `default` if the packet has none. Raises `LocalError` for an unknown name."""
        if _is_form(name):
            return super().__getitem__(name) if super().__contains__(name) else default
        field = field_of(name)
        values = field.read(self.seen)
        if field.kind == "time":
            values = [value / 1e9 for value in values]
        if field.many:
            return list(values)
        if not values:
            return default
        return bool(values[0]) if field.kind in ("bool", "label") else values[0]


def _is_form(name: str) -> bool:
    """Return whether a name is that of a form, or the common beginning of forms, such as `pds`; `fields` win."""
    typed("name", name, str, "the name of a form or of a field")
    if name in FORMS or name in RAW_FORMS:
        return True
    return name not in fields() and any(form.startswith(f"{name}.") for form in FORMS)
