# SPDX-License-Identifier: GPL-2.0-only
"""This module tells the flows of frames apart, as switches do that choose one of several paths."""

from uetproto.framing.dscp import IPV4_TYPE, IPV6_TYPE


def flow_of(frame: bytes) -> bytes:
    """Return the bytes that all frames of a flow have in common: the addresses, and the UDP source port or the
    entropy.
    """
    if frame[12:14] == IPV4_TYPE:
        return frame[:6] + frame[26:36]
    if frame[12:14] == IPV6_TYPE:
        return frame[:6] + frame[22:56]
    return frame[:14]
