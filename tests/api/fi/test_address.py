# SPDX-License-Identifier: GPL-2.0-only
"""The address of an endpoint and its 32 bytes (ses.md §2.3)."""

from typing import Any

import pytest

from tests.support.api.fi_network import pair
from uetproto.api import fi

FULL = fi.Address(
    fa=0x0A000001, fep_cap=fi.FepCap.AI_FULL | fi.FepCap.HPC, pid_on_fep=3, start_index=15, num_indices=2,
    initiator_id=0x00010000,
)  # fmt: skip
VECTORS: list[tuple[str, fi.Address, str]] = [
    ("everything", FULL, "55011f00 0006 0003 000f 0002 00010000 0a000001 000000000000000000000000"),
    (
        "IPv6, absolute, one MTU, all 12 bits",
        fi.Address(
            fa=0x20010DB8 << 96 | 1, ip_version=6, fep_cap=fi.FepCap.OPTIMIZED, pid_on_fep=0xFFF, start_index=0xFFF,
            num_indices=0xFFF, initiator_id=0xFFFFFFFF, absolute=True, mtu_limited=True,
        ),
        "5501ff00 0080 0fff 0fff 0fff ffffffff 20010db8000000000000000000000001",
    ),
    ("fabric address alone", fi.Address(fa=1), "55010200 0000 0000 0000 0000 00000000 00000001 " + "00" * 12),
    ("nothing valid", fi.Address(fa=None), "55010000" + "00" * 28),
]  # fmt: skip


@pytest.mark.parametrize(("address", "data"), [row[1:] for row in VECTORS], ids=[row[0] for row in VECTORS])
def test_vectors(address: fi.Address, data: str) -> None:
    assert address.pack() == bytes.fromhex(data)
    assert fi.Address.unpack(bytes.fromhex(data)) == address


@pytest.mark.parametrize(("bit", "field"), [(0, "fep_cap"), (1, "fa"), (2, "pid_on_fep"), (3, "start_index"),
                                            (4, "initiator_id")])  # fmt: skip
def test_a_field_counts_only_with_its_flag(bit: int, field: str) -> None:
    data = bytearray(FULL.pack())
    data[2] &= ~(1 << bit)
    address = fi.Address.unpack(bytes(data))
    assert getattr(address, field) is None
    assert not address.flags & 1 << bit


@pytest.mark.parametrize(
    ("at", "value", "named"), [(0, 0x54, "5401"), (1, 2, "5502"), (3, 1, "55011f01"), (21, 9, "fa"), (6, 0x10, "pid")]
)
def test_what_is_no_address(at: int, value: int, named: str) -> None:
    data = bytearray(FULL.pack())
    data[at] = value
    with pytest.raises(fi.FiError, match=named) as raised:
        fi.Address.unpack(bytes(data))
    assert raised.value.errno is fi.Errno.FI_EINVAL


@pytest.mark.parametrize("size", [0, 31, 33])
def test_another_length(size: int) -> None:
    with pytest.raises(fi.FiError, match=f"{size} bytes is not legal; legal: 32 bytes"):
        fi.Address.unpack(bytes(size))


@pytest.mark.parametrize(
    "field",
    [{"fa": 1 << 32}, {"fa": -1}, {"pid_on_fep": 1 << 12}, {"start_index": 4096}, {"num_indices": 4096},
     {"initiator_id": 1 << 32}, {"fep_cap": 1 << 16}, {"ip_version": 5}],
    ids=lambda field: next(iter(field)),
)  # fmt: skip
def test_a_value_without_a_place(field: dict[str, Any]) -> None:
    with pytest.raises(fi.FiError, match=f"^{next(iter(field))}: ") as raised:
        fi.Address(**({"fa": 1} | field))
    assert raised.value.errno is fi.Errno.FI_EINVAL


def test_of_an_endpoint() -> None:
    two = pair(ses=fi.SesConfig(profile="hpc", optimized_headers=True))
    assert two.b.address == fi.Address(
        fa=0x0A000002, fep_cap=fi.FepCap.HPC | fi.FepCap.OPTIMIZED, pid_on_fep=0, start_index=15, initiator_id=17
    )
    assert fi.Address.unpack(two.b.address.pack()) == two.b.address
    assert str(two.b.address) == "fi_addr_uet://10.0.0.2/pid 0/index 15"


def test_of_a_datagram_endpoint_and_a_service() -> None:
    fabric = fi.Fabric()
    address = fabric.domain("a", absolute=True).endpoint(fi.EpType.DGRAM).address
    assert (address.mtu_limited, address.absolute) == (True, True)


def test_the_vector() -> None:
    av = fi.Fabric().domain("a").av_open()
    one, other = fi.Address(fa=1), fi.Address(fa=2)
    handles = [av.insert(one), av.insert(other.pack()), av.insert(one)]
    assert handles == [0, 1, 0]
    assert (av.lookup(1), av.lookup(other), len(av)) == (other, other, 2)
    assert av.straddr(0) == "fi_addr_uet://0.0.0.1/pid None/index None"
    av.remove(0)
    for gone in (0, one):
        with pytest.raises(fi.FiError, match="fi_addr: "):
            av.lookup(gone)
    assert av.lookup(1) == other
    assert av.insert(one) == 2, "a handle is never another address's"


@pytest.mark.parametrize("wrong", [fi.Address(fa=None), fi.Address(fa=1, ip_version=6), b"", 7, "10.0.0.1"])
def test_what_a_vector_refuses(wrong: Any) -> None:
    av = fi.Fabric().domain("a").av_open()
    with pytest.raises(fi.FiError, match="address: ") as raised:
        av.insert(wrong)
    assert raised.value.errno is fi.Errno.FI_EINVAL
    assert len(av) == 0
