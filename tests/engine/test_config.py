# SPDX-License-Identifier: GPL-2.0-only
"""Parameters: every field is a knob, and refuses what is not legal (pds.md §17, ses.md §16)."""

import re
from dataclasses import fields
from typing import Any

import pytest

from uetproto.engine import PdsConfig, SesConfig
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.sharp.config import SharpConfig
from uetproto.errors import LocalError
from uetproto.knobs import fits, knobs_of


@pytest.mark.parametrize("kind", [PdsConfig, SesConfig, RoceConfig, SharpConfig])
def test_every_field_is_a_knob_that_is_documented_and_limited(kind: Any) -> None:
    knobs = knobs_of(kind)
    assert list(knobs) == [field.name for field in fields(kind)]
    for name, one in knobs.items():
        assert fits(one.default, one.legal), name
        assert one.doc.endswith("."), name
        assert re.fullmatch(r"\w+\.md( §[\d.]+)?", one.source), name


@pytest.mark.parametrize(("name", "value", "legal"), [
    ("mp_range", 100, "128 … 32640 in steps of 128"), ("mp_range", 129, "128"), ("default_mpr", 0, "1 … 255"),
    ("rto_init_time", -1, "0 …"), ("rto_init_time", 1.5, "0 …"), ("max_rto_retx_cnt", 16, "0 … 15"),
    ("ack_cc", "sometimes", "when_gap, always, never"), ("ar_on_eom", 1, "True, False"),
    ("default_mpr", True, "1 … 255"), ("entropy_values", 3, "1, 2, 4"), ("ack_cc", [], "when_gap"),
])  # fmt: skip
def test_illegal_values_are_named(name: str, value: Any, legal: str) -> None:
    with pytest.raises(LocalError, match=f"{name}: .*{legal}"):
        PdsConfig(**{name: value})


def test_illegal_mtu() -> None:
    with pytest.raises(LocalError, match="payload_mtu: 1500 is not legal; legal: 1024, 2048, 4096, 8192"):
        SesConfig(payload_mtu=1500)
