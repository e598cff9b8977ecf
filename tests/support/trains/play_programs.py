# SPDX-License-Identifier: GPL-2.0-only
"""Plays random programs over fi, verbs and distributed with trains or without: what each row returns, the completions
that the program reads, and the memory, all at the instants at which the program looks.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tests.support.trains.programs import BUFFERS, ROOM, Tables
from tests.support.trains.watch import Watch, state_of
from uetproto.api import distributed as dist
from uetproto.api import fi, verbs
from uetproto.api.network import PlaceSpec
from uetproto.errors import UetError

_PATTERN = bytes(range(1, 252))
LIMIT = 1_000_000_000
"""Picoseconds after which a program ends, whatever is still open."""


def _keywords(network: Tables, trains: str, file: Path, spec: type[PlaceSpec]) -> Tables:
    """Return the keywords of the constructor of a network."""
    given = {name: value for name, value in network.items() if name not in ("ports", "pfc", "red")}
    given["taps"] = "all" if given["taps"] == "all" else given["taps"].split(",")
    shape = {name: given.pop(name) for name in ("hosts_per_leaf", "spines") if name in given}
    if shape:
        given["shape"] = shape
    if "vlan" in given:
        given["vlan"] = {"id": given["vlan"]}
    if "faults_from" in given:
        given["faults_from"] = [given["faults_from"]]
    given["nodes"] = {f"n{at}": spec(ports=network.get("ports")) for at in range(network["nodes"])}
    return given | {"trains": trains, "capture": str(file)}


class _Program:
    """This class plays the rows that are the same for fi and verbs."""

    def __init__(self, net: Any, watch: Watch, buffers: list[list[bytearray]]) -> None:
        self.net = net
        self.watch = watch
        self.buffers = buffers
        """Buffers of each end; the second half of them are its regions."""
        self.log: list[Any] = []

    def play(self, rows: list[Tables]) -> list[Any]:
        """Play all rows, let everything happen, look, and return the log."""
        rest = [{"do": "advance", "time": LIMIT}, *({"do": "poll", "end": end, "count": 99, "time": 0}
                for end in range(len(self.buffers))), {"do": "look"}]  # fmt: skip
        for number, row in enumerate([*rows, *rest]):
            call: Callable[[Tables, int], Any] = getattr(self, "do_" + row["do"].replace(" ", "_"))
            try:
                found = self.watch.told(call(row, number))
            except UetError as error:
                found = f"{type(error).__name__}: {error}"
            self.log.append((number, row["do"], self.net.now, found))
        return self.log

    def do_advance(self, row: Tables, number: int) -> None:
        self.net.run(self.net.now + row["time"])

    def do_burst(self, row: Tables, number: int) -> None:
        self.net.world.clock.run(self.net.now + row["time"], row["events"])

    def do_until(self, row: Tables, number: int) -> Any:
        buffer = self.buffers[row["end"] % len(self.buffers)][BUFFERS]
        at, limit = row["at"], self.net.now + 50_000_000
        return self.net.run(lambda: buffer[at] != 0 or self.net.now > limit), self.net.now

    def do_look(self, row: Tables, number: int) -> Any:
        memory = [[crc32(buffer) for buffer in own] for own in self.buffers]
        return [memory, repr(state_of(self.net.world.network)), len(self.watch.events)]

    def do_poll(self, row: Tables, number: int) -> Any:
        queue, count = self.queue(row["end"] % len(self.buffers)), row["count"]
        if row["time"] is None:
            return self.wait(queue, count, 40_000_000)
        return self.wait(queue, count, row["time"]) if row["time"] else self.read(queue, count)

    def do_kill(self, row: Tables, number: int) -> None:
        self.net.world.kill(f"n{row['end'] % len(self.net.world.nodes)}")

    def queue(self, end: int) -> Any:
        raise NotImplementedError

    def read(self, queue: Any, count: int) -> Any:
        raise NotImplementedError

    def wait(self, queue: Any, count: int, time: int) -> Any:
        raise NotImplementedError

    def do_scribble(self, row: Tables, number: int) -> None:
        buffer = self.buffers[row["end"] % len(self.buffers)][row["buffer"]]
        buffer[: row["length"]] = bytes(255 - (number + at & 0x7F) for at in range(row["length"]))


def _buffers(ends: int) -> list[list[bytearray]]:
    """Return the buffers of each end: those of which no byte is 0, to be sent, and those that peers fill."""
    return [
        [*(bytearray((_PATTERN * (ROOM // 251 + 2))[end * BUFFERS + at :][:ROOM]) for at in range(BUFFERS)),
         *(bytearray(ROOM) for _ in range(BUFFERS))] for end in range(ends)
    ]  # fmt: skip


# fi -------------------------------------------------------------------------------------------------------------------

_ORDERS = {"none": fi.Order.NONE, "waw": fi.Order.WAW, "strict": fi.Order.STRICT}


class _FiProgram(_Program):
    def __init__(self, fabric: fi.Fabric, watch: Watch, ends: list[Tables], buffers: list[list[bytearray]]) -> None:
        super().__init__(fabric, watch, buffers)
        self.ends = [
            fabric.endpoint(
                f"n{end['node']}", fi.EpType.RDM if end["type"] == "rdm" else fi.EpType.DGRAM,
                msg_order=_ORDERS[end["order"]],
            ) for end in ends
        ]  # fmt: skip
        self.counters = [end.domain.cntr_open() for end in self.ends]
        self.files = [io.BytesIO() for _ in ends]
        self.regions = []
        for end, made, own, file, counter in zip(ends, self.ends, buffers, self.files, self.counters, strict=True):
            kept: list[Any] = own[BUFFERS:]
            if "file" in end:  # its last region is in a file
                kept[-1] = fi.FileMemory(file, ROOM, window=1 << 14, windows=2)
            regions = [made.domain.mr_reg(one, idempotent_safe=not number) for number, one in enumerate(kept[:-1])]
            regions.append(made.domain.mr_reg(kept[-1], flags=fi.Flag.RMA_EVENT))
            regions[-1].bind(counter, fi.Flag.REMOTE_WRITE)
            regions[-1].enable()
            self.regions.append(regions)

    def queue(self, end: int) -> Any:
        return self.ends[end].cq

    def read(self, queue: Any, count: int) -> Any:
        return queue.readfrom(count)

    def wait(self, queue: Any, count: int, time: int) -> Any:
        return queue.sread(count, time, threshold=count)

    def _flags(self, row: Tables) -> fi.Flag:
        return fi.Flag(sum(fi.Flag[name.upper()] for name in ("fence", "delivery_complete", "inject") if name in row))

    def _local(self, row: Tables, first: int = 0) -> Any:
        view = memoryview(self.buffers[row["end"]][first + row["buffer"]])[: row["length"]]
        pieces = row.get("pieces", 1)
        step = max(row["length"] // pieces, 1)
        return view if pieces == 1 else [view[at : at + step] for at in range(0, step * pieces, step)]

    def do_look(self, row: Tables, number: int) -> Any:
        counters = [(counter.read(), counter.readerr()) for counter in self.counters]
        return [super().do_look(row, number), counters, [crc32(file.getvalue()) for file in self.files]]

    def do_write(self, row: Tables, number: int) -> None:
        peer = row["peer"]
        self.ends[row["end"]].write(
            self._local(row), self.ends[peer].address, row["addr"],
            self.regions[peer][row["region"]].key, data=row.get("data"), flags=self._flags(row), context=number,
        )  # fmt: skip

    def do_read(self, row: Tables, number: int) -> None:
        peer = row["peer"]
        self.ends[row["end"]].read(
            self._local(row), self.ends[peer].address, row["addr"],
            self.regions[peer][row["region"]].key, flags=self._flags(row), context=number,
        )  # fmt: skip

    def do_send(self, row: Tables, number: int) -> None:
        end, to = self.ends[row["end"]], self.ends[row["peer"]].address
        data = self._local(row)
        if "tag" in row:
            end.tsend(data, to, row["tag"], flags=self._flags(row), context=number)
        else:
            end.send(data, to, flags=self._flags(row), context=number)

    def do_receive(self, row: Tables, number: int) -> None:
        end = self.ends[row["end"]]
        into = self._local(row, BUFFERS)
        if "tag" in row:
            end.trecv(into, fi.ADDR_UNSPEC, row["tag"], context=0)
        else:
            end.recv(into, flags=fi.Flag.MULTI_RECV if "multi" in row else fi.Flag.NONE, context=0)

    def do_atomic(self, row: Tables, number: int) -> None:
        peer = row["peer"]
        given: Any = (
            self.ends[peer].address,
            row["addr"],
            self.regions[peer][row["region"]].key,
            fi.Datatype.UINT64,
            fi.Op.SUM,
        )
        own = memoryview(self.buffers[row["end"]][row["buffer"]])
        if row["fetch"]:
            self.ends[row["end"]].fetch_atomic(own[:8], own[8:16], *given, flags=self._flags(row), context=number)
        else:
            self.ends[row["end"]].atomic(own[:8], *given, flags=self._flags(row), context=number)

    def do_cancel(self, row: Tables, number: int) -> bool:
        return self.ends[row["end"]].cancel(0)

    def do_disable(self, row: Tables, number: int) -> None:
        self.ends[row["end"]].disable()

    def do_enable(self, row: Tables, number: int) -> None:
        self.ends[row["end"]].enable()

    def do_close(self, row: Tables, number: int) -> None:
        self.ends[row["end"]].close()

    def do_close_region(self, row: Tables, number: int) -> None:
        self.regions[row["end"]][row["region"]].close()


def play_fi(tables: Tables, trains: str, file: Path) -> tuple[Watch, list[Any]]:
    """Play a program over fi; return what was watched, and the log of the program."""
    network, ends = tables["fi"], tables["end"]
    given = _keywords(network, trains, file, fi.NodeSpec)
    given |= {"pds": fi.PdsConfig(**tables.get("pds", {})), "ses": fi.SesConfig(**tables.get("ses", {}))}
    buffers = _buffers(len(ends))
    with Watch() as watch, fi.Fabric(**given) as fabric:
        log = _FiProgram(fabric, watch, ends, buffers).play(tables["step"])
        fabric.close(drain=False)
    return watch, log


# verbs ----------------------------------------------------------------------------------------------------------------

_KINDS = {
    "write": verbs.Opcode.RDMA_WRITE, "write imm": verbs.Opcode.RDMA_WRITE_WITH_IMM, "send": verbs.Opcode.SEND,
    "send imm": verbs.Opcode.SEND_WITH_IMM, "send inv": verbs.Opcode.SEND_WITH_INV, "read": verbs.Opcode.RDMA_READ,
    "add": verbs.Opcode.ATOMIC_FETCH_AND_ADD, "swap": verbs.Opcode.ATOMIC_CMP_AND_SWP,
}  # fmt: skip


class _VerbsProgram(_Program):
    def __init__(self, net: verbs.Network, watch: Watch, pairs: list[Tables], buffers: list[list[bytearray]]) -> None:
        super().__init__(net, watch, buffers)
        self.qps: list[verbs.QP] = []
        self.mrs: list[list[verbs.MR]] = []
        self.handles: list[verbs.AH | None] = []
        for number, pair in enumerate(pairs):
            both = []
            for side, at in enumerate((pair["one"], pair["two"])):
                pd = net.device(f"n{at}").alloc_pd()
                srq = pd.create_srq(limit=2) if "srq" in pair else None
                qp = pd.create_qp(verbs.QpType[pair["type"].upper()], pd.device.create_cq(), srq=srq)
                self.mrs.append([pd.reg_mr(buffer) for buffer in buffers[2 * number + side]])
                both.append(qp)
            given = {"sq_psn": pair["sq_psn"]} if "sq_psn" in pair else {}
            self.handles += verbs.connect(*both, **given) or (None, None)
            self.qps += both

    def queue(self, end: int) -> Any:
        return self.qps[end].send_cq

    def read(self, queue: Any, count: int) -> Any:
        return queue.poll(count)

    def wait(self, queue: Any, count: int, time: int) -> Any:
        return queue.wait(count, time)

    def _pieces(self, row: Tables, first: int = 0) -> list[Any]:
        mr, parts = self.mrs[row["end"]][first + row["buffer"]], row.get("pieces", 1)
        step = max(row["length"] // parts, 1)
        return [mr[at : at + step] for at in range(0, step * parts, step)]

    def _post(self, row: Tables, number: int) -> None:
        end, qp = row["end"], self.qps[row["end"]]
        peer = end ^ 1
        opcode = _KINDS[row["do"]]
        flags = verbs.SendFlags(0) if "unsignaled" in row else verbs.SendFlags.SIGNALED
        more: Tables = {"wr_id": number, "send_flags": flags | (verbs.SendFlags.FENCE if "fence" in row else 0)}
        if row["do"] == "send inv":
            more["invalidate_rkey"] = self.mrs[peer][BUFFERS + row["region"]].rkey
        elif "region" in row:
            mr = self.mrs[peer][BUFFERS + row["region"]]
            more |= {"remote_addr": mr.addr + row.get("addr", 0), "rkey": mr.rkey}
        if qp.qp_type is verbs.QpType.UD:
            more |= {"ah": self.handles[end], "remote_qpn": self.qps[peer].qp_num, "remote_qkey": verbs.QKEY}
        own: Any = self._pieces(row)
        if row["do"] in ("add", "swap"):
            own = self.mrs[end][row["buffer"]][:8]
            more |= {"compare_add": 7, "swap": 9}
        elif qp.qp_type is verbs.QpType.UD:
            own = self.mrs[end][row["buffer"]][: min(row["length"], 256)]
        qp.post_send(opcode, own, **more)

    do_write = do_write_imm = do_send = do_send_imm = do_send_inv = do_read = do_add = do_swap = _post

    def do_receive(self, row: Tables, number: int) -> None:
        qp = self.qps[row["end"]]
        queue: Any = qp if qp.srq is None else qp.srq
        queue.post_recv(verbs.RecvWr(sg_list=self._pieces(row, BUFFERS), wr_id=number))

    def do_error(self, row: Tables, number: int) -> None:
        self.qps[row["end"]].modify(verbs.QpState.ERR)

    def do_drain(self, row: Tables, number: int) -> None:
        self.qps[row["end"]].modify(verbs.QpState.SQD)

    def do_destroy(self, row: Tables, number: int) -> None:
        self.qps[row["end"]].destroy()

    def do_dereg(self, row: Tables, number: int) -> None:
        self.mrs[row["end"]][BUFFERS + row["region"]].dereg()

    def do_arm(self, row: Tables, number: int) -> bool:
        queue = self.qps[row["end"]].send_cq
        queue.arm()
        return queue.get_event(20_000_000)

    def do_look(self, row: Tables, number: int) -> Any:
        events = [repr(event.event_type) for device in self.net.devices.values() for event in device.events]
        return [super().do_look(row, number), events, [repr(qp) for qp in self.qps]]


def play_verbs(tables: Tables, trains: str, file: Path) -> tuple[Watch, list[Any]]:
    """Play a program over verbs; return what was watched, and the log of the program."""
    network, pairs = tables["verbs"], tables["pair"]
    given = _keywords(network, trains, file, verbs.NodeSpec)
    if "pfc" in network:
        given["pfc"] = verbs.Pfc(xoff=9_000, xon=4_000)
    if "red" in network:
        given["red"] = verbs.Red(kmin=1_500, kmax=20_000, pmax=0.2)
    buffers = _buffers(2 * len(pairs))
    with Watch() as watch, verbs.Network(**given, config=verbs.RoceConfig(**tables.get("roce", {}))) as net:
        log = _VerbsProgram(net, watch, pairs, buffers).play(tables["step"])
        net.close(drain=False)
    return watch, log


# distributed ----------------------------------------------------------------------------------------------------------


def play_distributed(tables: Tables, trains: str, file: Path) -> tuple[Watch, list[Any]]:
    """Play a program of ranks; return what was watched, and what each rank saw."""
    given = dict(tables["distributed"])
    if "loss" in given:
        given["faults"] = {"drop": given.pop("loss")}
    if "cc" in given:
        given |= {"trimming": True}
    ranks = given.pop("ranks")

    def program(rank: int) -> list[Any]:
        seen: list[Any] = []
        dist.init_process_group()
        for number, row in enumerate(tables["step"]):
            dist.sleep(row["sleep"] * rank * 1e-6)
            count, root = row["count"], row["root"] % ranks
            own = np.arange(count * ranks, dtype=np.float32) * (rank + 1) + number
            parts = [own[at * count : (at + 1) * count] for at in range(ranks)]
            into = [np.zeros(count, np.float32) for _ in range(ranks)]
            more = {"async_op": row["async"]}
            done: Any = None
            match row["do"]:
                case "all_reduce":
                    done = dist.all_reduce(own, **more)
                case "broadcast":
                    done = dist.broadcast(own, root, **more)
                case "reduce":
                    done = dist.reduce(own, root, **more)
                case "all_gather":
                    done = dist.all_gather(into, parts[0], **more)
                case "reduce_scatter":
                    done = dist.reduce_scatter(into[0], parts, **more)
                case "all_to_all":
                    done = dist.all_to_all(into, parts, **more)
                case "barrier":
                    dist.barrier()
                case "ring":
                    for work in (dist.isend(parts[0], (rank + 1) % ranks), dist.irecv(into[0], (rank - 1) % ranks)):
                        assert work is not None
                        work.wait()
            looked = None if done is None else (done.is_completed(), dist.now(), done.wait())
            dist.synchronize()
            seen.append((looked, dist.now(), crc32(own), [crc32(one) for one in into]))
        return seen

    with Watch() as watch, dist.World(ranks, trains=trains, capture=str(file), taps=["rank0"], **given) as world:
        log = [world.run(program), world.now, repr(world.counts), [repr(event) for event in world.trace]]
    return watch, log
