# SPDX-License-Identifier: GPL-2.0-only
"""This module draws frames in tunnels: VXLAN, GENEVE, GRE, ERSPAN, MPLS."""

from hypothesis import strategies as st

from uetproto.testing.strategies.arguments import check_choice
from uetproto.testing.strategies.chance import DrawnChance
from uetproto.wire.mutate.tunnels import TUNNELS, in_tunnel


@st.composite
def _tunnelled(draw: st.DrawFn, frames: st.SearchStrategy[bytes], tunnel: str | None) -> bytes:
    name = draw(st.sampled_from(tuple(TUNNELS))) if tunnel is None else tunnel
    frame = draw(frames)
    found = in_tunnel(name, frame, DrawnChance(draw))
    return frame if found is None else found.frame


def tunnelled(frames: st.SearchStrategy[bytes], tunnel: str | None = None) -> st.SearchStrategy[bytes]:
    """Return a strategy for Ethernet frames of `frames`, each in a tunnel, which changes nothing in them.

    `tunnel` is vxlan, geneve, gre, erspan or mpls; None: it is drawn. A frame that MPLS cannot carry, because it is not
    IP behind Ethernet without tags, stays as it is. Raises `InvalidArgument` for another tunnel.
    """
    check_choice("tunnel", tunnel, TUNNELS)
    return _tunnelled(frames, tunnel)
