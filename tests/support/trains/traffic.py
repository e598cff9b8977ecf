# SPDX-License-Identifier: GPL-2.0-only
"""Random runs of `uetproto generate` for the comparison of trains with single packets."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Self
from unittest.mock import patch
from zlib import crc32

from tests.support.trains.programs import Tables
from tests.support.trains.watch import Seen, Watch, state_of_node
from uetproto.engine.roce.hca import Hca
from uetproto.errors import LocalError
from uetproto.toml.values import time
from uetproto.traffic import generate as traffic
from uetproto.traffic.profile import load
from uetproto.traffic.wire import DirectWire, TrafficPort
from uetproto.wire.mutate.mutation import ALL

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


def draw_traffic(rng: Random, seed: int) -> Tables:
    """Return a run: the profile and the options, its keys, and the shares of mutations."""
    roce = rng.random() < 0.3
    shipped = rng.random() < 0.2
    run: Tables = {"profile": "roce-bench" if roce else "bench", "packets": rng.choice((70, 300, 300, 700))}
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
            if rng.random() < 0.2:
                run["profile"] = "sealed"
    if run["profile"] == "sealed":
        maybe(
            0.4, "security.", rotate_at=(20, 100, "15 us"), rotate_guard=("0 ps", "1 us", "300 us"),
            epoch_at=(10, 200, "5 us"), mode=("cluster", "client-server", "direct"),
            rx_max_epoch_lifetime=(0,),
        )  # fmt: skip
        maybe(0.1, "security.", invoke_fatal_threshold=(40, 300))
    else:
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


class TrafficWatch(Watch):
    """This context manager notes what happens on the direct wires of `generate`, and the files that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.worlds: list[traffic.TrafficRun] = []
        self.files: dict[str, bytes] = {}
        self._patches = ExitStack()

    def __enter__(self) -> Self:
        make_run, attach = traffic.TrafficRun.__init__, DirectWire.attach

        def run(world: traffic.TrafficRun, *given: Any, **named: Any) -> None:
            make_run(world, *given, **named)
            self.worlds.append(world)

        def watched(
            wire: DirectWire, address: int, *given: Any, on_event: Callable[[Any], None], **named: Any
        ) -> TrafficPort:
            def note(event: Any) -> None:
                self.events.append((wire.clock.now, address, self.told(event)))
                on_event(event)

            return attach(wire, address, *given, on_event=note, **named)

        self._patches.enter_context(patch.object(traffic.TrafficRun, "__init__", run))
        self._patches.enter_context(patch.object(DirectWire, "attach", watched))
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        super().__exit__()

    def seen(self) -> Seen:
        found: Seen = {**self.files, **super().seen()}
        for world in self.worlds:
            found["clock"] = world.clock.now, len(world.clock)
            for number, station in enumerate(world.workload.stations):
                port, engine = station.port, station.port._engine
                found[f"port {number}"] = port._busy_until, port._coming, port._timer
                found |= state_of_node(str(number), engine, port._framer)
                memories = (
                    (station.memory, station.scratch.memory) if isinstance(engine, Hca)
                    else (station._shared[0].memory, station.scratch)
                )  # fmt: skip
                found[f"memory of {number}"] = [crc32(memory._view) for memory in memories]
        return found


def play_traffic(tables: Tables, trains: str, file: Path) -> tuple[TrafficWatch, Any]:
    """Play a run, which writes its files beside `file`. Return what was seen, and the result."""
    run, keys = tables["traffic"], tables.get("keys", {})
    file = file.with_name(f"traffic.{run.get('suffix', 'pcap')}")
    profile = load(run["profile"], [f"{key}={value}" for key, value in keys.items()])
    with TrafficWatch() as watch:
        try:
            result = traffic.generate(
                replace(profile, seed=run.get("seed", 0)), str(file), packets=run["packets"],
                mutations=tables.get("mutate"), coverage=True, trains=trains,
                duration=time(1).check(run["duration"]) if "duration" in run else None,
            ).as_dict()  # fmt: skip
            result.pop("trains", None)
        except LocalError as error:
            if not watch.worlds:
                raise
            result = str(error)  # such as that nothing is left to happen
    for path in file.parent.glob("traffic.*"):
        watch.files[path.name] = path.read_bytes()
        path.unlink()
    file.with_name(f"{trains}.pcapng").write_bytes(watch.files.pop(file.name))
    return watch, result
