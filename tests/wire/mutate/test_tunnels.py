# SPDX-License-Identifier: GPL-2.0-only
"""Frames in tunnels: nothing in them changes, and Scapy reads the same tunnel."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib import erspan, geneve, mpls  # noqa: F401  they bind their layers
from scapy.layers import vxlan  # noqa: F401
from scapy.layers.l2 import Ether

from tests.support.cli.frames import frame, write
from tests.support.effort import examples
from uetproto import decode
from uetproto.testing import frames, tunnelled
from uetproto.wire.mutate.mutation import ALL, mutate
from uetproto.wire.mutate.tunnels import TUNNELS
from uetproto.wire.packet import inner_from

FRAME = frame(11, 12, *write(73728, 0, syn=1), payload=bytes(1024))
IN_SCAPY = {
    "vxlan": ("VXLAN", "vni"), "geneve": ("GENEVE", "vni"), "gre": ("GRE", "key"), "erspan": ("ERSPAN", "session_id"),
    "mpls": ("MPLS", None),
}  # fmt: skip


@pytest.mark.parametrize("name", TUNNELS)
def test_what_is_in_a_tunnel_does_not_change(name: str) -> None:
    found = mutate(name, FRAME, random.Random(1))
    assert found is not None
    assert (found.rule, found.field, found.before, found.after) == (None, "tunnel", len(FRAME), len(found.frame))
    packet, plain = decode(found.frame), decode(FRAME)
    inside = packet.layers[inner_from(packet.layers) :]
    assert [one[:2] for one in inside] == [one[:2] for one in plain.layers[len(plain.layers) - len(inside) :]]
    assert (packet.payload, packet.trailer, packet.error) == (plain.payload, plain.trailer, None)
    form, field = IN_SCAPY[name]
    read = next(layer for layer in Ether(found.frame).iterpayloads() if type(layer).__name__.startswith(form))
    assert field is None or getattr(read, field) == 7


@given(st.sampled_from(tuple(TUNNELS)), st.binary(min_size=14, max_size=200))
@examples(60)
def test_any_frame_goes_into_a_tunnel(name: str, data: bytes) -> None:
    found = mutate(name, data, random.Random(1))
    assert name == "mpls" or found is not None
    assert found is None or found.frame.endswith(data[14:])


@given(tunnelled(frames()))
@examples(40)
def test_the_strategy_draws_packets_that_can_be_read(data: bytes) -> None:
    assert decode(data).error is None


def test_names() -> None:
    assert set(TUNNELS) < set(ALL)
    assert len(ALL) == len(set(ALL))
