# SPDX-License-Identifier: GPL-2.0-only
"""What tests/live/test_ethernet.py tries in a network of its own: `unshare -Urn python -m tests.support.ethernet`.

Both ends live in this process: on the interfaces v0 and v1 of a cable with addresses that the kernel does not have, or
on a TAP device, beyond which is the kernel. Each case prints a line of JSON: its name, and what went wrong.
"""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.live.test_gone import unheard
from tests.live.test_loopback import connected, exchange
from tests.support.live import clean, running
from tests.support.paths import ROOT
from uetproto import LocalError
from uetproto.api import fi, verbs
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Severity
from uetproto.cli.main import cli
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import RocePacket
from uetproto.framing.framer import LowerHeaders
from uetproto.framing.roce import RoceFramer
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.live import Interface
from uetproto.live.neighbours import KEPT
from uetproto.live.path import Path as LivePath
from uetproto.live.path import PathSetup, open_path
from uetproto.live.path_packet import CapturedFrame, PacketSocket
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.ethernet import internet_checksum
from uetproto.wire.icrc import icrc_of

CABLE = {4: ("10.98.0.1", "10.98.0.2"), 6: ("fd98::1", "fd98::2")}
KERNEL = {4: ("10.97.0.2", "10.97.0.1"), 6: ("fd97::2", "fd97::1")}
"""Addresses: of our own on the TAP device, and of the kernel."""
LOOP = {4: ("127.0.0.1", "127.0.0.9"), 6: ("fd96::1", "fd96::2")}
SETUP = """
link set lo up
link add v0 mtu 9000 type veth peer name v1 mtu 9000
link set v0 addrgenmode none up
link set v1 addrgenmode none up
tuntap add tap0 mode tap
link set tap0 mtu 9000 up
addr add 10.97.0.1/24 dev tap0
addr add fd97::1/64 dev tap0 nodad
addr add fd96::1/64 dev lo nodad
addr add fd96::2/64 dev lo nodad
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def cable(version: int, **more: Any) -> list[Interface]:
    """The two ends of the cable."""
    ends = zip(CABLE[version], ("v0", "v1"), strict=True)
    return [Interface(at, path="packet", device=device, **more) for at, device in ends]


def tap(version: int, files: list[str]) -> list[Interface]:
    ours, theirs = KERNEL[version]
    return [
        Interface(ours, path="tap", device="tap0", capture=files[0], checksum="off"),
        Interface(theirs, capture=files[1], checksum="off"),
    ]


def roce(interfaces: list[Interface]) -> None:
    here, there = (verbs.Network(live=interface) for interface in interfaces)
    qp, far = connected(here, there)
    source, target = qp.pd.reg_mr(bytearray(b"gradient" * 20_000)), far.pd.reg_mr(bytearray(160_000))
    with running(there.live):
        qp.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
        assert [entry.status for entry in qp.send_cq.wait(timeout="20 s")] == [verbs.Status.SUCCESS]
        here.close()
    assert bytes(target) == bytes(source)
    assert not here.live.path.counters.refused, here.live.path.counters.refused


def transfer(kind: str, transport: str, version: int) -> None:
    """Move bytes over a path, and audit what both ends captured."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("a.pcapng", "b.pcapng")]
        ends = tap(version, files) if kind == "tap" else cable(version, vlan=9 if kind == "vlan" else None)
        if transport == "roce":
            roce(ends)
        else:
            exchange(ends, how=fi.Encapsulation(udp=transport == "uet"))
        if kind == "tap":
            clean(*map(Path, files))


def opened(interface: Interface, port: int = 4793) -> tuple[LivePath, UetFramer]:
    """A path without an engine."""
    version = interface.address.version
    framer = UetFramer(int(interface.address), version, Encapsulation())
    return open_path(PathSetup(
        interface=interface, transport="uet", peer_port=port, lower_headers=framer.lower_headers,
    )), framer  # fmt: skip


def until(path: LivePath, number: int, other: LivePath | None = None) -> list[bytes]:
    """Frames of a path, once there are so many."""
    found: list[bytes] = []
    for _ in range(300):
        found += path.receive(64)
        if other is not None:
            other.receive(64)  # takes the answers of ARP
        if len(found) >= number:
            break
        time.sleep(0.01)
    return found


def trimmed(version: int) -> None:
    """A packet that a switch cut, with the UDP length of the whole one, is sent and received as it is, also in a
    VLAN and with a checksum; and frames wait for a MAC address, up to a limit."""
    for vlan in (None, 5):
        (near, framer), (far, theirs) = (opened(one) for one in cable(version, vlan=vlan, checksum="on"))
        try:
            dst = int(Interface(CABLE[version][1]).address)
            lower = LowerHeaders(int(Interface(CABLE[version][0]).address), dst, 77, Encapsulation().dscp.trimmed)
            bare = framer.lower_headers(lower, 64)
            at = len(bare) - 4
            frame = bare[:at] + (2000).to_bytes(2, "big") + bare[at + 2 :] + bytes(range(64))
            whole = framer.lower_headers(lower, 64) + bytes(64)
            number = KEPT + 144
            assert near.send([frame, whole] * (number // 2)) == number
            found = until(far, KEPT, near)
            assert len(found) == KEPT, len(found)  # the others were beyond the limit
            assert near.counters.refused["more frames than are kept until a MAC address is known"] == 144
            assert found[0][12:] == frame[12:]
            assert found[1][-66:-64] != whole[-66:-64], "the checksum of the whole one is filled in"
            packet = theirs.packet(found[0])
            assert packet is not None
            assert packet.trimmed
            assert packet.header + packet.payload == bytes(range(64))
        finally:
            near.close()
            far.close()


def numbered() -> None:
    """A NIC numbers its IPv4 packets, and a router takes one off the TTL: the ICRC over the real header is right."""
    here, there = (int(Interface(at).address) for at in CABLE[4])
    (near, _), (far, _) = (opened(one, RoceConfig().udp_port) for one in cable(4))
    try:
        packet = RocePacket(here, there, bytes((4, 0, 255, 255, 0, 0, 0, 9, 0, 0, 0, 1)), bytes(range(64)), entropy=77)
        frame = bytearray(RoceFramer(here, 4, RoceConfig()).frame(packet))
        frame[18:20], frame[22] = b"\x12\x34", 63
        frame[24:26] = b"\0\0"
        frame[24:26] = internet_checksum(bytes(frame[14:34])).to_bytes(2, "big")
        headers = [("ipv4", frame[14:34]), ("udp", frame[34:42]), ("bth", frame[42:54])]
        right = icrc_of([(form, bytes(data)) for form, data in headers], bytes(frame[54:-4]))
        for trailer, arrives in ((right, True), (right ^ 1, False)):
            frame[-4:] = trailer.to_bytes(4, "little")
            near.send([bytes(frame)])
            (found,) = until(far, 1, near)
            assert found[14:] == frame[14:]
            assert (RoceFramer(there, 4, RoceConfig()).packet(found) is not None) == arrives
    finally:
        near.close()
        far.close()


def errors(path: str, version: int, native: bool = False) -> None:
    """A kernel without a program for the packets answers ICMP, which is counted, packet by packet."""
    here, there = LOOP[version]
    how = Encapsulation(udp=not native)
    with fi.Fabric(live=Interface(here, path=path, device="lo"), how=how) as near:
        unheard(near, there)
        told = set(near.live.path.counters.refused)
    udp = {"raw": "port unreachable", "udp": "Connection refused"}[path]
    reason = {4: "Protocol not available", 6: "Protocol error"}[version] if native else udp
    assert told == {f"ICMP from {there}: {reason}" if reason == "port unreachable" else f"{reason} (ICMP from {there})"}


def nobody() -> None:
    """A neighbour that does not answer is asked for three times, and then the frames are lost."""
    near, framer = opened(cable(4)[0])
    try:
        lower = LowerHeaders(int(Interface("10.98.0.1").address), int(Interface("10.98.0.9").address), 7)
        near.send([framer.lower_headers(lower, 64) + bytes(64)])
        for _ in range(450):
            near.receive(8)
            if near.counters.refused:
                break
            time.sleep(0.01)
        assert near.counters.refused == {"nobody answers ARP for 10.98.0.9": 1}
    finally:
        near.close()


def icmp() -> None:
    """The kernel beyond the TAP device owns its address, and says that nobody has the port."""
    path, framer = opened(Interface("10.97.0.2", path="tap", device="tap0"))
    try:
        lower = LowerHeaders(int(Interface("10.97.0.2").address), int(Interface("10.97.0.1").address), 7)
        for turn in range(500):
            if not turn % 50:  # the kernel limits how often it answers
                path.send([framer.lower_headers(lower, 64) + bytes(64)])
            path.receive(8)
            if path.counters.refused:
                break
            time.sleep(0.01)
        (reason,) = path.counters.refused
        assert reason.startswith("ICMP from 10.97.0.1: port unreachable (the kernel of 10.97.0.1 owns"), reason
        assert "path tap" in reason
    finally:
        path.close()


def ping(version: int) -> None:
    """An address of our own answers ping, as the kernel of the other end sees it."""
    ours, _ = KERNEL[version]
    path, _ = opened(Interface(ours, path="tap", device="tap0"))
    family, protocol = ((socket.AF_INET, 1), (socket.AF_INET6, 58))[version == 6]
    try:
        with socket.socket(family, socket.SOCK_RAW, protocol) as out:
            out.setblocking(False)
            rest = bytes((0, 7, 0, 1)) + b"seven"
            total = 0x0800 + 7 + 1 + sum(int.from_bytes((rest + b"\0")[at : at + 2], "big") for at in range(4, 10, 2))
            head = (
                bytes((8, 0)) + (0xFFFF - total % 0xFFFF).to_bytes(2, "big") if version == 4 else bytes((128, 0, 0, 0))
            )
            out.sendto(head + rest, (ours, 0))  # the kernel fills in the checksum of ICMPv6
            wanted = bytes((0 if version == 4 else 129, 0))
            for _ in range(300):
                path.receive(8)
                with contextlib.suppress(BlockingIOError):
                    answer = out.recv(2000)[20 if version == 4 else 0 :]
                    if answer.startswith(wanted):
                        assert answer[4:] == rest
                        if version == 4:  # the kernel checks that of ICMPv6
                            words = answer + bytes(len(answer) & 1)
                            assert (
                                not sum(int.from_bytes(words[at : at + 2]) for at in range(0, len(words), 2)) % 0xFFFF
                            )
                        return
                time.sleep(0.01)
        raise AssertionError("nobody answers")
    finally:
        path.close()


def held() -> None:
    """A kernel that has the address of a path packet answers nothing, as a socket holds the port."""
    ip("addr", "add", "10.98.0.1/24", "dev", "v0")
    try:
        (near, framer), (far, _) = (opened(one) for one in cable(4))
        assert any("a socket holds UDP port 4793; path tap has an address of its own" in note for note in near.notes)
        assert framer.foreign == 0
        with pytest.raises(LocalError, match=r"port 4793 of 10\.98\.0\.1 is in use"):
            opened(Interface("10.98.0.1"))
        back = UetFramer(int(Interface("10.98.0.2").address), 4, Encapsulation())
        lower = LowerHeaders(int(Interface("10.98.0.2").address), int(Interface("10.98.0.1").address), 7)
        far.send([back.lower_headers(lower, 64) + bytes(64)])
        assert len(until(near, 1, far)) == 1
        time.sleep(0.05)
        far.receive(8)
        assert not far.counters.refused, far.counters.refused
        near.close()
        far.close()
    finally:
        ip("addr", "del", "10.98.0.1/24", "dev", "v0")


def auto() -> None:
    """`auto` takes the first path that is allowed, and says what was refused."""
    path, _ = opened(Interface("10.97.0.2", device="tap0"))
    path.close()
    (note,) = path.notes
    assert note.startswith("path tap, as udp: 10.97.0.2 is no address of this host, raw: "), note
    for wrong, text in (
        (Interface("10.97.0.9", device="v0"), "no path can be opened: udp: .* packet: 10.97.0.9 is no address of"),
        (Interface("10.97.0.9", device="tap7"), "tap: there is no TAP device tap7"),
        (Interface("10.97.0.9"), "local: 10.97.0.9 is no address of this host"),
        (Interface("10.97.0.1", path="tap", device="tap0"), "10.97.0.1 is an address of the kernel"),
        (Interface("10.97.0.2", path="tap", device="v0"), "v0 is no TAP device"),
        (Interface("10.98.0.1", path="packet", device="v9"), "there is no network interface 'v9'; legal: .*v0"),
    ):
        with pytest.raises(LocalError, match=text):
            opened(wrong)


def superframes(version: int) -> None:
    """What the kernel joins for a network card comes out as the packets that it stands for, with right checksums."""
    near, far = CABLE[version]
    size = 24 if version == 4 else 64
    ip("addr", "add", f"{near}/{size}", "dev", "v0", *(() if version == 4 else ("nodad",)))
    other, _ = opened(cable(version)[1])
    link = PacketSocket("v1", buffer=1 << 20, both_ways=True)
    try:
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as out:
            out.bind((near, 5000))
            out.setsockopt(socket.IPPROTO_UDP, 103, 500)
            out.sendto(bytes(range(250)) * 7, (far, 4793))
            found = until(other, 4)
        assert [len(one) for one in found] == [(42 if version == 4 else 62) + size for size in (500, 500, 500, 250)]
        start = 34 if version == 4 else 54
        for frame in found:
            assert checked(frame, start, version), "the UDP checksum is right"
        assert b"".join(frame[start + 8 :] for frame in found) == bytes(range(250)) * 7
        seen = [one.data for one in link.receive(100) if one.data[start + 2 : start + 4] == (4793).to_bytes(2, "big")]
        assert seen == found
        assert link.split == 4
    finally:
        other.close()
        link.close()
        ip("addr", "del", f"{near}/{size}", "dev", "v0")


def checked(frame: bytes, start: int, version: int) -> bool:
    size = len(frame) - start
    body = frame[start - (8 if version == 4 else 32) :] + size.to_bytes(4, "big") + bytes((0, 0, 0, 17))
    body += bytes(len(body) & 1)
    total = sum(int.from_bytes(body[at : at + 2], "big") for at in range(0, len(body), 2))
    return total % 0xFFFF == 0


def gone() -> None:
    """An interface that goes away ends the path with a line."""
    ip("link", "add", "w0", "type", "veth", "peer", "name", "w1")
    ip("link", "set", "w0", "up")
    path, framer = opened(Interface("10.96.0.1", path="packet", device="w0"))
    try:
        lower = LowerHeaders(int(Interface("10.96.0.1").address), int(Interface("10.96.0.9").address), 7)
        frame = framer.lower_headers(lower, 64) + bytes(64)
        ip("link", "set", "w0", "down")
        path.send([frame])
        path.receive(8)
        assert path.counters.refused["w0: Network is down"]
        ip("link", "del", "w0")
        with pytest.raises(LocalError, match="interface: w0 is gone"):
            send_and_receive(path, frame)
    finally:
        path.close()


def send_and_receive(path: LivePath, frame: bytes) -> None:
    for _ in range(100):
        path.send([frame])
        path.receive(8)
        time.sleep(0.05)


def too_long() -> None:
    """A frame beyond the MTU of the interface is refused with a line."""
    (near, framer), (far, _) = (opened(one) for one in cable(4))
    try:
        lower = LowerHeaders(int(Interface("10.98.0.1").address), int(Interface("10.98.0.2").address), 7)
        assert near.mtu(lower.dst) == 9000
        near.send([framer.lower_headers(lower, 64) + bytes(64)])
        until(far, 1, near)
        with pytest.raises(
            LocalError, match=r"packet of 9028 bytes does not fit: the MTU towards 10\.98\.0\.2 is 9000"
        ):
            near.send([framer.lower_headers(lower, 9000) + bytes(9000)])
    finally:
        near.close()
        far.close()


# uetproto capture -----------------------------------------------------------------------------------------------------


def captured(frames: list[bytes], *options: str, then: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
    """Run `uetproto capture` on v0, to which frames come as soon as it is open. Return exit status and output."""

    class Busy(PacketSocket):
        begun = False

        def receive(self, limit: int) -> list[CapturedFrame]:
            found = super().receive(limit)
            if found or self.begun:
                return found
            self.begun = True
            link = PacketSocket("v1", buffer=1 << 20)
            for frame in frames:
                link.send(frame)
            link.close()
            then()
            return super().receive(limit)

    out, errors = io.StringIO(), io.StringIO()
    with (
        patch("uetproto.cli.live.capture.PacketSocket", Busy),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        status = cli.status(["capture", "-i", "v0", *options])  # type: ignore[attr-defined]
    return status, out.getvalue(), errors.getvalue()


def capture_golden() -> None:
    """What comes is captured bit by bit, and judged as `uetproto audit` judges the file."""
    for name in ("roce-fail-icrc", "roce-fail-unaligned", "ses-fail-amo-unsupported-op", "ladder-L29", "gradient"):
        golden = ROOT / "pcaps" / f"{name}.pcapng"
        with open_capture(golden) as reader:
            frames = [record.data for record in reader if record.interface == 0]
        if name == "gradient":  # in a VLAN, with a priority
            frames = [frame[:12] + b"\x81\x00\x60\x07" + frame[12:] for frame in frames]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "seen.pcapng"
            number = str(len(frames))
            status, out, errors = captured(
                frames, "--count", number, "--audit", "--complete", "--json", "-o", str(file)
            )
            with open_capture(file) as reader:
                assert [record.data for record in reader] == frames, name
            report = audit([str(file)], Options(complete=True))
        lines = [json.loads(line) for line in out.splitlines()]
        told = [(line["rule"], line["packets"], line["seen"]) for line in lines[:-1]]
        assert sorted(told) == sorted((one.rule.id, list(one.packets), one.seen) for one in report.findings)
        assert told or name == "gradient"
        assert lines[-1]["tagged"] == (len(frames) if name == "gradient" else 0)
        assert (lines[-1]["frames"], lines[-1]["others"]) == (len(frames), report.others)
        assert status == any(one.severity is Severity.ERROR for one in report.findings)
        assert not errors, errors


def capture_ends() -> None:
    """Ctrl-C leaves a valid capture and a summary, and so does an interface that goes away; the ladder is drawn."""
    with open_capture(ROOT / "pcaps" / "gradient.pcapng") as reader:
        frames = [record.data for record in reader if record.interface == 0]
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "seen.pcap.gz")
        stop = partial(os.kill, os.getpid(), signal.SIGINT)
        status, out, errors = captured(frames, "--ladder", "--audit", "-o", file, then=stop)
        assert (status, errors) == (130, ""), (status, errors)
        assert "RUD_REQ SYN" in out or "ROD_REQ SYN" in out, out
        assert f"{len(frames)} frames, " in out, out
        assert f"no findings in {len(frames)} packets" in out, out
        with open_capture(file) as reader:
            assert [record.data for record in reader] == frames
        status, out, errors = captured([], "-o", file, then=partial(ip, "link", "del", "v0"))
        assert (status, out.splitlines()[0][:9]) == (2, "0 frames,"), out
        assert "v0 is gone" in errors, errors
        with open_capture(file) as reader:
            assert not list(reader)
    for options, text in (
        (["-i", "v9", "--audit"], "there is no network interface 'v9'; legal: lo, "),
        (["-i", "lo"], "nothing is done with the frames; legal: at least one of -o FILE, --audit, --ladder"),
        (["-i", "lo", "--audit", "--rules", "NONE-*"], "NONE-"),
        (["-i", "lo", "--json", "-o", "-"], "wants standard output"),
    ):
        errors_out = io.StringIO()
        with contextlib.redirect_stderr(errors_out):
            assert cli.status(["capture", *options]) == 2  # type: ignore[attr-defined]
        assert text in errors_out.getvalue(), errors_out.getvalue()


MATRIX = {
    f"{kind}-{transport}-{version}": partial(transfer, kind, transport, version)
    for kind in ("packet", "vlan", "tap")
    for transport in ("uet", "native", "roce")
    for version in (4, 6)
    if transport != "native" or kind == "packet"
}  # fmt: skip
CASES: dict[str, Callable[[], None]] = MATRIX | {
    "trimmed-4": partial(trimmed, 4), "trimmed-6": partial(trimmed, 6), "numbered": numbered,
    "nobody": nobody, "icmp": icmp,
    **{f"errors-{path}-{version}": partial(errors, path, version) for path in ("udp", "raw") for version in (4, 6)},
    **{f"errors-native-{version}": partial(errors, "raw", version, native=True) for version in (4, 6)},
    "ping-4": partial(ping, 4), "ping-6": partial(ping, 6), "held": held,
    "auto": auto, "superframes-4": partial(superframes, 4), "superframes-6": partial(superframes, 6), "gone": gone,
    "too_long": too_long, "capture_golden": capture_golden, "capture_ends": capture_ends,
}  # fmt: skip


def main() -> None:
    for line in SETUP.strip().splitlines():
        ip(*line.split())
    for name in sys.argv[1:] or CASES:
        problem = None
        try:
            CASES[name]()
        except Exception:
            problem = traceback.format_exc()
        print(json.dumps({"case": name, "problem": problem}), flush=True)
    with contextlib.suppress(RuntimeError):
        ip("link", "del", "v0")


if __name__ == "__main__":
    main()
