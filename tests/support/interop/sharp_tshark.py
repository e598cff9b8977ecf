# SPDX-License-Identifier: GPL-2.0-only
"""This module compares the SHARP and multicast fields of tshark, with the plugin, with those of `decode`."""

from tests.support.interop.tshark import Shown, number
from uetproto import decode
from uetproto.wire.filter_names import filter_name
from uetproto.wire.forms import MCAST_FORMS, SHARP_FORMS

ASKED = ("-o", "uetp.sharp:TRUE", "-o", "uetp.mcast:TRUE")


def same(frame: bytes, shown: Shown | None, link: str = "ethernet") -> None:
    found = [layer for layer in decode(frame, link=link, sharp=True, mcast=True).layers
             if layer.form in SHARP_FORMS or layer.form in MCAST_FORMS]  # fmt: skip
    assert found
    assert shown is not None
    branches = [branch for branch in shown.branches if branch.name in {filter_name(layer.form) for layer in found}]
    assert [branch.name for branch in branches] == [filter_name(layer.form) for layer in found]
    for layer, branch in zip(found, branches, strict=True):
        for name, value in layer.values.items():
            assert number(branch.values[name]) == value, f"{layer.form}.{name}"
