# SPDX-License-Identifier: GPL-2.0-only
"""This module lists the rules that known implementations break. Findings of these rules are notes (observed.md)."""

from collections.abc import Mapping

from uetproto.errors import LocalError, argument, similar

REFPROV: dict[str, str] = {
    # rule                     the reference provider's habit
    "WIRE-ECN":                "requests, RUDI responses and UUD have ToS 0",
    "PDS-ACK-REQ-AR":          "ACK_REQ has ar 0",
    "PDS-ACK-RETX":            "every ACK has retx 0; NACKs copy it",
    "PDS-CLOSE-CACK":          "the ACK of CLOSE_CMD has the PSN before it as CACK_PSN",
    "PDS-CP-ISROD":            "isrod is 0 in every control packet, on ROD too",
    "PDS-EXPECTED-PSN":        "a closing ACK expects Start_PSN + 1: PSNs are used again",
    "PDS-START":               "a PDC opened again uses PSNs of the one before",
    "PDS-START-DISTANCE":      "a PDC opened again uses PSNs of the one before",
    "PDS-STILL-OPEN":          "a PDC opened again uses PSNs of the one before",
    "SES-DATA-HEADER":         "read data tells the generation of its index",
    "SES-HD-LATER":            "hd is set in the first packet of a message only",
    "SES-INDEX-ZERO":          "DEFERRABLE_RTR has resource index 0",
    "SES-MESSAGE-ID-ZERO":     "message ids count from 0",
    "SES-RESPONSE-GENERATION": "every response tells the generation of its index",
    "SES-MESSAGING-CODE":      "reads, writes and atomics are answered with BAD_GENERATION",
    "SES-RMA-GENERATION":      "reads, writes and atomics carry the generation of untagged sends",
    "SES-ROD-NO-MATCH":        "the first message on ROD that finds no buffer is answered with NO_MATCH",
    "SES-RTR-OWNER":           "a deferred message restarts with the same id and tokens",
    "SES-STOP-LIST":           "only the first packet of a deferred message is answered with OVERFLOW",
    "SES-TOKEN-ZERO":          "restart tokens count from 0, and half of them is always 0",
    "TSS-CLEAR-AMONG-SEALED":  "NACKs INV_DPDCID and NEW_START_PSN travel outside the seal",
    "TSS-NONCE-SHARED":        "both directions of mode client-server use the same counters",
    "TSS-TSC-HALF":            "servers leave bit 47 of the TSC 0, as clients do",
    "UUD-MESSAGE-ID":          "datagrams have message ids",
    "UUD-OPCODE":              "datagrams are SEND",
}  # fmt: skip

PERSONALITIES: Mapping[str, Mapping[str, str]] = {"refprov": REFPROV}
"""Maps the name of an implementation to the ids of the rules that it breaks, each with a text that says how."""


def excused_by(name: str | None) -> Mapping[str, str]:
    """Return the ids of the rules whose findings are notes, each with the reason. Without a name, there are none.
    Raises `LocalError` for an unknown personality."""
    if name is None:
        return {}
    if name not in PERSONALITIES:
        raise LocalError(
            argument("personality", name), f"is not known{similar(name, PERSONALITIES)}", ", ".join(PERSONALITIES),
            id="unknown-personality"
        )  # fmt: skip
    return PERSONALITIES[name]
