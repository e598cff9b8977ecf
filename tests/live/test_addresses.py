# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel says of the addresses of a host."""

import sys

from tests.support.namespaces import ADDRESSES, hosts

SCRIPT = """
from ipaddress import ip_address
from uetproto.live import sockets
for text in {texts!r}:
    found = ip_address(text)
    print(sockets.interface_of(int(found), found.version), sockets.mtu_of_interface(int(found), found.version))
"""


def test_the_mtu_of_each_address_of_an_interface() -> None:
    """An interface has several addresses, of which one may have a label; an address of nobody has the largest MTU."""
    texts = [ADDRESSES[4][0], "10.98.0.1", "10.99.0.77", "10.97.0.5", ADDRESSES[6][0], "10.1.2.3"]
    with hosts(mtu=3000) as both:
        for address, *label in (("10.98.0.1/24",), ("10.99.0.77/24",), ("10.97.0.5/24", "label", "v0:9")):
            both.at(False, "ip", "addr", "add", address, "dev", "v0", *label)
        told = both.at(False, sys.executable, "-c", SCRIPT.format(texts=texts))
    assert told.splitlines() == ["v0 3000"] * 5 + ["None 65535"]
