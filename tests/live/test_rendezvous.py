# SPDX-License-Identifier: GPL-2.0-only
"""The rendezvous: what a server does with what anybody may write to it."""

import json
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from tests.support.live import addresses, running
from uetproto import LocalError, RemoteError
from uetproto.api import fi
from uetproto.live import Interface
from uetproto.live.rendezvous import LONGEST_LINE, Json, PeerSession, RendezvousClient, RendezvousServer, number

PORT = 14_793


def echo(session: PeerSession, told: Json) -> Json:
    return {"echo": number(told, "number", 0, 9)}


@pytest.fixture
def server() -> Iterator[tuple[str, str, RendezvousServer]]:
    local, other = addresses()
    fabric = fi.Fabric(live=Interface(local))
    found = RendezvousServer(
        fabric.live.driver, local, PORT, allowed=[ip_network("127.0.0.0/8")], asks={"echo": echo},
        begun=lambda session, told: {"uetproto": 1}, ended=lambda session: None,
    )  # fmt: skip
    with running(fabric.live):
        yield local, other, found
    found.close()


def test_offers_and_questions(server: tuple[str, str, RendezvousServer]) -> None:
    local, other, _ = server
    client = RendezvousClient(local, PORT, local=other)
    assert client.begin({"transport": "uet"}) == {"uetproto": 1}
    assert client.ask("echo", number=7) == {"echo": 7}
    for question, more, text in (
        ("echo", {"number": 77}, "number: 77 is not legal; legal: 0 … 9"), ("ehco", {}, "ask: 'ehco' is not legal"),
    ):  # fmt: skip
        with pytest.raises(LocalError, match=text):
            client.ask(question, **more)
    assert not client.gone
    client.close()


@pytest.mark.parametrize("line", [
    b"\n", b"[]\n", b"{\n", b'{"uetproto": 2}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n", b'{"ask": "echo", "number": 1}\n',
])  # fmt: skip
def test_lines_that_are_none(server: tuple[str, str, RendezvousServer], line: bytes) -> None:
    """Whatever comes gets an error, and the server goes on."""
    local, other, _ = server
    with socket.create_connection((local, PORT), 5, (other, 0)) as connection:
        connection.sendall(line)
        told: dict[str, Any] = json.loads(connection.makefile().readline())
        assert set(told["error"]) == {"name", "value", "legal"}
        connection.sendall(b'{"uetproto": 1}\n')
        assert json.loads(connection.makefile().readline()) == {"uetproto": 1}


def test_a_line_without_end(server: tuple[str, str, RendezvousServer]) -> None:
    local, other, _ = server
    with socket.create_connection((local, PORT), 5, (other, 0)) as connection:
        try:
            for _ in range(4):
                connection.sendall(b"x" * LONGEST_LINE)
            left = connection.recv(1)
        except ConnectionError:
            left = b""
        assert left == b""
    test_offers_and_questions(server)


def test_an_address_that_is_not_allowed(server: tuple[str, str, RendezvousServer]) -> None:
    local, other, found = server
    found._allowed = [ip_network("10.0.0.0/8")]
    client = RendezvousClient(local, PORT, local=other)
    with pytest.raises(RemoteError, match=r"rendezvous with"):
        client.begin({})
    client.close()
    assert found.refused == 1


def test_nobody_there() -> None:
    local, other = addresses()
    with pytest.raises(LocalError, match=r"no rendezvous at .*, TCP port 1: Connection refused; legal: a host with"):
        RendezvousClient(local, 1, local=other)
