# SPDX-License-Identifier: GPL-2.0-only
"""This module has messages of read data, ladders with a policy of secure start, and SYN packets."""

from typing import Any

from tests.support.ladders.ladder import A, Ladder, ScriptedMessage, Sent
from uetproto.engine import Mode, Preset
from uetproto.wire.headers.uet_pds import NextHdr


def returned(packets: int, mode: Mode = Mode.RUD) -> ScriptedMessage:
    message = ScriptedMessage(packets, mode, 9, peer=A)
    message.next_hdr = NextHdr.RESPONSE_DATA
    return message


def secure(policy: str = "expected", mode: Mode = Mode.RUD, **b: Any) -> Ladder:
    x = Ladder(mode, established=False, forward=5000, b={"secure_start": policy, **b})
    if policy == "expected":
        x.b.pds.preset(Preset(expected_psn=9000))
    return x


def syn(x: Ladder, message_id: int = 1, **fields: Any) -> Sent:
    message = ScriptedMessage(1, x.mode, message_id)
    for name, value in fields.items():
        setattr(message, name, value)
    x.a.pds.send(message, x.now)
    x.a.poll()
    return x.a.sent("REQ", syn=1)
