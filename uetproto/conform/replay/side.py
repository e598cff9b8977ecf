# SPDX-License-Identifier: GPL-2.0-only
"""This module reads one side of a capture: whose packets there are, and whether they can be sent again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Generic, NamedTuple, TypeVar

from uetproto.conform.player import Answer
from uetproto.errors import LocalError
from uetproto.wire.capture.base import Record
from uetproto.wire.headers.uet_ses import ReturnCode
from uetproto.wire.packet import Packet
from uetproto.wire.words.text import numbered

MOST_ADDRESSES = 4096
"""Number of addresses of a capture that are remembered."""
NO_KEY = -1
_TOLD = 12
"""Number of addresses that an error names."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class SidePacket(NamedTuple, Generic[AnswerT]):
    """This record is a packet of a capture that one side sent or received."""

    number: int
    """Number of the packet in the capture, from 0."""
    time_ns: int
    sent: bool
    """Whether the side sent the packet."""
    other: int
    """Address of the other end."""
    answer: AnswerT


@dataclass(slots=True)
class SideSurvey:
    """This class has what one reading of a capture tells of a side."""

    senders: dict[int, str] = field(default_factory=dict)
    """Addresses that send packets of the protocol, and their texts."""
    packets: int = 0
    """Number of packets of the capture."""
    key: int = NO_KEY
    """First memory key of the side that its peer did not refuse as unknown, or `NO_KEY` if there is none."""
    longest: int = 0
    """Number of bytes of the longest packet of the side, from the IP header on."""

    def note(self, version: int, sender: int) -> None:
        """Note who sends a packet of the protocol."""
        if sender not in self.senders and len(self.senders) < MOST_ADDRESSES:
            self.senders[sender] = _text(version, sender)

    def measure(self, number: int, record: Record, packet: Packet, file: str) -> None:
        """Note the size of a packet of the side. Raises `LocalError` for one that was cut by the capture."""
        if record.length > len(record.data) or "truncated" in packet.notes:
            size = f" of its {record.length}" if record.length > len(record.data) else ""
            raise LocalError(
                file, f"{numbered(number)} has {len(record.data)}{size} bytes",
                "whole packets; the capture was cut (snap length)",
                id="nothing-to-replay",
            )  # fmt: skip
        lower = next(layer for layer in packet.layers if layer.form in ("ipv4", "ipv6"))
        self.longest = max(self.longest, record.length - lower.offset)

    def nobody(self, version: int, address: int, file: str, protocol: str, other: str) -> LocalError:
        """Return the error that an address sends nothing of the protocol. `other` is the transport that it speaks, as
        `--transport` has it, or empty."""
        told = f"{_text(version, address)} sends no {protocol} packet in {file}"
        if other:
            return LocalError("--transport", told, other, id="nothing-to-replay")
        names = [self.senders[sender] for sender in sorted(self.senders)]
        more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
        legal = ", ".join(names[:_TOLD]) + more
        return LocalError(
            "--as", told, legal or f"a sender of {protocol}; the capture has none", id="nothing-to-replay"
        )


def _text(version: int, address: int) -> str:
    return str(ip_address(address.to_bytes(4 if version == 4 else 16, "big")))


def address_of(packet: Packet) -> tuple[int, int, int] | None:
    """Return IP version, source and destination of a packet, or None if it is no IP packet."""
    for form, version in (("ipv4", 4), ("ipv6", 6)):
        if form in packet:
            ip = packet[form]
            return version, ip["src"], ip["dst"]
    return None


def survey(packets: Iterable[tuple[Record, Packet]], version: int, address: int, file: str) -> SideSurvey:
    """Read a capture, and return what it has of the side with an address.

    Raises `LocalError` if the capture has no UET packet from this address, or one that cannot be sent again: sealed, or
    cut by the capture.
    """
    found, roce, keys = SideSurvey(), False, _KeysOfSide()
    for number, (record, packet) in enumerate(packets):
        found.packets += 1
        ends = address_of(packet)
        if ends is None or "fragment" in packet.notes:
            continue
        sender = ends[1]
        ours = (ends[0], sender) == (version, address)
        if "bth" in packet:
            roce = roce or ours
            continue
        sealed = "sealed" in packet.notes
        if not sealed and not any(layer.form.startswith("pds.") for layer in packet.layers):
            continue
        found.note(ends[0], sender)
        keys.look(packet, ours)
        if not ours:
            continue
        if sealed:
            raise LocalError(
                file, f"{numbered(number)} is sealed", "--captured-keys FILE with the key that opens it",
                id="missing-keys"
            )  # fmt: skip
        found.measure(number, record, packet, file)
    if address not in found.senders:
        raise found.nobody(version, address, file, "UET", "rc" if roce else "")
    found.key = keys.first
    return found


class _KeysOfSide:
    """Finds the memory keys of a side, and which of them its peer refused."""

    def __init__(self) -> None:
        self._keys: dict[int, bool] = {}
        """Whether each key is good, as far as is known, in the order in which they came."""
        self._of_message: dict[tuple[int, int], int] = {}

    def look(self, packet: Packet, ours: bool) -> None:
        """Look at a packet, of the side or of another one."""
        values = {name: value for layer in packet.layers if layer.form.startswith(("pds.", "ses."))
                  for name, value in layer.values.items()}  # fmt: skip
        if ours and "memory_key" in values and len(self._of_message) < MOST_ADDRESSES:
            self._keys.setdefault(values["memory_key"], True)
            self._of_message[values.get("spdcid", 0), values.get("message_id", 0)] = values["memory_key"]
        elif not ours and values.get("return_code") == ReturnCode.BAD_MKEY:
            key = self._of_message.get((values.get("dpdcid", 0), values.get("message_id", 0)))
            if key is not None:
                self._keys[key] = False

    @property
    def first(self) -> int:
        """Return the first key that was not refused, or `NO_KEY`."""
        return next((key for key, good in self._keys.items() if good), NO_KEY)


def of_side(
    packets: Iterable[tuple[Record, Packet]], version: int, address: int, read: Callable[[Packet], AnswerT | None]
) -> Iterator[SidePacket[AnswerT]]:
    """Yield the packets that an address sent or received and that `read` knows. Packets that were trimmed on their way
    are left out, as nobody has sent them so."""
    for number, (record, packet) in enumerate(packets):
        ends = address_of(packet)
        if ends is None or ends[0] != version or address not in ends[1:] or "trimmed" in packet.notes:
            continue
        answer = read(packet)
        if answer is not None:
            sent = ends[1] == address
            yield SidePacket(number, record.time_ns, sent, ends[2] if sent else ends[1], answer)
