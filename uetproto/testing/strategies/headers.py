# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the fields of headers, as the header tables allow them. `headers` draws whole headers.

Each field is drawn separately, so that Hypothesis shrinks each field alone, down to its simplest value.
"""

from collections.abc import Mapping
from enum import IntFlag
from functools import cache
from typing import Any, Literal, NamedTuple, overload

from hypothesis import strategies as st

from uetproto.testing.strategies.arguments import check_choice, illegal, named
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value
from uetproto.wire.fields import Field
from uetproto.wire.forms import FORMS, VERSIONS, code_fields, reserved_fields
from uetproto.wire.packet import Layer

Numbers = st.SearchStrategy[int]


@cache
def numbers(low: int, high: int) -> Numbers:
    """Return a strategy for the numbers from `low` to `high`; the one nearest to 0 is the simplest."""
    return st.integers(low, high)


def is_zero(form: str, field: Field) -> bool:
    """Return whether a field is sent as 0: it is reserved, or a version."""
    return not field.only and (
        field.name.startswith("rsvd") or field.name in VERSIONS or field.name in reserved_fields(form)
    )


@cache
def codes(form: str, name: str) -> tuple[int, ...]:
    """Return the named codes that a field may hold, the simplest first. The result is empty if the field holds a
    number."""
    kind = FORMS[form][name].values
    if kind is None or issubclass(kind, IntFlag):
        return ()
    known = code_fields(form).get(name)
    return tuple(sorted(int(code) for code in kind if known is None or int(code) in known))


@cache
def field_values(form: str, name: str) -> Numbers:
    """Return a strategy for the legal values of a field by its table.

    A field that identifies its header has only the values that do so. A reserved field is 0. A field with named codes
    has one of these codes. Any other field has any number, or any set of its named bits.
    """
    field = FORMS[form][name]
    if field.only:
        return st.sampled_from(tuple(int(value) for value in field.only))
    if is_zero(form, field):
        return st.just(0)
    if codes(form, name):
        return st.sampled_from(codes(form, name))
    if field.values is not None:
        return st.integers(0, field.high).map(lambda number: number & _named_bits(field))
    return st.integers(field.low, field.high)


@cache
def fields_of(form: str, names: tuple[str, ...]) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for some fields of a header, by their table."""
    return drawn_together({name: field_values(form, name) for name in names})


def drawn_together(fields: Mapping[str, Numbers]) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for the fields of a header. To explain a failure, Hypothesis varies all of them at once."""

    @st.composite  # not `tuples`, whose members Hypothesis varies one by one to explain a failure, which takes long
    def drawn(draw: st.DrawFn) -> dict[str, int]:
        return {name: draw(values) for name, values in fields.items()}

    return drawn()


def _named_bits(field: Field) -> int:
    return sum({int(bit) for bit in field.values or () if int(bit).bit_count() == 1}) & field.high


# What a table forbids -------------------------------------------------------------------------------------------------


class _FieldFault(NamedTuple):
    field: str
    column: str
    values: st.SearchStrategy[int]


@cache
def _faults(form: str) -> tuple[_FieldFault, ...]:
    """Return, for each field that may not hold every value, the column of the table and the values against it."""
    found = []
    for field in FORMS[form].fields:
        legal = set(map(int, field.only)) or set(code_fields(form).get(field.name, ())) or set(codes(form, field.name))
        if is_zero(form, field):
            found.append(_FieldFault(field.name, "reserved", st.integers(1, field.high)))
        elif legal and field.bits <= 16:
            others = [value for value in range(field.low, field.high + 1) if value not in legal]
            if others:
                column = "only" if field.only else "values"
                found.append(_FieldFault(field.name, column, st.sampled_from(others)))
    return tuple(found)


@cache
def _forms_with_faults() -> tuple[str, ...]:
    return tuple(form for form in FORMS if _faults(form))


# Headers --------------------------------------------------------------------------------------------------------------


@overload
def headers(form: str | None = None, *, spoilt: Literal[False] = False) -> st.SearchStrategy[Layer]: ...
@overload
def headers(form: str | None = None, *, spoilt: Literal[True]) -> st.SearchStrategy[Spoilt[Layer]]: ...
def headers(form: str | None = None, *, spoilt: bool = False) -> st.SearchStrategy[Any]:
    """Return a strategy for a header alone, as a `Layer` with a value for every field in wire order.

    `form` is a form of `uetproto/wire/TABLES.md`; without it, any form is drawn. Each field holds what its table
    allows, whatever the other fields hold. With `spoilt`, the strategy draws a `Spoilt`: one field holds a value that
    fits its bits, but is forbidden by the table. The `rule` of the `Spoilt` is the column of the table that forbids the
    value: "reserved", "only" or "values". Raises `InvalidArgument` for an unknown form, and with `spoilt` for a form
    whose fields may hold any value.
    """
    check_choice("form", form, FORMS)
    if spoilt and form is not None and not _faults(form):
        raise illegal("form", form, _forms_with_faults(), " with spoilt=True: its fields may hold any value")
    forms = (form,) if form is not None else _forms_with_faults() if spoilt else tuple(FORMS)
    return named("headers", _spoilt_headers(forms) if spoilt else _headers(forms), spoilt, {"form": form})


@st.composite
def _headers(draw: st.DrawFn, forms: tuple[str, ...]) -> Layer:
    form = draw(st.sampled_from(forms))
    return Layer(form, draw(fields_of(form, FORMS[form].names)))


@st.composite
def _spoilt_headers(draw: st.DrawFn, forms: tuple[str, ...]) -> Spoilt[Layer]:
    layer = draw(_headers(forms))
    fault = draw(st.sampled_from(_faults(layer.form)))
    value = draw(fault.values)
    wrong = Layer(layer.form, {**layer.values, fault.field: value})
    return draw(spoilt_value(wrong, fault.column, f"{layer.form}.{fault.field} is {value}"))
