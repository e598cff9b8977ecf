# SPDX-License-Identifier: GPL-2.0-only
"""Random runs for the comparison of trains with single packets, as tables: scenarios by their sections, as `tomllib`
reads them; command lines of `collective` and `fabric` in the section `command`; programs (`programs`); and runs of
`generate` (`traffic`).
"""

from collections.abc import Callable, Sequence
from ipaddress import ip_address
from random import Random
from typing import Any

from tests.support.trains import programs
from tests.support.trains.programs import Tables
from tests.support.trains.sharp import draw_sharp
from tests.support.trains.traffic import draw_traffic
from uetproto.engine.tss.cipher import context, derive

_RATES = ("400 Gb/s", "100 Gb/s", "100 Gb/s", "25 Gb/s", "37 Gb/s", "3.3 Gb/s", "97 Gb/s", "800 Gb/s", "133 Gb/s")
_DELAYS = ("1 us", "500 ns", "0 ps", "100 ns", "77 ns", "1 ps", "9 us", "41 ns", "200 ns")
_PATTERNS = ("incast", "outcast", "permutation", "all_to_all")
_ANY = (1, 2, 5, 17, 33, 60, 90, 130, 200)
_MANY = (2, 33, 60, 90, 130, 200)
"""Numbers of packets of a message."""
_KEY = 7


def _maybe(rng: Random, chance: float, table: Tables, **choices: Any) -> None:
    """Add each key with a chance; its value is one of a sequence."""
    for key, values in choices.items():
        if rng.random() < chance:
            table[key] = rng.choice(values)


def kind_of(seed: int, only: Sequence[str] = ()) -> str:
    """Return the kind of the run of a seed: one of `KINDS`, or of `only` if there are some."""
    if only:
        return only[seed % len(only)]
    return Random(f"kind {seed}").choices([*KINDS], [weight for weight, _ in KINDS.values()])[0]


def draw(seed: int, kind: str | None = None) -> Tables:
    """Return the run of a seed, of a kind."""
    return KINDS[kind or kind_of(seed)][1](Random(seed), seed)  # not the generator that drew the kind


def _fabric(rng: Random, hosts: int) -> Tables:
    fabric: Tables = {"rate": rng.choice(_RATES), "delay": rng.choice(_DELAYS)}
    if hosts == 2 and rng.random() < 0.3:
        fabric["topology"] = "pair"
    elif rng.random() < 0.15:
        fabric |= {"topology": "leaf-spine", "hosts_per_leaf": rng.choice((1, 2)), "spines": rng.choice((1, 2))}
    if rng.random() < 0.3:
        fabric["queue_capacity"] = rng.choice((5_000, 9_000, 20_000, 65_536, 300_000))
    _maybe(rng, 0.2, fabric, crc=("off",), mtu=(4400, 9216, 9000))
    return fabric


def _faults(rng: Random, names: list[str]) -> Tables:
    faults: Tables = {}
    for name in ("drop", "duplicate", "reorder", "delay", "corrupt", "trim"):
        if rng.random() < 0.25:
            few = sorted({rng.randrange(60) for _ in range(rng.randrange(1, 4))})
            faults[name] = rng.choice((0.01, 0.05, few, few))
    if "reorder" in faults:
        _maybe(rng, 0.4, faults, reorder_by=(1, 2, 5), reorder_time=("2 us", "30 us"))
    if "delay" in faults:
        _maybe(rng, 0.4, faults, delay_time=("1 us", "100 us"))
    if faults and rng.random() < 0.4:
        faults["from"] = [rng.choice(names)]
    return faults


def _nodes(rng: Random, count: int) -> Tables:
    version = "fd00::{}" if rng.random() < 0.15 else "10.0.0.{}"
    nodes: Tables = {}
    for number in range(count):
        nodes[f"n{number}"] = node = {"address": version.format(number + 1)}
        _maybe(rng, 0.1, node, rate=_RATES)
    if rng.random() < 0.05:
        for node in nodes.values():
            node["ports"] = 2
    return nodes


def _tap(rng: Random, names: list[str]) -> Tables:
    return {"nodes": rng.choice(("all", "all", [names[0]], [names[-1]], names[:2]))}


def _uet(rng: Random, seed: int, sealed: bool = False) -> Tables:
    """Draw a scenario over UET, sealed or seldom so."""
    count = rng.choice((2, 2, 2, 3, 3, 4, 5))
    names = [f"n{number}" for number in range(count)]
    mode = rng.choice(("rod", "rud", "rod", "rud", "rod", "rud", "rudi", "uud"))
    if sealed and mode in ("rudi", "uud") and rng.random() < 0.7:
        mode = "rod"
    mtu = rng.choice((1024, 1024, 1024, 2048, 4096))
    tables: Tables = {
        "run": {"seed": seed & 0xFFFF, "mode": mode, "initiator": "n0", "target": "n1", "time_limit": "200 ms"},
        "nodes": _nodes(rng, count), "fabric": _fabric(rng, count), "ses": {"payload_mtu": mtu}, "pds": {},
        "tap": _tap(rng, names),
    }  # fmt: skip
    fabric, pds, ses = tables["fabric"], tables["pds"], tables["ses"]
    odd = rng.choice((0, 0, 0.03, 0.12))  # many keys at once would leave no train
    _maybe(rng, 0.15, fabric, encapsulation=("native",), trimming=(True,), red_kmin=(3000,), red_kmax=(20_000,))
    _maybe(
        rng, odd, pds, default_mpr=(1, 2), mp_range=(128, 256), ack_gen_trigger=(0, 1024, 5000, 32768),
        ack_gen_min_pkt_add=(0, 2048), ack_cc=("always", "never"), ack_ccx=(True,), enb_ack_per_pkt=(True,),
        ar_on_eom=(False,), ack_on_ecn=(False,), sack_base=("trigger", "cack_plus_1"), rod_gap=("reorder",),
        rod_recovery=("selective",), clear_source=("cack",), window_base=("cack",), clear_at=("message",),
        clear_cmd=("immediate",), entropy_values=(1, 4, 16), max_gtd_del=(1, 2, 4), max_packet_buffers=(2, 8),
        dup_without_retx=("answer",), ack_on_gap_close=(False,), idle_time=("3 us", "50 us"),
        clear_on_retransmission=("as_first_sent",), pds_clear_time=("1 us", "20 us"),
        inferred_loss=("sack", "probe", "ooo"),
    )  # fmt: skip
    _maybe(rng, 0.15, pds, ack_gen_trigger=(0, 1024, 5000, 32768), default_mpr=(1,), ack_cc=("always",))
    if rng.random() < 0.5:
        pds["rto_init_time"] = rng.choice(("12 us", "50 us", "300 us"))
    _maybe(
        rng, odd, ses, optimized_headers=(True,), max_msg_size=(3 * mtu, 20_000), max_reads=(1, 3), hd_in=("som",),
        write_latency=("1 us",), max_rx_messages=(1, 2), unexpected_messages=(0, 1), inject_size=(0,),
    )  # fmt: skip
    if rng.random() < 0.1:
        tables["cc"] = {"algorithm": rng.choice(("nscc", "rccc", "nscc+rccc"))}
        fabric["trimming"] = rng.random() < 0.8
    if sealed or rng.random() < 0.15:
        _seal(rng, tables, names)
    if rng.random() < 0.4:
        tables["faults"] = _faults(rng, names)
    if rng.random() < 0.1:
        tables["preset"] = {"n0": {"start_psn": rng.choice((0xFFFFFFF0, 0x7FFFFFFA, 0))}}
    tables["operation"] = _uet_rows(rng, names, mode, mtu, _MANY if sealed else _ANY)
    return tables


def _sealed(rng: Random, seed: int) -> Tables:
    return _uet(rng, seed, True)


def _seal(rng: Random, tables: Tables, names: list[str]) -> None:
    """Seal the packets: in any mode, with one or two keys, changes of key and epoch, and nodes that do not agree."""
    nodes, mode, target = tables["nodes"], rng.choice(("direct", "cluster", "client-server")), tables["run"]["target"]
    security: Tables = {"sdi": rng.choice((1, 0xABCDEF)), "mode": mode}
    tables["security"] = security
    is_ipv6 = ":" in nodes[names[0]]["address"]
    if rng.random() < 0.5 or (mode == "direct" and is_ipv6):
        for number, node in enumerate(nodes.values()):
            node["ssi"] = 1 + number * 77
    keys = [{"an": an, "key": f"{7 + an:02x}" * 32} for an in rng.choice(((0,), (0,), (1,), (0, 1), (0, 1)))]
    security["keys"] = keys
    clients = [name for name in names if name != target]
    derived = mode == "client-server" and rng.random() < 0.4
    if derived:  # the server derives such keys; of the wrong ones, no packet opens
        security["server"] = target
        for name in clients:
            nodes[name]["security"] = {"keys": [one | {"key": _derived(tables, name, one)} for one in keys]}
    elif mode == "client-server" and rng.random() < 0.5:
        security["server"] = rng.choice(names)
    security["start"] = rng.choice(("off", "expected", "random"))
    if len(keys) == 2 and rng.random() < 0.7:
        security["rotate_at"] = rng.choice((1, 33, 70, 100, 150, 220, "7 us", "13 us", "20 us"))
        _maybe(rng, 0.7, security, rotate_guard=("0 ps", "2 us", "15 us", "60 us"))
    if not derived:
        _maybe(rng, 0.3, security, epoch_at=(3, 30, 90, 150, "9 us", "30 us"))
        _maybe(rng, 0.15, security, epoch=(5, 0xFFFF))
    if mode == "cluster":
        if rng.random() < 0.3:
            mask, shift = rng.choice(((0xFF00, 8), (0xFFFFFFF8, 3), (0x1F, 0), (0xA0, 5), (0xF << 48, 48)))
            security |= {"rekey_mask": mask, "rekey_shift": shift}
        if is_ipv6:
            _maybe(rng, 0.3, security, ipv6_ssi_context=("small",))
    _maybe(rng, 0.15, security, crypto_offset=(12, 24, 32, 40, 64))
    if rng.random() < 0.35:  # nodes that differ
        own = nodes[rng.choice(names)].setdefault("security", {})
        _maybe(
            rng, 0.3, own, rx_max_epoch_lifetime=(0, 1), auth_fail_threshold=(0, 3),
            invoke_fatal_threshold=(10, 80, 150), strict_tsc_halves=(False,), plain=("pass",),
            clear_nacks=(["NEW_START_PSN"],),
        )  # fmt: skip
        if len(keys) == 2 and not derived:  # the same key at first, but another one after a rotation
            _maybe(rng, 0.6, own, keys=([keys[0], keys[1] | {"key": "5a" * 32}],))
        if not derived:
            _maybe(rng, 0.2, own, epoch=(1, 40))
        if "epoch_at" in security:
            _maybe(rng, 0.6, own, rx_max_epoch_lifetime=(0,))


def _derived(tables: Tables, name: str, row: Tables) -> str:
    """Return the derived key of a client, in epoch 0."""
    node, key = tables["nodes"][name], bytes.fromhex(row["key"])
    address = ip_address(node["address"]).packed
    identity = node["ssi"].to_bytes(4, "big") if "ssi" in node and len(address) == 4 else address
    return b"".join(derive(key, b"U2", context(0, 0, identity))).hex()


def _length(rng: Random, mtu: int, counts: tuple[int, ...] = _ANY) -> int:
    packets = rng.choice(counts) * 1024 // min(mtu, 2048) or 1
    return max(packets * mtu + rng.choice((0, 0, 1, -1, 77, mtu // 2)), 1)


def _uet_rows(rng: Random, names: list[str], mode: str, mtu: int, counts: tuple[int, ...]) -> list[Tables]:
    if len(names) > 2 and mode in ("rod", "rud") and rng.random() < 0.4:
        return [
            {"do": rng.choice(_PATTERNS), "length": min(_length(rng, mtu, counts), 90_000)}
            for _ in range(rng.choice((1, 1, 2)))
        ]  # fmt: skip
    rows: list[Tables] = []
    at = 0
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        node, peer = rng.sample(names, 2)
        length, key = _length(rng, mtu, counts), (_KEY + number) | (mode == "rudi") << 63
        what = rng.choice(("write", "write", "write", "read", "send", "send", "atomic"))
        if mode == "uud":
            what, length = "send", min(length, mtu)
        elif mode == "rudi" and what in ("send", "atomic"):
            what = "write"
        tagged = {} if mode == "uud" else {"tag": number}
        row: Tables = {"do": what, "node": node, "peer": peer}
        if what == "send":
            rows.append({"do": "receive", "node": peer, "length": length + rng.choice((0, 0, 10)), **tagged})
            row |= {"length": length, **tagged}
            if tagged:
                _maybe(rng, 0.15, row, kind=("rendezvous", "deferrable"))
        elif what == "atomic":
            rows.append({"do": "region", "node": peer, "length": 64, "key": key})
            row |= {"key": key, "opcode": "SUM", "datatype": "UINT64", "operand": 5, "fetch": rng.random() < 0.5}
        else:
            rows.append({"do": "region", "node": peer, "length": length + 64, "key": key})
            row |= {"length": length, "key": key}
            _maybe(rng, 0.2, row, offset=(0, 64), delivery_complete=(True,))
            if what == "write" and mode != "rudi":
                _maybe(rng, 0.2, row, completion_data=(9,))
        if mode in ("rod", "rud"):
            _maybe(rng, 0.15, row, mode=("rod", "rud"))
        if rng.random() < 0.3:
            at += rng.choice((1, 2, 7, 30, 200))
            row["at"] = f"{at} us"
        _maybe(rng, 0.2, row, after=("previous", "all"))
        rows.append(row)
    return rows


def _roce(rng: Random, seed: int) -> Tables:
    transport = rng.choice(("rc", "rc", "rc", "uc", "ud"))
    mtu = rng.choice((256, 1024, 1024, 2048, 4096))
    count = 2 if transport == "ud" else rng.choice((2, 2, 3, 4))
    names = [f"n{number}" for number in range(count)]
    tables: Tables = {
        "run": {
            "seed": seed & 0xFFFF, "transport": transport, "initiator": "n0", "target": "n1", "time_limit": "200 ms",
        },
        "nodes": _nodes(rng, count), "fabric": _fabric(rng, count), "roce": {"path_mtu": mtu}, "tap": _tap(rng, names),
    }  # fmt: skip
    _maybe(rng, 0.15, tables["fabric"], red_kmin=(3000,), vlan=(100,))
    if "topology" not in tables["fabric"] and "queue_capacity" not in tables["fabric"]:
        _maybe(rng, 0.3, tables["fabric"], pfc=(True,))
        if "pfc" in tables["fabric"] and rng.random() < 0.5:
            tables["fabric"] |= {"pfc_xoff": rng.choice((3000, 9000, 20_000)), "pfc_xon": rng.choice((1, 3000))}
        if "pfc" in tables["fabric"] and rng.random() < 0.3:
            tables["fabric"] |= {"pfc_quanta": rng.choice((10, 300)), "pfc_repeat": rng.choice((1, 5, 9))}
    _maybe(
        rng,
        0.2,
        tables["roce"],
        timeout=(2, 4),
        retry_cnt=(1, 3),
        ack_req_interval=(1, 4, 16),
        credits=(False,),
        max_unacked_psns=(4, 20),
        ack_coalesce=(3, 16),
        congestion=("dcqcn",),
        icrc=(False,),
        max_rd_atomic=(1,),
    )
    if "congestion" in tables["roce"]:
        tables["fabric"] |= {"red_kmin": 1500, "red_kmax": 9000, "red_pmax": 0.3}
    if rng.random() < 0.4:
        tables["faults"] = _faults(rng, names)
        tables["faults"].pop("trim", None)
    if count > 2 or (transport != "ud" and rng.random() < 0.3):
        tables["operation"] = [
            {"do": rng.choice(_PATTERNS), "length": min(_length(rng, mtu), 90_000)}
        ]  # fmt: skip
        return tables
    tables["qp"] = {
        name: {"number": 17 + number, "sq_psn": rng.choice((5, 0xFFFFF8))} for number, name in enumerate(names)
    }
    rows: list[Tables] = []
    at = 0
    for number in range(rng.choice((1, 1, 2, 3))):
        length, key = _length(rng, mtu), 0x1234 + number
        what = {
            "rc": rng.choice(("write", "write", "read", "send")),
            "uc": rng.choice(("write", "send")),
            "ud": "send",
        }[transport]
        length = min(length, mtu) if transport == "ud" else length
        if what == "send":
            rows.append({"do": "receive", "length": length + (40 if transport == "ud" else 0)})
            rows.append({"do": "send", "length": length})
        else:
            rows.append({"do": "region", "length": length + 64, "key": key})
            rows.append({"do": what, "length": length, "key": key})
        if transport == "ud":
            rows[-1]["to"] = names[1]
        if rng.random() < 0.3:
            at += rng.choice((1, 2, 7, 30))
            rows[-1]["at"] = f"{at} us"
        _maybe(rng, 0.2, rows[-1], after=("previous", "all"))
        if what in ("write", "send") and transport != "ud":
            _maybe(rng, 0.15, rows[-1], signaled=(False,))
    tables["operation"] = rows
    return tables


def _collective(rng: Random, seed: int) -> Tables:
    op, algorithm = rng.choice((
        ("all_reduce", "ring"), ("all_reduce", "tree"), ("all_reduce", "nccl_ring"), ("all_reduce", "double_tree"),
        ("all_reduce", "sharp"), ("all_gather", "ring"), ("all_gather", "bruck"), ("all_gather", "multicast"),
        ("broadcast", None), ("reduce", None), ("gather", None), ("all_to_all", "linear"), ("all_to_all", "pairwise"),
        ("reduce_scatter", "ring"), ("reduce_scatter", "halving"),
    ))  # fmt: skip
    ranks = rng.choice((2, 4) if algorithm == "halving" else (2, 3, 4, 5))
    size = rng.choice((4096, 40_000) if algorithm == "sharp" else (4096, 120_000, 240_000))
    row: Tables = {
        "name": "collective", "argument": op, "ranks": ranks, "bytes": size // (4 * ranks) * 4 * ranks,
        "transport": "roce" if algorithm == "multicast" else rng.choice(("uet", "roce")),
        "seed": seed & 0xFFFF, "rate": rng.choice(("400 Gb/s", "100 Gb/s", "37 Gb/s")),
        "mtu": rng.choice((1024, 1024, 4096)), "tap": rng.choice(("all", "all", "0", "1")),
        "topology": rng.choice(("switch", "switch", "leaf-spine:hosts_per_leaf=2,spines=2", "fat-tree")),
    }  # fmt: skip
    if algorithm is not None:
        row["algorithm"] = algorithm
    if rng.random() < 0.4:
        row["cc"] = rng.choice(
            ("off", "nscc", "nscc+rccc") if row["transport"] == "uet" else ("off", "pfc", "dcqcn", "dcqcn+pfc")
        )
    if algorithm != "sharp":
        _maybe(rng, 0.15, row, loss=(0.02,), ports=(2,))
    if "leaf" in row["topology"]:
        _maybe(rng, 0.3, row, tap=("leaf0.spine1,0", "leaf0"))
    if "pfc" in row.get("cc", ""):
        row.pop("ports", None)
    return {"command": row}


def _fabric_study(rng: Random, seed: int) -> Tables:
    topology = rng.choice(("fat-tree", "leaf-spine:hosts_per_leaf=2,spines=2", "switch", "switch"))
    row: Tables = {
        "name": "fabric", "argument": rng.choice((*_PATTERNS, "incast+permutation")), "hosts": rng.choice((4, 6, 8)),
        "topology": topology, "flow-size": rng.choice((3000, 70_000, 120_001)), "seeds": seed & 0xFFFF,
        "cc": rng.choice(("off", "off", "off", "nscc", "rccc", "nscc+rccc")),
        "rate": rng.choice(("100 Gb/s", "37 Gb/s")), "delay": rng.choice(("1 us", "100 ns", "0 ps")),
    }  # fmt: skip
    if row["argument"] == "all_to_all":
        row["hosts"] = 4
    _maybe(rng, 0.3, row, queue=(9_000, 40_000, 200_000), profile=("htsim",), tap=("h0", "h1,h2"))
    if rng.random() < 0.3:
        row["no-trim"] = True
    if row["cc"] != "off":
        _maybe(rng, 0.5, row, lb=("oblivious", "bitmap", "reps", "mixed"))
    if "leaf" in topology:
        _maybe(rng, 0.3, row, fail=("leaf0.spine1@3us", "leaf0.spine0"), tap=("leaf0.spine1", "h0,leaf1"))
    _maybe(
        rng, 0.1, row,
        set=("switch.ecn=deterministic", "pds.rto_init_time=30 us", "pds.ack_gen_trigger=4096", "cc.entropy_values=16"),
    )  # fmt: skip
    return {"command": row}


KINDS: dict[str, tuple[float, Callable[[Random, int], Tables]]] = {
    "uet": (0.34, _uet), "roce": (0.17, _roce), "fi": (0.18, programs.fi), "verbs": (0.14, programs.verbs),
    "sealed": (0.08, _sealed),
    "distributed": (0.03, programs.distributed), "collective": (0.05, _collective), "fabric": (0.05, _fabric_study),
    "generate": (0.05, draw_traffic),
    "sharp": (0.01, draw_sharp),
}  # fmt: skip
"""What draws the runs of each kind, and their weight among all runs."""
