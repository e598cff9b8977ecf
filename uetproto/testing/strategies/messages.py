# SPDX-License-Identifier: GPL-2.0-only
"""This module draws SES messages: the packets of one request, as an initiator sends them."""

from typing import Any, Literal, Unpack, overload

from hypothesis import strategies as st

from uetproto.testing.strategies.arguments import check_names, named
from uetproto.testing.strategies.damage import kinds, spoil
from uetproto.testing.strategies.exchanges import drawn_exchange
from uetproto.testing.strategies.scenarios import MessageOptions, Wanted
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value
from uetproto.wire.stack import decode


@st.composite
def _messages(draw: st.DrawFn, wanted: Wanted) -> list[bytes]:
    found = []
    for data in draw(drawn_exchange(wanted)).requests:
        layers = decode(data).layers
        request = next((values for form, values, _ in layers if form.startswith("ses.") and "eom" in values), None)
        if request is not None:
            found.append(data)
            if request["eom"]:
                break
    return found


@st.composite
def _spoilt_messages(draw: st.DrawFn, wanted: Wanted) -> Spoilt[list[bytes]]:
    kind, message = draw(kinds), draw(_messages(wanted))
    damage = spoil(draw, kind, message)
    return draw(spoilt_value(damage.among(message), damage.rule, damage.what))


@overload
def messages(
    *, spoilt: Literal[False] = False, **options: Unpack[MessageOptions]
) -> st.SearchStrategy[list[bytes]]: ...
@overload
def messages(*, spoilt: Literal[True], **options: Unpack[MessageOptions]) -> st.SearchStrategy[Spoilt[list[bytes]]]: ...
def messages(*, spoilt: bool = False, **options: Unpack[MessageOptions]) -> st.SearchStrategy[Any]:
    """Return a strategy for the frames of one SES message, in order. No frame is lost or repeated.

    The message is the first of its PDC, or its mode has no PDC. `uetproto audit` finds nothing in them. With `spoilt`,
    one frame is wrong, and the audit finds the rule that `Spoilt.rule` names. `options` are those of `MessageOptions`.
    Raises `InvalidArgument` for a value that is not legal, and for values that exclude each other.
    """
    check_names("messages", options, (), MessageOptions)
    wanted = Wanted(**options, faults=False, operations=1).check()
    return named("messages", _spoilt_messages(wanted) if spoilt else _messages(wanted), spoilt, options)
