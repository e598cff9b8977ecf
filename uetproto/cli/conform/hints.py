# SPDX-License-Identifier: GPL-2.0-only
"""This module tells what may be wrong: an option, when a peer refuses the packets of most tests for one reason, or a
port that another program has."""

from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address

import uetproto
from uetproto.cli.live.options import LinkOptions
from uetproto.cli.terminal import many
from uetproto.conform.packets import PeerFacts
from uetproto.conform.player import ConformanceVerdict, Outcome
from uetproto.conform.roce.packets import RoceFacts
from uetproto.framing.uet import Encapsulation
from uetproto.live import sockets
from uetproto.wire.headers.uet_ses import ReturnCode

_OPTIONS = {
    ReturnCode.BAD_MKEY: ("--key", "memory_key"), ReturnCode.BAD_ADDR: ("--addr", "address"),
    ReturnCode.BAD_JOB_ID: ("--job-id", "job_id"), ReturnCode.BAD_PID: ("--pid", "pid"),
    ReturnCode.BAD_INDEX: ("--resource-index", "resource_index"),
}  # fmt: skip
"""What names the memory or the endpoint, by the return code that refuses it, and the attribute of its value."""
_LEAST = 3


def hints(results: Sequence[Outcome], options: LinkOptions, how: Encapsulation) -> list[str]:
    """Return a line for each option that at least half of the failures speak against, and three of them."""
    failed = [one for one in results if one.verdict is ConformanceVerdict.FAIL]
    port, counts = options.local_udp_port or how.udp_port, Counter[int]()
    for one in failed:
        counts.update({code for frame in one.frames if not frame.sent for code in _codes(frame.data, how, port)})
    return [
        f"hint: the peer answers {code.name} in {counts[code]} of {len(failed)} failures:"
        f" {option} {getattr(options, name)} may be wrong"
        for code, (option, name) in _OPTIONS.items()
        if counts[code] >= max(_LEAST, len(failed) / 2)
    ]


def hint_of_port(results: Sequence[Outcome], facts: PeerFacts | RoceFacts) -> list[str]:
    """Return a line for a peer of this host that did not act, if another program has its UDP port."""
    if isinstance(facts, RoceFacts):
        port: int | None = facts.udp_port
    else:
        port = facts.how.udp_port if facts.how.udp else None
    idle = any(one.test.act and one.silent and one.verdict is ConformanceVerdict.INCONCLUSIVE for one in results)
    if port is None or not idle or not sockets.is_port_taken(facts.address, facts.ip_version, port):
        return []
    address = ip_address(facts.address.to_bytes(4 if facts.ip_version == 4 else 16, "big"))
    told = f"hint: a program has UDP port {port} of {address}"
    return [f"{told}: unless it is the one that acts, end it, as a driver cannot have the port"]


def hint_of_pair(results: Sequence[Outcome]) -> list[str]:
    """Return a line for a peer of RoCE that acts, and whose tests all fail in which we answer."""
    acted = [
        one for one in results
        if one.test.act.startswith("rc ") and any("send" in step for step in one.test.steps)
        and one.verdict is not ConformanceVerdict.INCONCLUSIVE
    ]  # fmt: skip
    failed = [one for one in acted if one.verdict is ConformanceVerdict.FAIL]
    if len(failed) < _LEAST or len(failed) < len(acted):
        return []
    told = f"hint: the peer takes none of our answers in {many(len(failed), 'test')}"
    return [f"{told}: has the queue pair that acts the number that it was told, or is its own in {{pair}}?"]


def _codes(data: bytes, how: Encapsulation, port: int) -> set[int]:
    """Return the return codes in a frame of the peer, which came to a UDP port of ours."""
    packet = uetproto.decode(data, crc="on" if how.crc else "off", udp_port=port, ip_protocol=how.ip_protocol)
    return {values["return_code"] for _, values, _ in packet.layers if "return_code" in values}
