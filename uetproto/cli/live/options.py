# SPDX-License-Identifier: GPL-2.0-only
"""This module has the options that all commands on a live link share, and what they stand for."""

import socket
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, cached_property, wraps
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from uetproto import LocalError
from uetproto.api import fi, verbs
from uetproto.cli.choice import Choice
from uetproto.cli.live.faults import faults_of
from uetproto.cli.live.security import domain_of_file, member_at
from uetproto.cli.outputs import check_output
from uetproto.engine.config import PERSONALITIES, PdsConfig, SesConfig
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.tss.keys import DomainConfig
from uetproto.errors import similar
from uetproto.framing.sizes import UET_EXTENSION, around_roce
from uetproto.impair.faults import Faults
from uetproto.knobs import KeyType
from uetproto.live import Interface, sockets
from uetproto.live.interface import AUTO, CHECKSUMS, address_of
from uetproto.live.path import PATHS
from uetproto.live.rate import LIVE_CC, why_not
from uetproto.live.rendezvous import PORT, Json, Network, RendezvousClient
from uetproto.toml.values import MEMORY_KEY, size
from uetproto.wire.forms import UDP_PORT
from uetproto.wire.headers.roce import MULTICAST_QP, PMTUS
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS

UET, RC, UC, UD = "uet", "rc", "uc", "ud"
ROCE = (RC, UC, UD)
"""Transports over RoCEv2. Most commands have RC alone, which stands for RoCEv2."""
OFF = "off"
USUAL_QPN = 0x11
"""Number of the queue pair of either end, unless somebody says otherwise: the first one of an adapter."""
_PORTS = click.IntRange(1, 65535)


class HandNumbers(NamedTuple):
    """This tuple has the numbers of both queue pairs, and the first PSN of each."""

    mine: int
    theirs: int
    my_psn: int
    their_psn: int


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """This record has the values of the options, by their names."""

    local: str | None
    transport: str
    path: str
    interface: str | None
    vlan: int | None
    udp_port: int | None
    local_udp_port: int | None
    ip_protocol: int | None
    crc: str
    checksum: str
    payload_mtu: int | None
    mode: str
    cc: str | None
    entropies: int
    receive_buffer: str
    segmentation: bool
    personality: str
    rendezvous: str
    job_id: int
    pid: int
    resource_index: int
    initiator_id: int
    key: str
    addr: str
    relative: bool
    qpn: str | None
    psn: str | None
    peer_qpn: str | None
    peer_psn: str | None
    length: str | None
    keys: str | None
    sdi: int | None
    ssi: int | None
    faults: str | None
    seed: int | None
    output: str | None
    as_json: bool
    given: frozenset[str] = frozenset()
    """Names of the options that the command line has."""

    def check(self) -> None:
        """Raise `LocalError` for options that contradict each other, or an output that cannot be written."""
        if self.output == "-" and self.as_json:
            raise LocalError("-o - and --json both want standard output", id="stdout-taken")
        check_output("-o", self.output, ())
        if self.local is not None:
            address_of("--local", self.local)
        if self.cc is not None and self.cc not in LIVE_CC:
            raise LocalError("--cc", f"{self.cc!r} is not legal", why_not(self.cc), id="unknown-algorithm")
        if self.personality not in PERSONALITIES and self.personality != AUTO:
            hint = similar(self.personality, PERSONALITIES)
            raise LocalError(
                "--personality", f"{self.personality!r} is not legal{hint}", ", ".join((*PERSONALITIES, AUTO)),
                id="unknown-personality"
            )  # fmt: skip
        if self.is_roce:
            told = f"does not go with --transport {self.transport}"
            for name, value in (("--ip-protocol", self.ip_protocol), ("--cc", self.cc)):
                if value is not None:
                    raise LocalError(name, told, "--transport uet", id="not-with-protocol")
            if self.keys is not None:
                raise LocalError("--keys", f"{told}: nobody seals RoCEv2", "--transport uet", id="not-with-protocol")
            if self.memory_key >= 1 << 32:
                told = f"{self.key} is not legal with --transport {self.transport}"
                raise LocalError("--key", told, "0 … 2^32 - 1", id="out-of-range")
        for name in ("qpn", "psn", "peer_qpn", "peer_psn"):
            if getattr(self, name) is not None and not (self.is_roce and self.rendezvous == OFF):
                told = "goes with --transport rc and --rendezvous off: the rendezvous tells it"
                raise LocalError(f"--{name.replace('_', '-')}", told, id="not-with-transport")
        if self.length is not None and self.rendezvous != OFF:
            raise LocalError("--length", "goes with --rendezvous off: the rendezvous tells it", id="no-effect")
        _ = self.faulty, self.rendezvous_at, self.memory_key, self.address, self.by_hand, self.domain
        _ = self.memory_length

    @property
    def is_roce(self) -> bool:
        """Return whether packets are those of RoCEv2."""
        return self.transport in ROCE

    @property
    def memory_length(self) -> int:
        """Return the number of bytes of the memory of a peer that has no rendezvous."""
        return _USUAL_LENGTH if self.length is None else of_size("--length", self.length, 0, 1 << 62)

    @property
    def faulty(self) -> Faults | None:
        """Return the faults that frames meet, or None if they meet none."""
        return None if self.faults is None else faults_of(self.faults)

    @property
    def rendezvous_at(self) -> tuple[str | None, int] | None:
        """Return address and TCP port of the rendezvous, or None without one. The address None is that of the
        packets."""
        if self.rendezvous == OFF:
            return None
        host, _, port = self.rendezvous.rpartition(":")
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise LocalError(
                "--rendezvous", f"{self.rendezvous!r} is not legal", "1 … 65535, ADDRESS:PORT, off", id="wrong-format"
            )
        return str(address_of("--rendezvous", host.strip("[]"))) if host else None, int(port)

    @property
    def memory_key(self) -> int:
        try:
            found: int = MEMORY_KEY.check(number_of("--key", self.key))
        except ValueError:
            raise LocalError("--key", f"{self.key} is not legal", MEMORY_KEY.legal, id="out-of-range") from None
        return found

    @cached_property
    def domain(self) -> DomainConfig | None:
        """Return the secure domain that seals the packets, or None if they travel in clear."""
        if self.keys is not None:
            return domain_of_file(self.keys, self.sdi)
        for name in ("sdi", "ssi"):
            if getattr(self, name) is not None:
                raise LocalError(f"--{name}", "does not go without --keys", "--keys FILE", id="missing-keys")
        return None

    @property
    def sealing(self) -> int | None:
        """Return how many bytes sealing adds to a packet, or None if packets travel in clear."""
        if self.domain is None:
            return None
        return (self.domain if self.ssi is None else replace(self.domain, ssis={0: self.ssi})).overhead

    @property
    def by_hand(self) -> "HandNumbers":
        """Return the numbers of both queue pairs."""
        numbers = (
            _of_24_bits(name, text, 2, USUAL_QPN, MULTICAST_QP - 1)
            for name, text in (("--qpn", self.qpn), ("--peer-qpn", self.peer_qpn))
        )
        psns = (
            _of_24_bits(name, text, 0, 0, 2**24 - 1)
            for name, text in (("--psn", self.psn), ("--peer-psn", self.peer_psn))
        )
        return HandNumbers(*numbers, *psns)

    @property
    def address(self) -> int:
        """Return the address of the first byte of the memory, for peers."""
        found = number_of("--addr", self.addr)
        if not 0 <= found < 1 << 64:
            raise LocalError("--addr", f"{self.addr} is not legal", "0 … 2^64 - 1", id="out-of-range")
        return found

    def how(self, peer_port: int | None = None) -> fi.Encapsulation:
        """Return the encapsulation of UET packets; `peer_port` is the peer's UDP port, if the rendezvous told it."""
        return fi.Encapsulation(
            udp=self.ip_protocol is None, crc=self.crc == "on", udp_port=self.udp_port or peer_port or UDP_PORT,
            ip_protocol=self.ip_protocol or 253,
        )  # fmt: skip

    def live_interface(self, local: str) -> Interface:
        """Return the interface that the options describe, at a local address."""
        return Interface(
            local, path=self.path, device=self.interface, vlan=self.vlan, local_port=self.local_udp_port,
            checksum=self.checksum, entropies=self.entropies,
            receive_buffer=of_size("--receive-buffer", self.receive_buffer, 2048, 1 << 30),
            segmentation=self.segmentation, capture=self.output, faults=self.faulty, seed=self.seed,
            security=None if self.domain is None else member_at(
                local, self.domain, self.ssi, self.settings["security"]
            ),
        )  # fmt: skip

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the personality: with "auto" those of the default, until a peer is recognised."""
        return PERSONALITIES["default" if self.personality == AUTO else self.personality]

    def pds(self) -> PdsConfig:
        """Return the parameters of packet delivery of the personality."""
        sealed = {} if self.domain is None else {"secure_start": "expected"}
        return PdsConfig(**sealed | self.settings["pds"])

    def ses(self, payload_mtu: int) -> SesConfig:
        """Return the parameters of SES of the personality, with a payload MTU."""
        return SesConfig(**self.settings["ses"] | {"payload_mtu": payload_mtu})

    def payload_for(self, mtu: int, version: int) -> int:
        """Return the payload MTU: the option, that of the personality, or the largest one that fits into an MTU of the
        link. Raises `LocalError` if none fits."""
        if self.is_roce:
            sizes, around, name = tuple(PMTUS), around_roce(version), "--payload-mtu"
        else:
            sizes, around, name = PAYLOAD_MTUS, around_uet(self, version), "--payload-mtu"
        if self.payload_mtu is not None:
            if self.payload_mtu not in sizes:
                raise LocalError(
                    name, f"{self.payload_mtu} is not legal", ", ".join(map(str, sizes)), id="out-of-range"
                )
            return self.payload_mtu
        usual = self.settings["ses"].get("payload_mtu", SesConfig().payload_mtu)
        fitting = [one for one in sizes if one + around <= mtu and one <= usual]
        if not fitting:
            raise LocalError(
                name, f"no payload MTU fits into a link MTU of {mtu} bytes", f"an MTU of {min(sizes) + around}",
                id="mtu-too-small"
            )  # fmt: skip
        return max(fitting)

    def fabric(self, local: str, payload_mtu: int, peer_port: int | None = None) -> fi.Fabric:
        """Return a fabric on the live link."""
        cc = self.cc or (OFF if self.personality in PERSONALITIES and self.personality != "default" else "nscc")
        return fi.Fabric(
            live=self.live_interface(local), how=self.how(peer_port), pds=self.pds(), ses=self.ses(payload_mtu), cc=cc
        )

    def network(self, local: str, payload_mtu: int, peer_port: int | None = None) -> verbs.Network:
        """Return a network of RoCE on the live link."""
        port = self.udp_port or peer_port or RoceConfig().udp_port
        config = RoceConfig(path_mtu=payload_mtu, udp_port=port, cnp=True)
        return verbs.Network(live=self.live_interface(local), config=config)


def _transport(names: tuple[str, ...], words: str) -> Callable[[Any], Any]:
    return click.option("--transport", type=Choice(names), default=UET, show_default=True, help=words)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--local", metavar="A", help="Address of this host; sockets bind to it and to no other."),
    _transport((UET, RC), "UET or RoCEv2."),
    click.option("--path", default=AUTO, show_default=True, metavar="P", help=f"{', '.join(PATHS)}, or {AUTO}."),
    click.option("--interface", metavar="IF", help="Network interface; for link-local addresses and the path tap."),
    click.option("--vlan", type=click.IntRange(1, 4094), metavar="N", help="VLAN of the paths packet and tap."),
    click.option("--udp-port", type=_PORTS, metavar="N", help="UDP port of the peer; default: 4793, RoCE 4791."),
    click.option("--local-udp-port", type=_PORTS, metavar="N", help="UDP port of this end; default: the peer's."),
    click.option(
        "--ip-protocol", type=click.IntRange(1, 255), metavar="N",
        help="Send native IP packets of this protocol, such as 253, and no UDP; needs the path raw, packet or tap.",
    ),
    click.option("--crc", type=Choice(("on", "off")), default="on", show_default=True, help="CRC32C trailer."),
    click.option(
        "--checksum", type=Choice(CHECKSUMS), default=AUTO, show_default=True,
        help="UDP checksum; auto: none over IPv4, and over IPv6 none where the peer takes it.",
    ),
    click.option("--payload-mtu", type=int, metavar="N", help="Payload of a packet; default: the largest that fits."),
    click.option("--mode", type=Choice(("rud", "rod")), default="rud", show_default=True, help="Mode of UET."),
    click.option("--cc", metavar="|".join(LIVE_CC), help="Congestion control; default: nscc."),
    click.option("--entropies", type=click.IntRange(1, 1 << 16), default=256, show_default=True, metavar="N",
                 help="Largest number of entropy values (sockets)."),
    click.option("--receive-buffer", default="4 MiB", show_default=True, metavar="SIZE",
                 help="What the kernel is asked to keep of arrived packets."),
    click.option("--segmentation", is_flag=True,
                 help="Hand several packets to the kernel at once; needs --entropies 1 and --checksum on."),
    click.option("--personality", default="default", show_default=True, metavar="NAME",
                 help=f"Behave as: {', '.join(PERSONALITIES)}; of serve also {AUTO}."),
    click.option("--rendezvous", default=str(PORT), show_default=True, metavar="[A:]PORT|off",
                 help="TCP port (of address A) where both ends tell each other keys and numbers."),
    click.option("--job-id", type=click.IntRange(0, 2**24 - 1), default=1, show_default=True, metavar="N",
                 help="JobID."),
    click.option("--pid", type=click.IntRange(0, 4095), default=0, show_default=True, metavar="N",
                 help="PIDonFEP of the target."),
    click.option("--resource-index", type=click.IntRange(1, 4095), default=15, show_default=True, metavar="N",
                 help="Resource index of the target."),
    click.option("--initiator-id", type=click.IntRange(0, 2**32 - 1), default=16, show_default=True, metavar="N",
                 help="Initiator id of this end."),
    click.option("--key", "--rkey", "key", default="1", show_default=True, metavar="N",
                 help="Memory key of the target; r_key of RoCE."),
    click.option("--addr", default="0", show_default=True, metavar="N", help="Address of the target's first byte."),
    click.option("--relative/--absolute", default=True, show_default=True, help="Addressing of UET (ses.md §2)."),
    click.option("--qpn", metavar="N", help=f"Queue pair of this end, without a rendezvous; default: {USUAL_QPN:#x}."),
    click.option("--psn", metavar="N", help="First PSN of this end, without a rendezvous; default: 0."),
    click.option("--peer-qpn", metavar="N", help=f"Queue pair of the peer; default: {USUAL_QPN:#x}."),
    click.option("--peer-psn", metavar="N", help="First PSN of the peer; default: 0."),
    click.option("--length", metavar="SIZE", help="Memory of the peer, without a rendezvous; default: 64 KiB."),
    click.option("--keys", metavar="FILE", help="Seal all packets (TSS) with a key file that both ends have."),
    click.option("--sdi", type=click.IntRange(0, 2**24 - 1), metavar="N", help="Secure domain of the key file."),
    click.option("--ssi", type=click.IntRange(0, 2**32 - 1), metavar="N", help="Secure source identifier of this end."),
    click.option("--faults", metavar="NAME=SHARE,…",
                 help="Lose, duplicate, reorder, delay, corrupt or trim packets on their way out and in, such as"
                      " drop=0.01,reorder=0.02; reorder_by, reorder_time and delay_time say how (5 ms)."),
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="N", help="Seed of PSNs, PDCIDs and faults."),
    click.option("-o", "--output", metavar="FILE", help="Capture all packets: .pcapng or .pcap, also .gz."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line, on standard output."),
)  # fmt: skip


def link_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, which gets them as its first argument. All but --length are of both ends."""
    return some_link_options(*(name for name in _NAMES if name != "length"))(command)


def some_link_options(*names: str, services: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds some of the shared options to a command. The command gets all as its first argument,
    and the others have their defaults. With `services`, UC and UD are transports, too."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def called(**given: Any) -> Any:
            source = click.get_current_context().get_parameter_source
            named = frozenset(name for name in names if source(name) is ParameterSource.COMMANDLINE)
            values = {name: given.pop(name) if name in names else _defaults()[name] for name in _NAMES}
            options = LinkOptions(**values, given=named)
            options.check()
            return command(options, **given)

        for option, name in zip(reversed(_OPTIONS), reversed(_NAMES), strict=True):
            if name in names:
                called = (_SERVICES if services and name == "transport" else option)(called)
        return called

    return add


_SERVICES = _transport((UET, *ROCE), "UET, RoCEv2 with all services (rc), or one of its unreliable services.")
_NAMES = tuple(one.name for one in fields(LinkOptions) if one.default is MISSING)


@cache
def _defaults() -> dict[str, Any]:
    """Return the values of the options that nobody gave."""

    def nothing(**given: Any) -> None: ...

    for option in _OPTIONS:
        nothing = option(nothing)
    return click.command(nothing).make_context("options", []).params


def of_size(name: str, text: str, least: int, most: int) -> int:
    """Return the number of bytes in the text of an option, such as "16 MiB"."""
    return of_key(name, text, size(least, most))


def of_key(name: str, text: str, key: KeyType) -> int:
    """Return the number in the text of an option that takes the values of a key of TOML files."""
    try:
        found: int = key.check(int(text) if text.isdecimal() else text)
    except ValueError:
        raise LocalError(name, f"{text!r} is not legal", key.legal, id="wrong-format") from None
    return found


def number_of(name: str, text: str) -> int:
    """Return the number in the text of an option, which may begin with 0x."""
    try:
        return int(text, 0)
    except ValueError:
        raise LocalError(name, f"{text!r} is not legal", "a number, such as 7 or 0x10", id="wrong-format") from None


def around_uet(options: LinkOptions, version: int) -> int:
    """Return the number of bytes around the payload of the longest UET packet."""
    return options.how().around(version, extension=UET_EXTENSION, sealing=options.sealing)


def _of_24_bits(name: str, text: str | None, least: int, usual: int, most: int) -> int:
    found = usual if text is None else number_of(name, text)
    if not least <= found <= most:
        raise LocalError(name, f"{text} is not legal", f"{least} … {most:#x}", id="out-of-range")
    return found


def prefixes(name: str, texts: tuple[str, ...]) -> list[Network]:
    """Return the networks in the texts of an option."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError:
            raise LocalError(
                name, f"{text!r} is not legal", "a prefix, such as 10.0.0.0/24", id="wrong-address"
            ) from None
    return found


def local_towards(options: LinkOptions, peer: str) -> str:
    """Return the local address: the option, or the one from which this host reaches a peer."""
    found = address_of("--peer", peer)
    return options.local or sockets.source_towards(int(found), found.version, options.interface)


def mtu_of(options: LinkOptions, local: str) -> int:
    """Return the MTU of the network interface that is named, or that has an address of this host."""
    address = ip_address(local)
    names = {name for _, name in socket.if_nameindex()}
    if options.interface in names:
        return sockets.device(options.interface).mtu
    return sockets.mtu_of_interface(int(address), address.version) if options.interface is None else _USUAL_MTU


def mtu_towards(options: LinkOptions, local: str, peer: str) -> int:
    """Return the path MTU towards a peer as the kernel knows it, or that of the interface if the local address is not
    the kernel's."""
    address = ip_address(local)
    if not sockets.is_of_this_host(int(address), address.version, options.interface):
        return mtu_of(options, local)
    return sockets.mtu_towards(int(address), int(ip_address(peer)), address.version, options.interface)


def meet(options: LinkOptions, at: tuple[str | None, int], peer: str, local: str) -> RendezvousClient:
    """Connect to the rendezvous of a peer. Raises `LocalError` if nobody answers."""
    host, port = at
    return RendezvousClient(
        host or peer, port, local=None if own_address(options, local) else local, device=options.interface
    )  # fmt: skip


def own_address(options: LinkOptions, local: str) -> Json:
    """Return what the rendezvous is told of a local address that is not the kernel's: nothing if it is."""
    address = ip_address(local)
    is_ours = sockets.is_of_this_host(int(address), address.version, options.interface)
    return {} if is_ours else {"own_address": True}


def sealed_offer(options: LinkOptions) -> Json:
    """Return what the rendezvous is told of the secure domain of this end: nothing if packets travel in clear."""
    return {} if options.domain is None else {"sdi": options.domain.sdi, "ssi": options.ssi}


_USUAL_LENGTH = 1 << 16
_USUAL_MTU = 1500
"""MTU of an interface that is yet to be made."""
