# SPDX-License-Identifier: GPL-2.0-only
"""This module sends packets of Scapy over a real link, and answers them: `sr_uet`, `srp_uet`, `UetAnsweringMachine`.

    from uetproto.scapy import sr_uet
    answered, rest = sr_uet(IP(dst="10.0.0.2") / UDP() / uet_message("WRITE", b"data", memory_key=1))

Scapy's `sr` sends with the privileges of root, and expects the answer at the source port of the request. Answers of UET
go to port 4793, whatever the source port is. Nothing of Scapy's `conf` is changed here.
"""

import select
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, TypeAlias

from scapy.ansmachine import AnsweringMachine
from scapy.config import conf
from scapy.error import warning
from scapy.interfaces import resolve_iface
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw
from scapy.plist import PacketList, SndRcvList
from scapy.sendrecv import AsyncSniffer, sndrcv, sniff
from scapy.supersocket import SuperSocket

from uetproto.errors import LocalError, shown
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.layers import LayerError, UetPackets, UetResponder
from uetproto.layers.uet import Uet
from uetproto.live import Interface, sockets
from uetproto.live.interface import AUTO, address_of
from uetproto.live.path import PathSetup, open_path
from uetproto.wire.forms import UDP_PORT

__all__ = ["UetAnsweringMachine", "UetL2Socket", "UetSocket", "sr_uet", "srp_uet"]

TIMEOUT = 2
"""Number of seconds for which answers are waited for, unless another one is given."""
_FIRST_ENTROPY = 0xC000
"""Source port of packets that have none of their own. A socket that receives has port 4793."""
_ROOM = 1.0
"""Number of seconds for which a packet may wait for room in the kernel."""

Packets: TypeAlias = Packet | Iterable[Packet]


class _AnswerUdp(UDP):  # type: ignore[misc]
    """This layer stands for UDP in an answer while it is compared with requests: its ports say nothing."""

    def answers(self, other: Packet) -> int:
        return self.payload.answers(other.payload) if isinstance(other, UDP) else 0


def _comparable(packet: Packet) -> Packet:
    """Return a received packet, whose UDP layer does not compare ports."""
    layer = packet.getlayer(UDP)
    if layer is not None:
        layer.__class__ = _AnswerUdp
    return packet


def _usual(packet: Packet) -> Packet:
    """Return a packet of `_comparable` with Scapy's UDP layer again."""
    layer = packet.getlayer(_AnswerUdp)
    if layer is not None:
        layer.__class__ = UDP
    return packet


class UetSocket(SuperSocket):  # type: ignore[misc]
    """This socket of Scapy sends and receives IP packets of UET on a real link, at one local address."""

    def __init__(
        self, local: str, *, port: int | None = UDP_PORT, local_port: int | None = None, ip_protocol: int = 253,
        path: str = AUTO, device: str | None = None,
    ) -> None:  # fmt: skip
        """Open the socket.

        `port` is the UDP port of peers, and None stands for native IP packets of `ip_protocol`. `local_port` is the
        port at which packets arrive, by default the same. `path` and `device` are those of `live.Interface`. Raises
        `LocalError` for a path, an address or a port that is not to be had.
        """
        interface = Interface(local, path=path, device=device, local_port=local_port)
        version = interface.address.version
        how = Encapsulation(udp=port is not None, udp_port=port or UDP_PORT, ip_protocol=ip_protocol)
        framer = UetFramer(int(interface.address), version, how, local_port=local_port)
        self.path = open_path(
            PathSetup(
                interface=interface, transport="uet", peer_port=port, ip_protocol=ip_protocol,
                lower_headers=framer.lower_headers,
            )
        )  # fmt: skip
        self.local, self.port = str(interface.address), port
        self.ins = self.outs = None
        self._kind: Any = IP if version == 4 else IPv6

    def prepared(self, packet: Packet) -> Packet:
        """Return a copy of a packet with the local address as its source, and UDP ports, where none are given.

        Raises `LayerError` for a packet with another source or destination port, or of another IP version.
        """
        packet = packet.copy()
        ip, udp = packet.getlayer(self._kind), packet.getlayer(UDP)
        if ip is None or packet is not ip:
            raise LayerError(
                "packets", f"{packet.summary()} does not begin with {self._kind.__name__}", "such packets",
                id="wrong-packets"
            )  # fmt: skip
        if "src" not in ip.fields:
            ip.src = self.local
        elif ip_address(ip.src) != ip_address(self.local):
            raise LayerError("src", f"{ip.src} is not the address of this socket", self.local, id="wrong-local-address")
        if udp is not None:
            if "sport" not in udp.fields:
                udp.sport = _FIRST_ENTROPY
            if "dport" not in udp.fields and self.port is not None:
                udp.dport = self.port
            elif udp.dport != self.port:
                raise LayerError(
                    "dport", f"{udp.dport} is not that to which this socket sends", self.port, id="wrong-packets"
                )
        return packet

    def send(self, x: Packet) -> int:
        """Send a packet, and return its size. Raises `LocalError` if it is too long for the link, or if the kernel has
        no room for it."""
        frame = bytes(ETHERNET_SIZE) + bytes(x)
        while not self.path.send([frame]):
            blocked = self.path.blocked
            _, writable, _ = select.select((), () if blocked is None else (blocked,), (), _ROOM)
            if blocked is None or not writable:
                raise LocalError(
                    "packets", "the kernel has no room for a packet", "fewer at a time", id="send-buffer-full"
                )
        return len(frame) - ETHERNET_SIZE

    def recv(self, x: int = 0, **kwargs: Any) -> Packet | None:
        """Return a packet that has arrived, or None."""
        frames = self.path.receive(1)
        if not frames:
            return None
        packet = self._kind(frames[0][ETHERNET_SIZE:])
        udp = packet.getlayer(UDP)
        if udp is not None and isinstance(udp.payload, Raw):  # it came at another port than that of UET
            data = udp.payload.load
            udp.remove_payload()
            udp.add_payload(Uet(data, _underlayer=udp))
        return _comparable(packet)

    def fileno(self) -> int:
        return self.path.fileno()

    def close(self) -> None:
        self.closed = True
        self.path.close()

    def __del__(self) -> None:
        if "path" in self.__dict__:
            self.close()


class UetL2Socket(SuperSocket):  # type: ignore[misc]
    """This socket of Scapy sends and receives whole frames at a network interface, for which it needs CAP_NET_RAW."""

    def __init__(self, iface: str) -> None:
        """Open the socket. Raises `LocalError` if the interface or the privileges are not to be had."""
        try:
            self._inner = resolve_iface(iface).l2socket()(iface=iface)
        except PermissionError:
            legal = "root, or setcap cap_net_raw+ep of the Python program"
            raise LocalError("iface", "packet sockets need CAP_NET_RAW", legal, id="not-permitted") from None
        except (OSError, ValueError) as error:
            raise LocalError(
                "iface", f"{shown(iface)}: {error}", "a network interface that is up", id="interface-not-found"
            ) from None
        self.ins, self.outs = self._inner.ins, self._inner.outs

    def prepared(self, packet: Packet) -> Packet:
        """Return a copy of a frame."""
        return packet.copy()

    def send(self, x: Packet) -> int:
        """Send a frame, and return its size."""
        return int(self._inner.send(x))

    def recv(self, x: int = 65535, **kwargs: Any) -> Packet | None:
        """Return a frame that has arrived, or None."""
        found = self._inner.recv(x, **kwargs)
        return None if found is None else _comparable(found)

    def fileno(self) -> int:
        return int(self._inner.fileno())

    def close(self) -> None:
        if "_inner" in self.__dict__:
            self._inner.close()


def sr_uet(
    packets: Packets, *, local: str | None = None, timeout: float = TIMEOUT, retry: int = 0, multi: bool = False,
    verbose: int = 0, link: UetSocket | None = None, **where: Any,
) -> tuple[SndRcvList, PacketList]:  # fmt: skip
    """Send IP packets, and return pairs of packet and answer, and the packets without an answer, as Scapy's `sr` does.

    `local` is the local address, by default the one from which the destination of the first packet is reached. Packets
    without a source get it, and without a source port the port 0xC000. `timeout` is in seconds. `retry` says how often
    packets without an answer are sent again; with `multi` a packet may have several answers. `where` are arguments of
    `UetSocket`; an open one may be given as `link`. Raises `LocalError` for what cannot be opened or sent.
    """
    listed = _listed(packets)
    if link is not None:
        return _exchange(link, listed, timeout, retry, multi, verbose)
    if not listed:
        raise LayerError("packets", "there are none", "packets of Scapy", id="unknown-packet")
    if local is None:
        dst = listed[0].getlayer(IP) or listed[0].getlayer(IPv6)
        if dst is None:
            raise LayerError(
                "packets", f"{listed[0].summary()} has no IP layer", "packets that begin with IP or IPv6",
                id="wrong-packets"
            )  # fmt: skip
        peer = address_of("dst", dst.dst)
        local = sockets.source_towards(int(peer), peer.version, where.get("device"))
    with UetSocket(local, **where) as opened:
        return _exchange(opened, listed, timeout, retry, multi, verbose)


def srp_uet(
    frames: Packets, *, iface: str | None = None, timeout: float = TIMEOUT, retry: int = 0, multi: bool = False,
    verbose: int = 0, link: UetL2Socket | None = None,
) -> tuple[SndRcvList, PacketList]:  # fmt: skip
    """Send frames at a network interface, and return pairs of frame and answer, and the frames without an answer, as
    Scapy's `srp` does.

    `iface` is the name of the interface, by default Scapy's `conf.iface`; the other arguments are those of `sr_uet`.
    The kernel knows nothing of these packets: where it owns the address, and no program has the port, it tells the peer
    so by ICMP. Raises `LocalError` if the socket cannot be opened.
    """
    listed = _listed(frames)
    if link is not None:
        return _exchange(link, listed, timeout, retry, multi, verbose)
    with UetL2Socket(str(conf.iface) if iface is None else iface) as opened:
        return _exchange(opened, listed, timeout, retry, multi, verbose)


def _listed(packets: Packets) -> list[Packet]:
    """Return packets as a list; a packet with several values of a field stands for several packets."""
    if not isinstance(packets, Iterable):
        raise LayerError("packets", f"{shown(packets)} is not legal", "packets of Scapy", id="wrong-type")
    groups = [packets] if isinstance(packets, Packet) else packets
    return [packet for group in groups for packet in group]


def _exchange(
    link: UetSocket | UetL2Socket, packets: list[Packet], timeout: float, retry: int, multi: bool, verbose: int
) -> tuple[SndRcvList, PacketList]:
    answered, rest = sndrcv(
        link, [link.prepared(packet) for packet in packets], timeout=timeout, retry=retry, multi=multi, verbose=verbose,
        threaded=False, chainEX=True, chainCC=True,
    )  # fmt: skip
    for _, answer in answered:
        _usual(answer)
    for reason, count in link.path.counters.refused.items() if isinstance(link, UetSocket) else ():
        warning(f"{count} packets were lost at this host, or refused: {reason}")
    return answered, rest


class UetAnsweringMachine(AnsweringMachine[UetPackets]):  # type: ignore[misc]
    """This answering machine of Scapy is a target: it acknowledges, refuses or returns data for the requests that
    arrive at an address, as `uet_reply` does. It stores and executes nothing.

        machine = UetAnsweringMachine(local="10.0.0.2", data=bytes(4096))
        sniffer = machine.bg()
    """

    function_name = "uet_am"
    sniff_options_list = [*AnsweringMachine.sniff_options_list, "timeout"]  # noqa: RUF012

    def parse_options(
        self, local: str = "127.0.0.1", link: UetSocket | UetL2Socket | None = None, path: str = AUTO,
        device: str | None = None, port: int | None = UDP_PORT, local_port: int | None = None, ip_protocol: int = 253,
        **reply: Any,
    ) -> None:  # fmt: skip
        """Open the link, and take the arguments of `uet_reply`.

        The arguments up to `ip_protocol` are those of `UetSocket`; an open socket may be given as `link`, which stays
        open. Raises `LocalError` for what cannot be opened, `LayerError` for an illegal argument.
        """
        self.responder = UetResponder(**reply)
        self.owned = link is None
        self.link = link or UetSocket(
            local, path=path, device=device, port=port, local_port=local_port, ip_protocol=ip_protocol
        )

    def sniff(self) -> None:
        """Answer until Ctrl-C, or until an option of Scapy's `sniff` ends it."""
        try:
            sniff(opened_socket=self.link, **self.optsniff)
        finally:
            self.close()

    def sniff_bg(self) -> None:
        """Answer in a thread, until `sniffer.stop()`."""
        self.sniffer = AsyncSniffer(opened_socket=self.link, **self.optsniff)
        self.sniffer.start()

    def is_request(self, req: Packet) -> bool:
        """Return whether a packet may have an answer."""
        return self.responder.asks(req)

    def make_reply(self, req: Packet) -> UetPackets:
        """Return the answers to a packet: none to one that cannot be answered."""
        try:
            return self.responder.reply(_usual(req))
        except LayerError as error:
            if self.verbose:
                print(f"{req.summary()} ==> {error}")
            return UetPackets([], "answers")

    def send_reply(self, reply: UetPackets, send_function: Any = None) -> None:
        """Send answers. Their source ports are among the sockets that the path may open."""
        for answer in reply:
            udp = answer.getlayer(UDP)
            if udp is not None and isinstance(self.link, UetSocket):
                udp.sport, udp.dport = self.link.path.entropy(udp.sport), self.link.port
            (send_function or self.link.send)(answer)

    def close(self) -> None:
        """Close the link, unless it was given."""
        if self.owned:
            self.link.close()
