# SPDX-License-Identifier: GPL-2.0-only
"""This module tells networks apart that share a wire: tunnels of VXLAN or GENEVE with different VNIs, whose hosts may
have equal addresses."""

from collections.abc import Iterable

from uetproto.wire.packet import Layer

WITH_VNI = frozenset({"vxlan", "geneve"})
MOST = 1_000
"""Greatest number of VNIs that are kept."""


class Tenants(dict[int, int]):
    """This table maps each VNI that was seen to a number of its network.

    The number is 0 for the first VNI, as for packets in no such tunnel, so that a capture with one VNI reads as one
    without; a further VNI has itself, plus 1.
    """

    def __missing__(self, vni: int) -> int:
        number = vni + 1 if self else 0
        if len(self) < MOST:
            self[vni] = number
        return number

    def of(self, layers: Iterable[Layer]) -> int:
        """Return the number of the network of a packet."""
        vni = vni_of(layers)
        return 0 if vni is None else self[vni]


def vni_of(layers: Iterable[Layer]) -> int | None:
    """Return the VNI of the innermost tunnel that has one, or None."""
    found = None
    for form, values, _ in layers:
        if form in WITH_VNI:
            found = values["vni"]
    return found


def tenant_words(number: int) -> str:
    """Return what stands behind an address to name its network: "VNI 9"; "" for the first one."""
    return f"VNI {number - 1}" if number else ""
