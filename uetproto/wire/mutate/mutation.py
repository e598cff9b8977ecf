# SPDX-License-Identifier: GPL-2.0-only
"""This module makes frames wrong on purpose by named mutations, for tests, fuzzing and audits (interfaces.md §7).

    wrong = MUTATIONS["bad-next-hdr"](frame, rng)                     needs this frame only
    wrong = MUTATIONS_OF_HISTORY["clear-falls"](frame, rng, history)  needs earlier frames: `history.note(frame)`
    wrong = mutate(name, frame, rng, history)                         applies a mutation of either kind

A mutation changes what its name says and nothing else. The CRC and the IPv4 checksum are corrected, so that an audit
finds the change only by the rule that `uet.py` or `roce.py` states. A mutation returns None if it does not apply to the
frame. It keeps no state, and takes random numbers from `rng`. Every function here takes `link` and `roce_port`, as
`decode` does.
"""

from collections.abc import Callable
from functools import partial

from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.mutate import roce, uet
from uetproto.wire.mutate.frame import Mutation, MutationRng, open_frame
from uetproto.wire.mutate.tunnels import ABOUT_TUNNELS, TUNNELS, in_tunnel


class FrameHistory:
    """A history keeps what earlier frames contained, for mutations that contradict them. It forgets the oldest."""

    def __init__(self, flows: int = 256, packets: int = 64) -> None:
        self.uet = uet.UetHistory(flows, packets)
        self.roce = roce.RoceHistory(flows, packets)

    def note(self, data: bytes, *, link: str = "ethernet", roce_port: int = ROCE_PORT) -> None:
        """Remember the content of a frame, which must be as it was before any mutation."""
        frame = open_frame(data, link, roce_port)
        if frame is not None:
            (self.roce if frame.is_roce else self.uet).note(frame)


def mutate(
    name: str,
    data: bytes,
    rng: MutationRng,
    history: FrameHistory | None = None,
    *,
    link: str = "ethernet",
    roce_port: int = ROCE_PORT,
) -> Mutation | None:
    """Apply the mutation `name`, which is one of `ALL`, to the frame `data`.

    A mutation of `MUTATIONS_OF_HISTORY` needs earlier frames in `history`. Return None if the mutation does not apply
    to the frame or would not change it. Raises `KeyError` for an unknown name.
    """
    if name in TUNNELS:
        return in_tunnel(name, data, rng) if link == "ethernet" else None
    if name not in ABOUT:
        raise KeyError(name)
    frame = open_frame(data, link, roce_port)
    if frame is None:
        return None
    found, rule = None, None
    changes, contradictions = _TABLES[frame.is_roce]
    if name in changes:
        change, rule = changes[name]
        found = change(frame, rng)
    elif name in contradictions and history is not None:
        contradict, rule = contradictions[name]
        found = contradict(frame, rng, history.roce if frame.is_roce else history.uet)
    if found is None or found.before == found.after:
        return None
    return found if rule is None else found._replace(rule=rule)


ABOUT: dict[str, str] = {
    "bad-crc":                "one bit of the CRC32C or ICRC behind the packet",
    "reserved-bit":           "one bit of a reserved field of PDS, SES, TSS or RoCE",
    "reserved-type":          "PDS type that is reserved",
    "bad-next-hdr":           "next_hdr that may not follow this PDS header",
    "bad-version":            "SES version, or tver of a BTH, other than 0",
    "unknown-opcode":         "SES or BTH opcode that is not defined",
    "unknown-code":           "undefined NACK code, control type, return code, AMO, datatype or syndrome",
    "cut":                    "the frame ends early, and no length says so",
    "extra-bytes":            "bytes behind the payload that SES, or a BTH and RETH, imply",
    "ip-length":              "length in the IP header, GRH or LRH other than that of the packet",
    "length-over":            "SES or a RETH says more payload than there is",
    "length-under":           "SES or a RETH says less payload than there is",
    "opcode-change":          "opcode other than in the rest of the message",
    "key-change":             "memory key, match bits or p_key other than in the rest of the message; any r_key",
    "job-change":             "JobID other than in the rest of the message",
    "clear-positive":         "a packet that clears itself, or what was never sent",
    "response-wrong-id":      "response for a message id, or PSN, that was not asked",
    "default-with-error":     "default response with an error code",
    "payload-flip-crc-fixed": "one bit of the payload, the CRC made right again: no audit can see it",
    "offset-overlap":         "message_offset of another packet of the message",
    "som-twice":              "a second packet of a message with SOM",
    "psn-two-contents":       "PSN that stood for another packet",
    "clear-falls":            "CLEAR_PSN below that of an earlier packet",
    **ABOUT_TUNNELS,
}  # fmt: skip
"""Line of text that says what is wrong after a mutation, by the name of the mutation."""

_TABLES = (uet.CHANGES, uet.CHANGES_OF_HISTORY), (roce.CHANGES, roce.CHANGES_OF_HISTORY)

MUTATIONS: dict[str, Callable[..., Mutation | None]] = {name: partial(mutate, name) for name in uet.CHANGES}
MUTATIONS_OF_HISTORY: dict[str, Callable[..., Mutation | None]] = {
    name: partial(mutate, name) for name in uet.CHANGES_OF_HISTORY
}
"""Mutations that need earlier frames, by name. `uet.py` and `roce.py` say what each changes, and which rule finds
it."""

NAMES = (*MUTATIONS, *MUTATIONS_OF_HISTORY)
ALL = (*NAMES, *TUNNELS)
"""Names of mutations, and of tunnels, in which nothing is wrong."""
