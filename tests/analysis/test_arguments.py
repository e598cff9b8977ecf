# SPDX-License-Identifier: GPL-2.0-only
"""Functions for Python programs refuse a wrong argument by its name and with what is legal, not from within."""

from collections.abc import Callable
from typing import Any

import pytest

import uetproto
from tests.support.each import each
from tests.support.paths import PCAPS

LOSSY = str(PCAPS / "gradient-lossy.pcapng")
Call = Callable[[Any], object]


def of_capture(call: Callable[[uetproto.Capture, Any], object]) -> Call:
    return lambda value: call(uetproto.open(LOSSY), value)


def option(function: Callable[..., object], first: str, name: str) -> Call:
    return lambda value: function(first, **{name: value})


def drawn(name: str) -> Call:
    return of_capture(lambda capture, value: capture.ladder(**{name: value}))


CALLS: list[tuple[str, Call, tuple[Any, ...]]] = [
    ("source", uetproto.open, (None, 5, [1])),
    *((name, option(uetproto.open, LOSSY, name), values) for name, values in (
        ("offsets_ns", (5, "x", [0.5], [1, 2])), ("keys", (5, [1])), ("link", (5, [1], "etherent")), ("crc", (5, None)),
        ("rd", (None, "x")), ("udp_port", ("x", 70_000)),
    )),
    ("index", of_capture(lambda capture, value: capture[value]), ("x", -1, slice(1, 3))),
    ("filter", of_capture(lambda capture, value: capture.filter(value)), (5, None, "")),
    ("fields", of_capture(lambda capture, value: capture.to_arrow(value)), (5, [None], [], "uetp.psn", {"a": 1})),
    ("other", of_capture(lambda capture, value: capture.diff(value)), (LOSSY, None)),
    ("ignore", of_capture(lambda capture, value: capture.diff(capture, ignore=value)), ("ipv4.ttl", 5)),
    ("path", of_capture(lambda capture, value: capture.report(value)), (5, None)),
    ("rows", of_capture(lambda capture, value: capture.report("x.html", rows=value)), ("x", -1)),
    ("rules", of_capture(lambda capture, value: capture.audit(value)), (5, None)),
    *((name, drawn(name), values) for name, values in (
        ("packets", (5, "ab", [], [-1], ["x"])), ("mark", (5, [None])), ("rows", ("x", -1)), ("width", (3, "x", 10**6)),
        ("pdc", ("x", -1)), ("interface", (7, "x")), ("columns", ("cwnd", [5])),
    )),
    ("path", of_capture(lambda capture, value: capture.to_parquet(value)), (5, None)),
    ("path", of_capture(lambda capture, value: capture.ladder().save(value)), (5, "x.png")),
    ("name", of_capture(lambda capture, value: capture[0][value]), (5, None)),
    ("name", of_capture(lambda capture, value: capture[0].get(value)), (5, None)),
    ("name", of_capture(lambda capture, value: value in capture[0]), (5, None)),
    ("scenario", uetproto.run, (None, 5)),
    *((name, option(uetproto.run, "gradient", name), values) for name, values in (
        ("settings", ("x", [("a", 1)])), ("seed", (-1, "x", True)), ("output", (5, "-")),
    )),
    *((name, option(uetproto.generate, "mixed", name), values) for name, values in (
        ("packets", ("x", 0, -1)), ("duration", ([1], -5, "5 parsec")), ("mutate", ("x", 5)), ("seed", ("x",)),
    )),
    *((name, option(uetproto.fabric, "incast", name), values) for name, values in (
        ("hosts", ("x", 1)), ("tap", (5, "h0")), ("slow_links", ("x", -1)), ("cc", (5,)), ("lb", (5, "mixde")),
        ("topology", (5,)), ("flow_size", ("x",)), ("rate", ("fast",)), ("delay", ([],)), ("wire", ("x",)),
    )),
    *((name, option(uetproto.collective, "all_reduce", name), values) for name, values in (
        ("dtype", (5,)), ("loss", ("x", 5)), ("seed", ("x",)), ("sharp", (5, "x")), ("ports", ("x", 0)),
        ("channels", ("x", 0)), ("mtu", ("x",)), ("lb", (5,)), ("transport", (5, "uet,roce")), ("tap", (5,)),
    )),
    ("op", uetproto.collective, (5, None)),
]  # fmt: skip


@each("name, call, value", [(name, call, value) for name, call, values in CALLS for value in values])
def test_wrong_arguments(name: str, call: Call, value: Any) -> None:
    with pytest.raises(uetproto.LocalError) as caught:
        call(value)
    assert name in caught.value.name or caught.value.name.endswith(name)
    assert str(caught.value)
