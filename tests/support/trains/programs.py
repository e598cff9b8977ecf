# SPDX-License-Identifier: GPL-2.0-only
"""Random programs over fi, verbs and distributed, as tables: what the network is, and the rows of the program.

A row names endpoints, queue pairs, regions and buffers by numbers, so that a program stays legal, or is refused in the
same way both times, when rows are left out.
"""

from random import Random
from typing import Any

Tables = dict[str, Any]

SIZES = (1, 100, 1024, 5000, 17_000, 33_000, 50_001, 66_560, 90_000)
ROOM = 100_000
"""Bytes of each buffer and each region."""
BUFFERS = 3
"""Buffers, and regions, of each endpoint or queue pair."""
_TIMES = (0, 1, 77_000, 100_000, 1_000_000, 1_300_000, 3_000_000, 5_100_000, 9_000_000, 20_000_000, 50_000_000,
          400_000_000)  # fmt: skip
_RATES = ("400 Gb/s", "100 Gb/s", "100 Gb/s", "25 Gb/s", "37 Gb/s", "97 Gb/s", "800 Gb/s")
_DELAYS = ("1 us", "500 ns", "0 ps", "100 ns", "1 ps", "9 us", "41 ns")


def _network(rng: Random, nodes: int, seed: int, trims: bool) -> Tables:
    """Return the keywords of a network of so many nodes; `trims` is whether frames can be trimmed."""
    network: Tables = {
        "nodes": nodes, "seed": seed & 0xFFFF, "rate": rng.choice(_RATES), "delay": rng.choice(_DELAYS),
        "taps": rng.choice(("all", "all", "n0", "n1")),
    }  # fmt: skip
    chance = rng.random()
    if nodes == 2 and chance < 0.2:
        network["topology"] = "pair"
    elif chance > 0.8:
        network |= {"topology": "leaf-spine", "hosts_per_leaf": rng.choice((1, 2)), "spines": 2}
        network["taps"] = rng.choice(("all", "n0,leaf0", "leaf0.spine1", "n1,leaf1.spine0"))
    if rng.random() < 0.25:
        network["queue_capacity"] = rng.choice((6_000, 9_000, 20_000, 65_536))
    if rng.random() < 0.1:
        network["vlan"] = 100
    if rng.random() < 0.05:
        network["metered"] = True
    if "topology" not in network and rng.random() < 0.08:
        network["ports"] = 2
    if rng.random() < 0.35:
        network["faults"] = _faults(rng, trims)
        if rng.random() < 0.4:
            network["faults_from"] = f"n{rng.randrange(nodes)}"
    return network


def _faults(rng: Random, trims: bool) -> Tables:
    faults: Tables = {}
    for name in ("drop", "duplicate", "reorder", "delay", "corrupt", *(("trim",) if trims else ())):
        if rng.random() < 0.3:
            few = sorted({rng.randrange(60) for _ in range(rng.randrange(1, 4))})
            faults[name] = rng.choice((0.01, 0.04, few, few))
    return faults


def _looks(rng: Random) -> Tables:
    """Return a row in which time passes, or in which the program looks at something."""
    kind = rng.random()
    if kind < 0.5:
        return {"do": "advance", "time": rng.choice(_TIMES) + rng.choice((0, 0, rng.randrange(100_000)))}
    if kind < 0.6:
        return {"do": "burst", "events": rng.choice((1, 3, 40, 300, 2000)), "time": rng.choice(_TIMES)}
    if kind < 0.7:
        return {"do": "look"}
    if kind < 0.75:
        return {"do": "until", "end": rng.randrange(8), "at": rng.choice((1000, 20_000, 60_000))}
    return {"do": "poll", "end": rng.randrange(8), "count": rng.choice((1, 2, 16)),
            "time": rng.choice((None, None, 0, 1_000_000, 30_000_000))}  # fmt: skip


def fi(rng: Random, seed: int) -> Tables:
    """Return a random program over fi: messages, tagged messages, RMA and atomics of several endpoints."""
    nodes = rng.choice((2, 2, 3, 4))
    network = _network(rng, nodes, seed, True)
    pds: Tables = {"rto_init_time": rng.choice((15_000_000, 60_000_000, 10**9))}
    ses: Tables = {"payload_mtu": rng.choice((1024, 1024, 1024, 1024, 2048, 4096))}
    if rng.random() < 0.15:
        pds |= rng.choice((
            {"ack_gen_trigger": 0}, {"ack_gen_trigger": 32768}, {"default_mpr": 1}, {"ack_cc": "always"},
            {"rod_gap": "reorder"}, {"inferred_loss": "sack"}, {"max_pdcs": 3}, {"idle_time": 5_000_000},
            {"max_packet_buffers": 4}, {"max_gtd_del": 1}, {"entropy_values": 4}, {"clear_cmd": "immediate"},
            {"enb_ack_per_pkt": True}, {"rod_recovery": "selective"}, {"ack_on_gap_close": False},
        ))  # fmt: skip
    if rng.random() < 0.3:
        ses |= rng.choice((
            {"large_send": "rendezvous"}, {"large_send": "deferrable"}, {"large_send": "auto", "eager_length": 2000},
            {"unexpected_messages": 0, "unexpected_policy": "refuse"}, {"cq_size": 2}, {"tx_size": 2},
            {"max_reads": 1}, {"optimized_headers": True}, {"max_msg_size": 20_000}, {"strict_ref_errors": True},
        ))  # fmt: skip
    if rng.random() < 0.2:
        network["trimming"] = True
    if rng.random() < 0.15:
        network |= {"cc": rng.choice(("nscc", "rccc", "nscc+rccc")), "trimming": True}
        network.pop("queue_capacity", None)
    ends = [
        {"node": number if number < nodes else rng.randrange(nodes), "type": "rdm" if rng.random() < 0.92 else "dgram",
         "order": rng.choice(("none", "none", "waw", "strict"))}
        for number in range(nodes + rng.choice((0, 0, 1)))
    ]  # fmt: skip
    for end in ends:
        if rng.random() < 0.15:
            end["file"] = True
    rows = [_fi_row(rng, len(ends)) if rng.random() < 0.6 else _looks(rng) for _ in range(rng.choice((3, 5, 8, 12)))]
    return {"fi": network, "pds": pds, "ses": ses, "end": ends, "step": rows}


def _fi_row(rng: Random, ends: int) -> Tables:
    end, peer = rng.sample(range(ends), 2)
    row: Tables = {"end": end, "peer": peer, "buffer": rng.randrange(BUFFERS), "length": rng.choice(SIZES)}
    kind = rng.random()
    if kind < 0.4:
        row |= {"do": "write", "region": rng.randrange(BUFFERS), "addr": rng.choice((0, 0, 64, 9000))}
        if rng.random() < 0.15:
            row["data"] = 9
    elif kind < 0.5:
        row |= {"do": "read", "region": rng.randrange(BUFFERS), "addr": rng.choice((0, 64))}
    elif kind < 0.65:
        row |= {"do": "send"}
    elif kind < 0.75:
        row |= {"do": "receive"}
    elif kind < 0.8:
        row |= {"do": "receive", "multi": True, "length": ROOM}
    elif kind < 0.87:
        row |= {
            "do": "atomic",
            "region": rng.randrange(BUFFERS),
            "addr": 8 * rng.randrange(4),
            "fetch": rng.random() < 0.5,
        }
    elif kind < 0.92:
        row |= {"do": "scribble", "length": rng.choice((1, 5000, ROOM))}
    elif kind < 0.95:
        row |= {"do": "cancel"}
    else:
        row |= {
            "do": rng.choice(("disable", "enable", "close", "close region", "kill")),
            "region": rng.randrange(BUFFERS),
        }
    if row["do"] in ("send", "receive") and "multi" not in row and rng.random() < 0.4:
        row["tag"] = rng.randrange(2)
    if row["do"] in ("write", "send", "read", "receive") and "multi" not in row and rng.random() < 0.1:
        row["pieces"] = rng.choice((2, 3))
    for flag, chance in (("fence", 0.07), ("delivery_complete", 0.1), ("inject", 0.05)):
        if row["do"] in ("write", "read", "send", "atomic") and rng.random() < chance:
            row[flag] = True
    return row


def verbs(rng: Random, seed: int) -> Tables:
    """Return a random program over verbs: messages, RDMA and atomics of RC, UC and UD queue pairs."""
    nodes = rng.choice((2, 2, 3, 4))
    network = _network(rng, nodes, seed, False)
    mtu = rng.choice((256, 512, 1024, 1024, 1024, 2048, 4096))
    roce: Tables = {"path_mtu": mtu, "timeout": rng.choice((2, 4, 8))}
    if rng.random() < 0.4:
        roce |= rng.choice((
            {"ack_req_interval": 0}, {"ack_req_interval": 3}, {"max_unacked_psns": 20}, {"credits": False},
            {"ack_coalesce": 3, "ack_delay": 1_000_000}, {"max_rd_atomic": 1}, {"retry_cnt": 1}, {"rnr_retry": 1},
            {"icrc": False}, {"congestion": "dcqcn", "cnp": True}, {"psn_nak": "every"}, {"implied_nak": "every"},
            {"in_rnr_wait": "resend"}, {"duplicate_write": "requested"}, {"min_rnr_timer": 1},
        ))  # fmt: skip
    if rng.random() < 0.15 and network.get("topology") != "pair":
        network["pfc"] = True
        network.pop("queue_capacity", None)
    if "congestion" in roce or rng.random() < 0.15:
        network["red"] = True
    pairs = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        one, two = rng.sample(range(nodes), 2)
        pair: Tables = {"one": one, "two": two, "type": rng.choice(("rc", "rc", "rc", "uc", "ud"))}
        if rng.random() < 0.25:
            pair["srq"] = True
        if rng.random() < 0.2:
            pair["sq_psn"] = rng.choice((0xFFFFF0, 0, 0x7FFFFA))
        pairs.append(pair)
    rows = [
        _verbs_row(rng, 2 * len(pairs)) if rng.random() < 0.65 else _looks(rng)
        for _ in range(rng.choice((3, 5, 8, 12)))
    ]
    return {"verbs": network, "roce": roce, "pair": pairs, "step": rows}


def _verbs_row(rng: Random, ends: int) -> Tables:
    row: Tables = {"end": rng.randrange(ends), "buffer": rng.randrange(BUFFERS), "length": rng.choice(SIZES)}
    kind = rng.random()
    if kind < 0.4:
        row |= {"do": rng.choice(("write", "write", "write imm")), "region": rng.randrange(BUFFERS)}
        row["addr"] = rng.choice((0, 0, 64, 9000))
    elif kind < 0.55:
        row |= {"do": rng.choice(("send", "send", "send imm", "send inv")), "region": rng.randrange(BUFFERS)}
    elif kind < 0.75:
        row |= {"do": "receive"}
        if rng.random() < 0.5:
            row["length"] = ROOM
    elif kind < 0.82:
        row |= {"do": "read", "region": rng.randrange(BUFFERS), "addr": 0}
    elif kind < 0.88:
        row |= {"do": rng.choice(("add", "swap")), "region": rng.randrange(BUFFERS), "addr": 8 * rng.randrange(4)}
    elif kind < 0.93:
        row |= {"do": "scribble", "length": rng.choice((1, 5000, ROOM))}
    else:
        row |= {
            "do": rng.choice(("error", "drain", "destroy", "dereg", "kill", "arm")),
            "region": rng.randrange(BUFFERS),
        }
    if rng.random() < 0.15:
        row["unsignaled"] = True
    if rng.random() < 0.05:
        row["fence"] = True
    if rng.random() < 0.2 and row["do"] in ("write", "send", "receive", "write imm"):
        row["pieces"] = rng.choice((2, 3))
    return row


def distributed(rng: Random, seed: int) -> Tables:
    """Return a random program of ranks, each of which does the same calls."""
    ranks = rng.choice((2, 3, 4))
    transport = rng.choice(("uet", "roce"))
    world: Tables = {
        "ranks": ranks, "transport": transport, "seed": seed & 0xFFFF, "rate": rng.choice((400, 100, 37)) * 10**9,
        "eager_threshold": rng.choice((0, 0, 2000)),
    }  # fmt: skip
    if rng.random() < 0.3:
        world["topology"] = "leaf-spine"
    if rng.random() < 0.2:
        world["loss"] = 0.01
    if transport == "uet" and rng.random() < 0.2:
        world["cc"] = "nscc"
    calls = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce", "barrier", "ring")
    rows = [
        {"do": rng.choice(calls), "count": rng.choice((1, 2400, 12_000, 25_000)), "root": rng.randrange(ranks),
         "async": rng.random() < 0.3, "sleep": rng.choice((0, 0, 1, 5))}
        for _ in range(rng.choice((1, 2, 3)))
    ]  # fmt: skip
    return {"distributed": world, "step": rows}
