# SPDX-License-Identifier: GPL-2.0-only
"""This module has requester and responder of UD, which sends and receives single datagrams, also by multicast (roce.md
§11)."""

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import AddressVector, RocePacket, Status, WcFlags, WcOpcode
from uetproto.engine.roce.memory import BadKeyError
from uetproto.engine.roce.packets import Parsed, RocePath
from uetproto.engine.roce.qp import Qp
from uetproto.engine.roce.requester import Wqe
from uetproto.engine.roce.segments import WITH_IMM, size_is_legal
from uetproto.engine.roce.uc import UcRequester, UcResponder
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import IPV4, IPV6, UDP, Ecn, IpProtocol, internet_checksum
from uetproto.wire.headers.roce import MULTICAST_QP
from uetproto.wire.icrc import ICRC_SIZE
from uetproto.wire.tuples import DethHeader

GRH_SIZE = 40
"""Number of bytes before the payload in a receive on UD, which hold the GRH or IP header."""
OWN_QKEY = 1 << 31
"""Bit of the q_key in a work request. If it is set, the packet has the q_key of the sending queue pair."""
NO_RECEIVE = "no receive"
"""Name of the counter of datagrams that were dropped because no receive was posted."""
MANAGEMENT_QP, MANAGEMENT_QKEY = 1, 0x80010000
"""Number and q_key of the management queue pair. Its attribute `qkey` is not used."""

_IPV4, _IPV6 = codec_of(IPV4), codec_of(IPV6)
_IPV4_MAPPED = 0xFFFF


def group_of(gid: int) -> int:
    """Return the IP address that a GID stands for. A GID `::ffff:a.b.c.d` stands for an IPv4 address (roce.md §1,
    §11)."""
    return gid & 0xFFFFFFFF if gid >> 32 == _IPV4_MAPPED else gid


def is_multicast(address: int, ip_version: int) -> bool:
    """Return True when an address is a multicast address, in 224.0.0.0/4 or ff00::/8."""
    return address >> 28 == 0xE if ip_version == 4 else address >> 120 == 0xFF


def q_key_of(qp: Qp) -> int:
    """Return the q_key of a queue pair (roce.md §11)."""
    return MANAGEMENT_QKEY if qp.number == MANAGEMENT_QP else qp.attributes.qkey


class UdRequester(UcRequester):
    """The requester of a UD queue pair sends one packet for each work request, to the address in the work request."""

    def __init__(self, qp: Qp) -> None:
        super().__init__(qp)
        self._paths: dict[tuple[AddressVector, int], RocePath] = {}

    def refresh(self) -> None:
        self._paths.clear()

    def packet(
        self, wqe: Wqe, operation: int, headers: bytes, payload: bytes | bytearray | memoryview, se: int, now: int
    ) -> RocePacket:
        work, qp = wqe.work, self.qp
        assert work.ah is not None
        key = work.ah, work.remote_qpn
        path = self._paths.get(key)
        if path is None:
            hca = qp.hca
            path = self._paths[key] = RocePath(
                qp.kind, qp.number, hca.address, hca.ip_version, work.ah, work.remote_qpn, qp.p_key, hca.config
            )
        q_key = q_key_of(qp) if work.remote_qkey & OWN_QKEY else work.remote_qkey
        packet = path.packet(
            operation, self.psn, DethHeader.pack(q_key=q_key, srcqp=qp.number) + headers, payload, se=se
        )
        if work.remote_qpn == MULTICAST_QP and qp.hca.config.multicast_loopback:
            qp.hca.loop_back(packet, now)
        return packet


class UdResponder(UcResponder):
    """The responder of a UD queue pair stores each packet in a receive of its own.

    A packet that does not fit its receive is counted and dropped.
    """

    def take(self, parsed: Parsed, now: int) -> None:
        qp = self.qp
        why = self._drop_reason(parsed)
        if why is not None:
            qp.hca.count(why)
            return
        receive = qp.peek_receive()
        assert receive is not None
        segments = self.segments(receive)
        self._receive = self._segments = None
        network = parsed.packet.network
        try:
            segments.check()
            segments.write(0, first_bytes(network, self.config))
            segments.write(GRH_SIZE, parsed.payload)
        except BadKeyError:
            qp.hca.count("cannot be stored")
            return
        immediate = parsed.values["immdt"] if parsed.operation in WITH_IMM else None
        flags = WcFlags.GRH if len(network) else WcFlags(0)
        qp.hold_receive()
        qp.end_receive(
            Status.SUCCESS, WcOpcode.RECV, byte_len=len(parsed.payload) + GRH_SIZE, imm_data=immediate,
            src_qp=parsed.values["srcqp"], wc_flags=flags | (WcFlags.WITH_IMM if immediate is not None else 0),
            solicited=bool(parsed.se),
        )  # fmt: skip

    def _drop_reason(self, parsed: Parsed) -> str | None:
        """Return why a packet is dropped, the name of the counter; None if it is legal."""
        step, size = parsed.step, len(parsed.payload)
        if step is None:
            return "unknown opcode"
        if parsed.values["q_key"] != q_key_of(self.qp):
            return "q_key"
        if not size_is_legal(step, size, self.path_mtu) or not parsed.pad_is_legal:
            return "wrong length"
        receive = self.qp.peek_receive()
        if receive is None:
            return NO_RECEIVE
        if size + GRH_SIZE > sum(part.length for part in receive.sg_list):
            return "wrong length"
        return None


def first_bytes(network: Buffer, config: RoceConfig) -> bytes:
    """Return the 40 bytes before the payload in a receive.

    They are a GRH, an IPv6 header, or an IPv4 header after 20 undefined bytes.
    """
    fill = bytes([config.ud_ipv4_fill])
    return bytes(network)[:GRH_SIZE].rjust(GRH_SIZE, fill)


def network_header(packet: RocePacket, config: RoceConfig) -> bytes:
    """Return the IP header that a packet would have on the wire, for a copy that is delivered within the adapter."""
    size = len(packet.header) + len(packet.payload) + UDP.size + ICRC_SIZE
    common = {
        "dscp": config.dscp,
        "ecn": {"ect0": Ecn.ECT0, "ect1": Ecn.ECT1, "not_ect": Ecn.NOT_ECT}[config.ecn],
        "src": packet.src,
        "dst": packet.dst,
    }
    hop_limit = packet.hop_limit or config.hop_limit
    if packet.ip_version == 4:
        values = common | {
            "ihl": 5, "total_length": _IPV4.size + size, "df": 1, "ttl": hop_limit, "protocol": IpProtocol.UDP,
        }  # fmt: skip
        return _IPV4.encode(values | {"checksum": internet_checksum(_IPV4.encode(values))})
    values = common | {
        "flow_label": packet.flow_label, "payload_length": size, "next_header": IpProtocol.UDP, "hop_limit": hop_limit,
    }  # fmt: skip
    return _IPV6.encode(values)
