# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the test vectors, and builds frames around the bytes of one header."""

import json
from typing import Any

from tests.support import paths

VECTORS: list[dict[str, Any]] = json.loads(paths.VECTORS.read_text())["vectors"]
FIRST_BYTES = {  # what makes a frame end in the form: the UET headers before it
    "entropy": "",
    "tss": "", "tss.ssi": "",
    "pds.req_cc_state": "68000000" + "00" * 8,  # after pds.rud_cc_req
    "pds.cc_state.nscc": "40000000" + "00" * 20,  # after pds.ack_cc with cc_type 0
    "pds.cc_state.credit": "40000000" + "00" * 8 + "10" + "00" * 11,
    "pds.cc_state.other": "40000000" + "00" * 8 + "20" + "00" * 11,
    "pds.ccx_state": "48000000" + "00" * 20,
    "pds.nack_ccx_state": "60000000" + "00" * 12,
    "ses.ext.rendezvous": "11800000" + "00" * 8 + "0603" + "00" * 42,  # after ses.send_std.som
    "ses.ext.atomic": "11800000" + "00" * 8 + "0303" + "00" * 42,
    "ses.ext.atomic_cas": "11800000" + "00" * 8 + "0303" + "00" * 42,
    "ses.ext.sync": "11800000" + "00" * 8 + "1003" + "00" * 42,
    "ses.response": "3a000000" + "00" * 8,  # after pds.ack
    "ses.response_data": "3a800000" + "00" * 8,
    "ses.response_data_small": "3b000000" + "00" * 8,
}  # fmt: skip


def uet_before(form: str) -> bytes:
    """Return the shortest legal UET bytes that lead to `form`."""
    if form in FIRST_BYTES or form.startswith("pds."):
        return bytes.fromhex(FIRST_BYTES.get(form, ""))
    size = {"ses.request_small": 1, "medium": 2, "std": 3}
    code = next(value for name, value in size.items() if name in form)
    return (2 << 11 | code << 7).to_bytes(2, "big") + bytes(10)  # pds.rud_req


def frame_around(uet: bytes, *, native: bool, total: int | None = None) -> bytes:
    """Return a frame around UET bytes: Ethernet, IPv4 and UDP, or the entropy header, packed here without the codec."""
    inner = uet if native else bytes.fromhex("c00012b9") + (8 + len(uet)).to_bytes(2, "big") + b"\0\0" + uet
    length = 20 + (len(inner) if total is None else total)
    ip = (
        bytes.fromhex("4520")
        + length.to_bytes(2, "big")
        + bytes.fromhex("00004000 40")
        + bytes([253 if native else 17])
    )
    return bytes(12) + b"\x08\x00" + ip + b"\0\0" + bytes.fromhex("0a00000b 0a00010b") + inner
