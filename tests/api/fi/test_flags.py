# SPDX-License-Identifier: GPL-2.0-only
"""Names and numbers of libfabric (rdma/fabric.h, rdma/fi_domain.h)."""

from uetproto.api import fi

FLAGS = {
    "MSG": 1, "RMA": 2, "TAGGED": 3, "ATOMIC": 4, "READ": 8, "WRITE": 9, "RECV": 10, "SEND": 11, "TRANSMIT": 11,
    "REMOTE_READ": 12, "REMOTE_WRITE": 13, "MULTI_RECV": 16, "REMOTE_CQ_DATA": 17, "MORE": 18, "FENCE": 21,
    "COMPLETION": 24, "INJECT": 25, "INJECT_COMPLETE": 26, "TRANSMIT_COMPLETE": 27, "DELIVERY_COMPLETE": 28,
    "MATCH_COMPLETE": 31, "RMA_EVENT": 56, "SELECTIVE_COMPLETION": 59,
}  # fmt: skip
ORDERS = {
    "RAR": 0, "RAW": 1, "RAS": 2, "WAR": 3, "WAW": 4, "WAS": 5, "SAR": 6, "SAW": 7, "SAS": 8, "RMA_RAR": 32,
    "RMA_RAW": 33, "RMA_WAR": 34, "RMA_WAW": 35, "ATOMIC_RAR": 36, "ATOMIC_RAW": 37, "ATOMIC_WAR": 38,
    "ATOMIC_WAW": 39,
}  # fmt: skip


def test_flags() -> None:
    members = {name: flag.value for name, flag in fi.Flag.__members__.items() if flag}
    assert members == {name: 1 << bit for name, bit in FLAGS.items()}


def test_orders() -> None:
    orders = {name: order.value for name, order in fi.Order.__members__.items() if name not in ("NONE", "STRICT")}
    assert orders == {name: 1 << bit for name, bit in ORDERS.items()}
    assert int(fi.Order.STRICT) == sum(1 << bit for bit in range(9))


def test_modes_and_formats() -> None:
    modes = {name: mode.value for name, mode in fi.MrMode.__members__.items() if mode}
    assert modes == {"LOCAL": 1 << 2, "VIRT_ADDR": 1 << 4, "PROV_KEY": 1 << 6, "ENDPOINT": 1 << 9}
    assert {form.name: form.value for form in fi.CqFormat} == {"CONTEXT": 1, "MSG": 2, "DATA": 3, "TAGGED": 4}
    assert {kind.name: kind.value for kind in fi.EpType} == {"DGRAM": 2, "RDM": 3}
    caps = {cap.name: cap.value for cap in fi.FepCap}
    assert caps == {"AI_BASE": 1, "AI_FULL": 2, "HPC": 4, "REORDER": 64, "OPTIMIZED": 128}
    assert fi.ADDR_UNSPEC == 2**64 - 1
