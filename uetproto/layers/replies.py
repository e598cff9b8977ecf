# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the answers of a target: `uet_reply` returns its ACKs, responses and data.

    from uetproto.layers import uet_message, uet_reply
    answers = uet_reply(IP(dst="10.0.0.2") / UDP() / uet_message("READ", 10000), data=bytes(10000))

The target stores no data and executes nothing: the caller says how the requests end, and which data they return. The
answers follow pds.md §8.3 (when an ACK is sent), §8.4, §8.5 and §10, and ses.md §9.
"""

from collections.abc import Iterable
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from uetproto.errors import shown, similar
from uetproto.layers.base import LayerError
from uetproto.layers.messages import PSNS, UetPackets, code_of, number_of
from uetproto.layers.uet import LAYERS, UetLayer
from uetproto.wire.fields import Header
from uetproto.wire.headers import uet_pds, uet_ses, uet_tss
from uetproto.wire.headers.ethernet import Ecn
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CpPsn, CtlType, NackCode, PdsType
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    PAYLOAD_MTUS,
    AtomicDatatype,
    ResponseOpcode,
    ReturnCode,
)

_CONTROLS = (uet_pds.CP, uet_pds.CP_SYN)
_ASKING = (*uet_pds.REQUESTS, *_CONTROLS, uet_pds.RUDI_REQ, uet_pds.UUD_REQ)
_SACK_BITS = 64
_ROWS = {row.name: row for header in (uet_pds.NACK, uet_pds.ACK_CC, uet_pds.RUD_REQ) for row in header.fields}
"""Fields of the answers, by name."""
_OWN_FIELDS = ("mpr", "cc_flags", "vendor_code", "nack_payload")
"""Fields of ACKs and NACKs that do not follow from the packets."""
_GOOD = (ReturnCode.OK, ReturnCode.NULL)
_MOST_PDCS = 4096
_MOST_ARRIVED = 4096
"""Number of packets of a PDC, beyond those that arrived without a gap, that are remembered."""


def uet_reply(
    packets: Packet | Iterable[Packet],
    data: bytes | None = None,
    *,
    return_code: int | str = "OK",
    nack: int | str | None = None,
    every: bool = False,
    mtu: int = 4096,
    max_ack_data: int = 16,
    spdcid: int = 1,
    start_psn: int | None = None,
    **fields: int,
) -> UetPackets:
    """Return the answers of a target to `packets`, which arrive in this order. An answer has the addresses of its
    packet, exchanged.

    `data` is what each read or fetching atomic returns, from byte 0 of its message on. Without `data`, zeros are
    returned. `return_code` is the return code of all responses. If `nack` is given, each packet is refused by a NACK
    with this code. If `every` is true, every packet is answered by an ACK, otherwise only a packet for which an ACK is
    due. The data of a message travel in ACKs if they have at most `max_ack_data` bytes. Other data travel in the return
    direction, in packets of up to `mtu` bytes of payload. The first of these packets has the PSN `start_psn`, by
    default the first PSN of the PDC.

    If the packets open a PDC, `spdcid` is its PDCID at the target. `fields` may give `mpr` and `cc_flags` for ACKs, and
    `vendor_code` and `nack_payload` for NACKs. Packets that ask for nothing, such as datagrams and ACKs, are not
    answered. Raises `LayerError` for an illegal argument.
    """
    return UetResponder(
        data, return_code=return_code, nack=nack, every=every, mtu=mtu, max_ack_data=max_ack_data, spdcid=spdcid,
        start_psn=start_psn, **fields,
    ).reply(packets)  # fmt: skip


class UetResponder:
    """A responder is a target that lives longer than one call of `uet_reply`: it remembers which packets of its PDCs
    have arrived.

    At most 4096 PDCs are remembered, and of each at most 4096 packets beyond the first gap.
    """

    def __init__(
        self,
        data: bytes | None = None,
        *,
        return_code: int | str = "OK",
        nack: int | str | None = None,
        every: bool = False,
        mtu: int = 4096,
        max_ack_data: int = 16,
        spdcid: int = 1,
        start_psn: int | None = None,
        **fields: int,
    ) -> None:
        """The arguments are those of `uet_reply`. Raises `LayerError` for an illegal one."""
        code = code_of("return_code", return_code, ReturnCode)
        self._refusal = None if nack is None else code_of("nack", nack, NackCode)
        if mtu not in PAYLOAD_MTUS:
            raise LayerError("mtu", f"{shown(mtu)} is not legal", ", ".join(map(str, PAYLOAD_MTUS)), id="out-of-range")
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise LayerError("data", f"{shown(data)} is not legal", "bytes, None", id="wrong-type")
        for name in fields:
            if name not in _OWN_FIELDS:
                raise LayerError(
                    name, f"uet_reply has no such argument{similar(name, _OWN_FIELDS)}", ", ".join(_OWN_FIELDS),
                    id="unknown-argument"
                )  # fmt: skip
            number_of(_ROWS[name], name, fields[name])
        number_of(_ROWS["spdcid"], "spdcid", spdcid)
        if start_psn is not None:
            number_of(_ROWS["psn"], "start_psn", start_psn)
        if type(max_ack_data) is not int or max_ack_data < 0:
            raise LayerError("max_ack_data", f"{shown(max_ack_data)} is not legal", "0 and more", id="out-of-range")
        self._target = _Target(data, code, every, mtu, max_ack_data, spdcid, start_psn, fields)

    def asks(self, packet: Packet) -> bool:
        """Return whether a packet is one that may have an answer."""
        return _asking(packet) is not None

    def reply(self, packets: Packet | Iterable[Packet]) -> UetPackets:
        """Return the answers to packets, which arrive in this order. Raises `LayerError` for what is no packet, or has
        layers below UET that cannot be answered."""
        target, refusal = self._target, self._refusal
        if not isinstance(packets, Iterable):
            raise LayerError("packets", f"{shown(packets)} is not legal", "packets of Scapy", id="wrong-type")
        answers = UetPackets([], "answers")
        for packet in [packets] if isinstance(packets, Packet) else packets:
            if not isinstance(packet, Packet):
                raise LayerError("packets", f"{shown(packet)} is not legal", "packets of Scapy", id="wrong-type")
            pds = _asking(packet)
            if pds is not None:
                lower = _turned(packet, pds)
                found = target.answer(pds) if refusal is None else target.refuse(pds, refusal)
                answers.res += [answer if lower is None else lower / answer for answer in found]
        return answers


def _asking(packet: Packet) -> Any:
    """Return the PDS header of a packet that may have an answer, or None."""
    return next((layer for layer in packet.iterpayloads() if getattr(layer, "header", None) in _ASKING), None)


def _turned(packet: Packet, pds: Packet) -> Packet | None:
    """Return new layers below an answer to `pds`: addresses are exchanged, UDP ports stay (the source is entropy)."""
    lower, layer = None, packet
    while layer is not pds:
        kind: Any = type(layer)
        if isinstance(layer, Ether | IP | IPv6):
            part = kind(src=layer.dst, dst=layer.src)
        elif isinstance(layer, UDP):
            part = kind(sport=layer.sport, dport=layer.dport)
        elif isinstance(layer, Dot1Q):
            part = kind(vlan=layer.vlan, prio=layer.prio)
        elif getattr(layer, "header", None) is uet_tss.ENTROPY:
            part = kind(entropy=layer.getfieldval("entropy"))
        else:
            raise LayerError(
                "packets", f"{layer.name} below UET", "Ethernet, VLAN, IP, IPv6, UDP, entropy", id="wrong-packets"
            )
        lower = part if lower is None else lower / part
        layer = layer.payload
    return lower


class _Pdc:
    """The receiving end of a PDC: which PSNs arrived, and which responses must be kept (pds.md §2.3)."""

    def __init__(self, start: int, own_id: int, peer_id: int, return_psn: int) -> None:
        self.start, self.cack = start, (start - 1) % PSNS
        self.own_id, self.peer_id, self.return_start = own_id, peer_id, return_psn
        self.returned = 0
        self.highest = -1
        """Highest PSN that arrived, counted from `cack`."""
        self.arrived: set[int] = set()
        self.kept: set[int] = set()

    def take(self, psn: int, kept: bool) -> None:
        distance = (psn - self.cack) % PSNS
        if distance < PSNS // 2 and len(self.arrived) < _MOST_ARRIVED:
            self.highest = max(self.highest, distance)
            self.arrived.add(psn)
            if kept:
                self.kept.add(psn)
        while (self.cack + 1) % PSNS in self.arrived - self.kept:
            self.cack = (self.cack + 1) % PSNS
            self.arrived.discard(self.cack)
            self.highest -= 1

    def clear(self, psn: int) -> None:
        """Forget the responses up to CLEAR_PSN (pds.md §9.3)."""
        self.kept = {kept for kept in self.kept if (psn - kept) % PSNS >= PSNS // 2}


class _Target:
    """A target answers the packets of one call."""

    def __init__(
        self, data: bytes | None, code: ReturnCode, every: bool, mtu: int, max_ack_data: int, spdcid: int,
        start_psn: int | None, fields: dict[str, int],
    ) -> None:  # fmt: skip
        self.data, self.code, self.every, self.mtu, self.max_ack_data = data, code, every, mtu, max_ack_data
        self.spdcid, self.start_psn, self.fields = spdcid, start_psn, fields
        self.pdcs: dict[Any, _Pdc] = {}

    def answer(self, pds: Any) -> list[Packet]:
        """Return the answers to a packet."""
        ses: Any = next((lay for lay in pds.iterpayloads() if getattr(lay, "header", None) in uet_ses.REQUESTS), None)
        if pds.header is uet_pds.UUD_REQ or (ses is None and pds.header not in _CONTROLS):
            return []
        if pds.header is uet_pds.RUDI_REQ:
            response, payload = self._response(pds, ses, in_ack=True)
            return [_joined(LAYERS[uet_pds.RUDI_RESP.name](pkt_id=pds.pkt_id, **_copied(pds)), response, payload)]
        if pds.header in _CONTROLS:
            return self._control(pds)
        length = self._length(ses)
        in_ack = length is not None and self.code in _GOOD and (length <= self.max_ack_data or ses.opcode in ATOMICS)
        kept = in_ack or self.code not in _GOOD
        known = self.pdcs.get(self._key(pds))
        pdc = self._pdc(pds)
        first = pdc is not known
        pdc.clear(pds.psn + pds.clear_psn_offset)
        pdc.take(pds.psn, kept)
        answers = []
        if self.every or pds.ar or pds.retx or kept or (first and pds.syn):
            answers.append(self._ack(pdc, pds, *self._response(pds, ses, in_ack), kept=kept))
        if length is not None and not in_ack and self.code in _GOOD:
            answers.append(self._returned(pdc, pds, ses))
        return answers

    def refuse(self, pds: Any, code: NackCode) -> list[Packet]:
        """Return the NACK of a packet; datagrams and control packets get none."""
        if pds.header is uet_pds.UUD_REQ or pds.header in _CONTROLS:
            return []
        if pds.header is uet_pds.RUDI_REQ:
            return [self._layer(uet_pds.NACK_RUDI, nack_code=code, nack_pkt_id=pds.pkt_id, spdcid=0, dpdcid=0,
                                **_copied(pds))]  # fmt: skip
        own = 0 if pds.syn else pds.dpdcid
        return [self._layer(uet_pds.NACK, nack_code=code, nack_psn=pds.psn, spdcid=own, dpdcid=pds.spdcid,
                            **_copied(pds))]  # fmt: skip

    # Parts of answers

    def _layer(self, header: Header, **values: int) -> Any:
        return LAYERS[header.name](**values | {n: v for n, v in self.fields.items() if n in header.names})

    def _key(self, pds: Any) -> Any:
        ip = next((layer for layer in _below(pds) if isinstance(layer, IP | IPv6)), None)
        return (ip and ip.src, ip and ip.dst, pds.spdcid)

    def _pdc(self, pds: Any) -> _Pdc:
        start = (pds.psn - (pds.psn_offset if pds.header is not uet_pds.CP_SYN and pds.syn else 0)) % PSNS
        own = self.spdcid if pds.syn else pds.dpdcid
        if len(self.pdcs) >= _MOST_PDCS and self._key(pds) not in self.pdcs:
            del self.pdcs[next(iter(self.pdcs))]
        back = start if self.start_psn is None else self.start_psn
        found = self.pdcs.get(self._key(pds))
        if found is None or (pds.header is not uet_pds.CP_SYN and pds.syn and found.start != start):  # a new PDC
            found = self.pdcs[self._key(pds)] = _Pdc(start, own, pds.spdcid, back)
        return found

    def _control(self, pds: Any) -> list[Packet]:
        profile, pdc = CONTROLS.get(pds.ctl_type), self._pdc(pds)
        if pds.ctl_type == CtlType.CLEAR_CMD:
            pdc.clear(pds.ctl_payload)
        elif pds.ctl_type == CtlType.CLOSE_CMD:  # the initiator has all answers
            pdc.clear(pds.psn - 1)
        if profile is None or not pds.ar:
            return []
        if profile.psn is CpPsn.CONSUMED:
            pdc.take(pds.psn, kept=False)
        if pds.ctl_type == CtlType.PROBE:
            return [self._layer(uet_pds.ACK_PROBE, probe_opaque=pds.probe_opaque, cack_psn=pdc.cack,
                                spdcid=pdc.own_id, dpdcid=pdc.peer_id)]  # fmt: skip
        return [self._ack(pdc, pds, None, b"", kept=False)]

    def _ack(self, pdc: _Pdc, pds: Any, response: Any, payload: bytes, kept: bool) -> Packet:
        """Return the ACK of a packet: ACK_CC if a SACK tells more than CACK_PSN (pds.md §8.4)."""
        distance = (pds.psn - pdc.cack + PSNS // 2) % PSNS - PSNS // 2
        values = {
            "ack_psn_offset": distance, "cack_psn": pdc.cack, "spdcid": pdc.own_id, "dpdcid": pdc.peer_id,
            "req": AckReq.CLEAR if kept else AckReq.NONE, **_copied(pds),
        }  # fmt: skip
        if pdc.highest <= 0:
            return _joined(self._layer(uet_pds.ACK, **values), response, payload)
        offset = max(0, distance - _SACK_BITS + 1)
        bitmap = sum(
            1 << bit
            for bit in range(_SACK_BITS)
            if bit + offset == 0 or (pdc.cack + offset + bit) % PSNS in pdc.arrived
        )
        ack = self._layer(uet_pds.ACK_CC, **values, sack_psn_offset=offset, sack_bitmap=bitmap)
        return _joined(ack / LAYERS[uet_pds.CC_STATE_NSCC.name](), response, payload)

    def _length(self, ses: Any) -> int | None:
        """Return the number of bytes that the request asks for; None if it asks for none."""
        profile = OPCODE_PROFILES.get(ses.opcode)
        if profile is None or not profile.fetches:
            return None
        if ses.opcode not in ATOMICS:
            return int(ses.request_length)
        extension = ses.payload
        if not isinstance(extension, UetLayer):
            return int(ses.request_length)
        datatype = extension.getfieldval("atomic_datatype")
        return ELEMENT_SIZE[AtomicDatatype(datatype)] if datatype in list(AtomicDatatype) else int(ses.request_length)

    def _part(self, ses: Any) -> tuple[int, bytes]:
        """Return offset and bytes of the data for a request packet."""
        whole = self._length(ses) or 0
        at = ses.getfieldval("message_offset") if "message_offset" in ses.fieldtype else 0
        size = ses.payload_length if "payload_length" in ses.fieldtype else whole if ses.eom else min(self.mtu, whole)
        size = min(size, self.mtu)
        if self.data is None:
            return at, bytes(size)
        if len(self.data) < at + size:
            raise LayerError(
                "data", f"{len(self.data)} bytes are not enough", f"{whole} bytes, or None", id="wrong-length"
            )
        return at, bytes(self.data[at : at + size])

    def _response(self, pds: Any, ses: Any, in_ack: bool) -> tuple[Any, bytes]:
        """Return the response to a request packet and the data behind it (ses.md §9.1, §9.2, §9.4)."""
        if in_ack and self._length(ses) is not None and self.code in _GOOD:
            return self._data(pds, ses)
        good = self.code in _GOOD
        return LAYERS[uet_ses.RESPONSE.name](
            opcode=ResponseOpcode.DEFAULT_RESPONSE if good else ResponseOpcode.RESPONSE, return_code=self.code,
            message_id=ses.message_id if "message_id" in ses.fieldtype else 0, job_id=ses.job_id,
            modified_length=ses.request_length if good else 0,
        ), b""  # fmt: skip

    def _data(self, pds: Any, ses: Any) -> tuple[Any, bytes]:
        """Return the header of return data and the data (ses.md §9.6)."""
        at, part = self._part(ses)
        values = {"return_code": self.code, "payload_length": len(part), "job_id": ses.job_id}
        if "message_id" not in ses.fieldtype:
            psn = pds.psn if "psn" in pds.fieldtype else pds.pkt_id
            return LAYERS[uet_ses.RESPONSE_DATA_SMALL.name](original_request_psn=psn, **values), part
        return LAYERS[uet_ses.RESPONSE_DATA.name](
            response_message_id=ses.message_id,
            read_request_message_id=ses.message_id,
            message_offset=at,
            modified_length=ses.request_length,
            **values,
        ), part

    def _returned(self, pdc: _Pdc, pds: Any, ses: Any) -> Packet:
        """Return the request of the target that carries the data for a request packet (pds.md §10)."""
        number = pdc.returned
        pdc.returned += 1
        kind = uet_pds.ROD_REQ if pds.type in (PdsType.ROD_REQ, PdsType.ROD_CC_REQ) else uet_pds.RUD_REQ
        request = LAYERS[kind.name](
            psn=(pdc.return_start + number) % PSNS, clear_psn_offset=max(-1 - number, -(1 << 15)), ar=1,
            spdcid=pdc.own_id, dpdcid=pdc.peer_id,
        )  # fmt: skip
        return _joined(request, *self._data(pds, ses))


def _joined(pds: Packet, response: Packet | None, payload: bytes) -> Packet:
    packet = pds if response is None else pds / response
    return packet / Raw(payload) if payload else packet


def _below(layer: Any) -> Iterable[Any]:
    while layer.underlayer is not None:
        layer = layer.underlayer
        yield layer


def _copied(pds: Any) -> dict[str, int]:
    """Return the flags that an answer copies from a packet: `retx`, and `m` if the packet is ECN-marked."""
    ip = next((layer for layer in _below(pds) if isinstance(layer, IP | IPv6)), None)
    traffic = 0 if ip is None else ip.tos if isinstance(ip, IP) else ip.tc
    return {"retx": int(pds.retx), "m": int(traffic & 3 == Ecn.CE)}
