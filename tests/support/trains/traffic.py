# SPDX-License-Identifier: GPL-2.0-only
"""Random runs of `uetproto generate` for the comparison of trains with single packets."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from zlib import crc32

from uetproto.engine.roce.hca import Hca
from uetproto.errors import LocalError
from uetproto.toml.values import time
from uetproto.traffic import generate as traffic
from uetproto.traffic.profile import load
from uetproto.wire.mutate.mutation import ALL

Tables = dict[str, Any]
Seen = dict[str, Any]

_SIZES = (
    "64 KiB", "64 KiB", "4 KiB .. 64 KiB", "1 .. 4096", "100000 .. 300000", "5000", "1 MiB",
    "0 .. 64, 30 KiB .. 40 KiB",
)  # fmt: skip
_MODES = ("rud", "rud", "rod", "rod,rud")
_UET = (
    ("write", _MODES), ("write", _MODES), ("write,read", (*_MODES, "rod,rud,rudi")), ("send", _MODES),
    ("tagged_send", _MODES), ("write,send,tagged_send,atomic,no_op", (*_MODES, "rud,rudi")),
    ("rendezvous_send,deferrable_tsend,write", ("rud", "rod,rud")),
    ("write,fetching_atomic,datagram_send", ("rod,uud", "rud,uud")),
)  # fmt: skip
_ROCE = ("write", "write", "send", "write,read", "write_imm,send,send_imm,send_inv", "write,send,read,fetch_add")
_PDS = {
    "default_mpr": (1, 2), "mp_range": (128, 256), "ack_gen_trigger": (0, 1024, 5000, 32768),
    "ack_gen_min_pkt_add": (0, 2048), "ack_cc": ("always", "never"), "enb_ack_per_pkt": ("true",),
    "ar_on_eom": ("false",), "rod_gap": ("reorder",), "rod_recovery": ("selective",), "clear_source": ("cack",),
    "window_base": ("cack",), "clear_at": ("message",), "clear_cmd": ("immediate",), "entropy_values": (1, 4, 16),
    "max_gtd_del": (2, 4), "max_packet_buffers": (2, 8), "idle_time": ("3 us", "50 us"), "inferred_loss": ("sack",),
    "pds_clear_time": ("1 us", "20 us"), "max_pdcs": (2, 4), "rto_init_time": ("6 us", "12 us", "50 us"),
}  # fmt: skip
_SES = {
    "optimized_headers": ("true",), "max_msg_size": (20_000,), "max_reads": (1, 3), "hd_in": ("som",),
    "write_latency": ("1 us",), "max_rx_messages": (1, 2), "unexpected_messages": (0, 1), "inject_size": (0,),
}  # fmt: skip
_RC = {
    "timeout": (1, 2, 4), "retry_cnt": (1, 3), "ack_req_interval": (1, 4), "credits": ("false",),
    "max_unacked_psns": (4, 20), "ack_coalesce": (3, 16), "congestion": ("dcqcn",), "max_rd_atomic": (1,),
}  # fmt: skip


def draw_traffic(seed: int) -> Tables:
    """Return the run of a seed: the profile and the options, its keys, and the shares of mutations."""
    rng = Random(seed)
    roce = rng.random() < 0.3
    shipped = rng.random() < 0.2
    run: Tables = {"profile": "roce-bench" if roce else "bench", "packets": rng.choice((70, 300, 700, 1500))}
    if shipped:
        run["profile"] = rng.choice(("roce-mixed", "roce-rc") if roce else ("mixed", "sends", "lossy", "sealed"))
    run["seed"] = rng.choice((seed, seed, 2**64 - 1 - seed))
    if rng.random() < 0.1:
        run["duration"] = rng.choice(("3 us", "20 us", "150 us"))
    run["suffix"] = rng.choice(("pcap", "pcapng", "pcapng", "pcap.gz"))
    keys: Tables = {}

    def maybe(chance: float, section: str = "", **choices: Any) -> None:
        for key, values in choices.items():
            if rng.random() < chance:
                keys[section + key] = rng.choice(values)

    if not shipped:
        keys["sizes"] = rng.choice(_SIZES)
        if roce:
            keys["operations"] = rng.choice(_ROCE)
            maybe(0.3, transport=("rc,uc", "rc,uc,ud" if "send" in keys["operations"] else "rc"))
        else:
            keys["operations"], modes = rng.choice(_UET)
            keys["modes"] = rng.choice(modes)
    if run["profile"] != "sealed":
        maybe(0.15, ip=(6,))
    maybe(
        0.25, endpoints=(3, 4, 6), pdcs=(2, 3), depth=(1, 2, 8, 40), operations_per_pdc=(1, 3, 20),
        rate=("100 Gb/s", "7 Gb/s", "333 Mb/s", "800 Gb/s"), delay=("1 ps", "77 ns", "9 us"), tap=("target", "wire"),
        crc=("off",),
    )  # fmt: skip
    maybe(0.15, loss=(0.002, 0.02), reorder=(0.002, 0.02), protocol_errors=(0.1,), unexpected=(0.3,))
    odd = rng.choice((0, 0, 0.04, 0.12))  # many keys at once would leave no train
    if roce:
        maybe(odd * 2, "roce.", path_mtu=(256, 2048, 4096), **_RC)
        if "ud" in keys.get("transport", ""):
            maybe(0.5, multicast=(0.3,))
    else:
        maybe(0.15, trim=(0.002, 0.02), encapsulation=("native",), jobs=(3,))
        maybe(0.3, "ses.", payload_mtu=(1024, 2048, 4096))
        maybe(odd, "pds.", **_PDS)
        maybe(odd, "ses.", **_SES)
    tables: Tables = {"traffic": run, "keys": keys}
    if rng.random() < 0.2:
        tables["mutate"] = {name: rng.choice((0.01, 0.1)) for name in rng.sample(sorted(ALL), 3)}
    return tables


def command_of(tables: Tables) -> str:
    """Return the command line of a run."""
    run, keys, shares = tables["traffic"], tables.get("keys", {}), tables.get("mutate", {})
    words = [f"uetproto generate {run['profile']} -o traffic.{run.get('suffix', 'pcap')} --packets {run['packets']}"]
    words += [f"--{name} '{run[name]}'" for name in ("seed", "duration") if name in run]
    words += [f"--set '{key}={value}'" for key, value in keys.items()]
    return " ".join([*words, *(f"--mutate {name}={share}" for name, share in shares.items())])


def play_traffic(tables: Tables, trains: str, folder: Path) -> Seen:
    """Play a run and return all that can be seen of it. A run that is refused has nothing but the error."""
    run, shares = tables["traffic"], tables.get("mutate", {})
    file = folder / f"traffic.{run.get('suffix', 'pcap')}"
    worlds: list[traffic.TrafficRun] = []

    class Watched(traffic.TrafficRun):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            worlds.append(self)

    try:
        profile = load(run["profile"], [f"{key}={value}" for key, value in tables.get("keys", {}).items()] + [
            f"seed={run.get('seed', 0)}"])  # fmt: skip
        with patch.object(traffic, "TrafficRun", Watched):
            result = traffic.generate(
                profile, str(file), packets=run["packets"], mutations=shares, coverage=True, trains=trains,
                duration=time(1).check(run["duration"]) if "duration" in run else None,
            ).as_dict()  # fmt: skip
    except LocalError as error:
        result = {"error": str(error)}
    seen: Seen = {path.name: path.read_bytes() for path in sorted(folder.glob("traffic.*"))}
    if "error" in result and not worlds:
        return result
    for path in folder.glob("traffic.*"):
        path.unlink()
    return {"capture": seen.pop(file.name, b""), **seen, "result": result, **dict(_state(worlds[0]))}


def _state(world: traffic.TrafficRun) -> Iterator[tuple[str, Any]]:
    """Yield the counters and numbers that clock, ports, engines and memories have at the end."""
    yield "clock", (world.clock.now, len(world.clock))
    for number, station in enumerate(world.workload.stations):
        port, engine = station.port, station.port._engine
        yield f"port {number}", (port._busy_until, port._coming, port._timer, engine.deadline(), engine.quiescent)
        if isinstance(engine, Hca):
            yield f"adapter {number}", (dict(engine.counters), dict(engine.retransmitted))
            for name, qp in engine.qps.items():
                sides = (qp.requester, ("una", "next", "cursor", "timer")), (qp.responder, ("epsn", "msn", "done"))
                told = [getattr(side, part, None) for side, parts in sides for part in parts]
                yield f"queue pair {name} of {number}", (qp.state, len(qp.receives.items), told)
            memories = station.memory, station.scratch.memory
        else:
            pds = engine.pds
            yield f"endpoint {number}", (repr(pds.counters), pds.nack_tx, pds.nack_rx, len(engine.target.messages))
            for name, pdc in pds.pdcs.items():
                yield f"PDC {name} of {number}", (
                    pdc.state, pdc.tx.una, pdc.tx.next, pdc.tx.peer_cack, pdc.rx.cack, pdc.rx.max_clear,
                    pdc.rx.max_rcvd, pdc.rx.sack_track, pdc.ack_gen_count, pdc.touched, pdc.wake_at, pdc.clear_at,
                    pdc.stored_at, [(record.psn, record.rto_at, record.retx_at) for record in pdc.tx.records.values()],
                )  # fmt: skip
            memories = station._shared[0].memory, station.scratch
        yield f"memory of {number}", [crc32(memory._view) for memory in memories]
