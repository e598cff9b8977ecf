# SPDX-License-Identifier: GPL-2.0-only
"""Peers that answer nothing, flood, end, begin anew, speak RoCE or close: bounded time, a clear verdict, and the next
test is clean."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from tests.support.cli.serving import serving
from tests.support.live import addresses
from uetproto import Layer, Packet, encode
from uetproto.api import fi
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.memory import Region
from uetproto.live import Interface
from uetproto.wire.packet import Trailer

PORT = 4793
Answering = Callable[[bytes, int], list[bytes]]
"""What a peer sends for a packet, whose number is counted from 0."""


@contextmanager
def answering(here: str, there: str, answer: Answering) -> Iterator[None]:
    """A peer at UET's port that sends to ours what `answer` says."""
    ended = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((there, PORT))
        peer.settimeout(0.05)

        def run() -> None:
            number = 0
            while not ended.is_set():
                try:
                    data = peer.recv(65535)
                except TimeoutError:
                    continue
                for one in answer(data, number):
                    peer.sendto(one, (here, PORT))
                number += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def conform(here: str, there: str, *arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """Play tests, and return their results, the summary and the exit status."""
    result = invoke("conform", "--peer", there, "--local", here, "--seed", "3", "--json", *arguments)
    *results, summary = [json.loads(line) for line in result.stdout.splitlines()]
    return results, summary, result.exit_code


def framed(here: str, there: str, upper: Layer, data: bytes, trailer: str) -> bytes:
    """Return what stands behind UDP of a packet of the peer, with a right CRC."""
    ip = Layer("ipv4", {"src": int(ip_address(there)), "dst": int(ip_address(here))})
    lower = [Layer("ethernet", {}), ip, Layer("udp", {"sport": PORT, "dport": PORT})]
    return encode(Packet([*lower, upper], data, Trailer(trailer, 0)), fill=True)[42:]


def roce(here: str, there: str) -> Answering:
    """A peer that answers everything with packets of RoCEv2."""

    def answer(data: bytes, number: int) -> list[bytes]:
        bth = Layer("bth", {"opcode": 4, "destqp": 0x11, "psn": number, "p_key": 0xFFFF})
        return [framed(here, there, bth, b"roce", "icrc")]

    return answer


def flood(here: str, there: str) -> Answering:
    """A peer that sends thousands of right packets for a PDC that nobody has."""
    one = framed(here, there, Layer("pds.nack", {"nack_code": 14, "dpdcid": 1}), b"", "crc32c")
    return lambda data, number: [one] * 6000


SILENT: dict[str, tuple[Callable[[str, str], Answering], str]] = {
    "answers nothing": (lambda here, there: lambda data, number: [], "path udp"),
    "floods": (flood, "the peer floods: more than 4096 packets in one test"),
    "speaks RoCE": (roce, "it sends a packet of RoCEv2 with a right ICRC, at the UDP port of UET"),
    "sends garbage": (lambda here, there: lambda data, number: [b"\xff" * 9], "it sends no packet of UET: "),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_peer_without_an_answer_is_told_once(name: str) -> None:
    kind, told = SILENT[name]
    here, there = addresses()
    with answering(here, there, kind(here, there)):
        result = invoke("conform", "--peer", there, "--local", here, "--rendezvous", "off", "--only", "UET-PDS-00?")
    assert "does NOT answer" in result.output
    assert told in result.output
    assert "9 tests: 0 pass, 0 fail, 9 inconclusive" in result.output
    assert (result.exit_code, result.output.count("inconclusive")) == (1, 1)


def test_a_peer_that_ends_in_the_middle_is_asked_no_more() -> None:
    here, there = addresses()
    tests = ("--rendezvous", "off", "--only", "UET-PDS-*", "--without", "read")
    command = [sys.executable, "-m", "uetproto", "conform", "--peer", there, "--local", here, "--seed", "3", "--json"]
    with (
        serving(there, "--rendezvous", "off") as peer,
        subprocess.Popen([*command, *tests], stdout=subprocess.PIPE, text=True) as run,
    ):
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(5)]
        peer.process.kill()
        lines += run.stdout
    *results, summary = map(json.loads, lines)
    status = run.returncode
    assert status == 1
    assert summary["fail"] == 0, results
    verdicts = [one["verdict"] for one in results if "READ" not in one["reason"]]
    assert verdicts == sorted(verdicts, key=["pass", "inconclusive"].index)
    reasons = [one["reason"] for one in results if one["verdict"] == "inconclusive" and "READ" not in one["reason"]]
    assert not reasons or "answers nothing any more" in reasons[0]
    assert {*reasons[1:]} <= {"the peer answers nothing; the test was not played"}


def test_a_peer_that_begins_anew_in_the_middle_is_clean_again() -> None:
    """A restart fails the test that it meets, or none; later ones pass."""
    here, there = addresses()
    ended, ready = threading.Event(), threading.Event()
    lives = []

    def run() -> None:
        for most in (150, 1 << 40):  # packets of each life
            fabric = fi.Fabric(live=Interface(there))
            endpoint = fabric.domain("local", fi.Job(1)).endpoint(resource_index=15)
            endpoint.bind(endpoint.domain.av_open())
            endpoint.bind(endpoint.domain.cq_open())
            endpoint.enable()
            endpoint.domain.process.register(Region(1, bytearray(1 << 16)))
            ready.set()
            world = fabric.live
            while not ended.is_set() and world.path.counters.received < most:
                world.driver.turn(world.now + 5 * MILLISECOND)
            lives.append(world.path.counters.received)
            fabric.close(drain=False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        tests = ("--rendezvous", "off", "--only", "UET-PDS-*", "--payload-mtu", "4096", "--tries", "3")
        results, summary, status = conform(here, there, *tests)
    finally:
        ended.set()
        thread.join()
    assert lives[0] >= 150
    assert lives[1] > 50
    assert (summary["fail"], status) == (0, 0), [one for one in results if one["verdict"] == "fail"]
    assert results[-1]["verdict"] == "pass"
