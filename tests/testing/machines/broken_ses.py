# SPDX-License-Identifier: GPL-2.0-only
"""This module has implementations of SES with faults."""

from typing import Any

from uetproto import decode, encode
from uetproto.engine.contract import MILLISECOND, Buffer, Receive, SesWork, Write
from uetproto.engine.memory import BufferMemory
from uetproto.testing import Capabilities, FepEngine
from uetproto.testing.machines.ses import READABLE
from uetproto.wire.headers.uet_ses import ReturnCode


class DarkSes(FepEngine):
    """Our endpoint, of which nothing can be observed."""

    capabilities = Capabilities(work=FepEngine.capabilities.work[:8], observable=False)

    def observe(self) -> Any:
        super().observe()


class _Shifted(BufferMemory):
    def write(self, offset: int, data: Buffer) -> None:
        super().write(max(0, offset - 1) if offset >= 1024 else offset, data)


class WrongOffset(FepEngine):
    """A target that stores at one byte less from offset 1024 on."""

    def memory(self, data: bytearray) -> BufferMemory:
        return _Shifted(data)


class _Short(BufferMemory):
    def write(self, offset: int, data: Buffer) -> None:
        super().write(offset, data[:-1] if len(data) > 1 else data)


class LostLastByte(FepEngine):
    """A target that does not store the last byte of a packet."""

    def memory(self, data: bytearray) -> BufferMemory:
        return _Short(data)


class WrongCode(FepEngine):
    """A target that answers an unknown key with BAD_ADDR."""

    def poll(self) -> list[bytes]:
        return [_wrong(frame) for frame in super().poll()]


def _wrong(frame: bytes) -> bytes:
    packet = decode(frame)
    changed = False
    for layer in packet.layers:
        if layer.values.get("return_code") == ReturnCode.BAD_MKEY:
            layer.values["return_code"] = int(ReturnCode.BAD_ADDR)
            changed = True
    return encode(packet, fill=True) if changed else frame


class LateMemory(FepEngine):
    """A target that answers writes with delivery complete before their bytes are in memory."""

    def reset(self, config: Any) -> None:
        self.late: list[tuple[int, BufferMemory, int, bytes]] = []
        super().reset(config)

    def memory(self, data: bytearray) -> BufferMemory:
        adapter = self

        class Late(BufferMemory):
            def write(self, offset: int, data: Buffer) -> None:
                adapter.late.append((adapter.now + MILLISECOND, self, offset, bytes(data)))

        return Late(data) if len(data) > 4096 else BufferMemory(data)

    def advance(self, picoseconds: int) -> None:
        super().advance(picoseconds)
        while self.late and self.late[0][0] <= self.now:
            _, memory, offset, data = self.late.pop(0)
            BufferMemory.write(memory, offset, data)


class WrongTag(FepEngine):
    """A target whose receives take any tag."""

    def start(self, operation: SesWork) -> None:
        if isinstance(operation, Receive) and operation.tag is not None:
            operation.ignore = (1 << 64) - 1
        super().start(operation)


class WritesBeside(FepEngine):
    """An initiator that writes one byte beside the place from offset 64 on."""

    def start(self, operation: SesWork) -> None:
        if isinstance(operation, Write) and 64 <= operation.offset < 4096 and operation.data:
            operation.offset += 1
        super().start(operation)


class CompletesAtOnce(FepEngine):
    """An initiator whose legal writes complete when they are submitted."""

    def reset(self, config: Any) -> None:
        super().reset(config)
        self.writes: set[int] = set()

    def submit(self, work: Any) -> None:
        super().submit(work)
        legal = work.get("key") in {*self.regions} - {READABLE} and work["offset"] < 8192
        legal = legal and not {*self.place} & {*work}
        if work["op"] == "write" and legal:
            self.found.append({"event": "completion", "id": work["id"], "ok": True, "code": 1, "early": True})
            self.writes.add(work["id"])

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        kept = [each for each in seen["events"] if each["id"] not in self.writes or "early" in each]
        return {**seen, "events": kept}


class ShortRead(FepEngine):
    """An initiator that loses the last byte of what it reads."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        for event in seen["events"]:
            if event["event"] == "completion" and len(event.get("data", "")) > 2:
                event["data"] = event["data"][:-2] + "00"
        return seen


class SwapsTags(FepEngine):
    """An initiator that sends with the other tag."""

    def submit(self, work: Any) -> None:
        super().submit({**work, "tag": 1 - work["tag"]} if work["op"] == "tagged_send" else work)


class HidesErrors(FepEngine):
    """An initiator that reports every error as OK."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        for event in seen["events"]:
            if event["event"] == "completion":
                event.update(ok=True, code=1)
        return seen


class CancelsNothing(FepEngine):
    """A target whose cancelled receives go on taking messages."""

    def submit(self, work: Any) -> None:
        if work["op"] == "cancel":
            self.found.append({"event": "cancelled", "id": work["receive"]})
        else:
            super().submit(work)


class HidesCancel(FepEngine):
    """A target that does not tell that a receive was cancelled."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        return {**seen, "events": [each for each in seen["events"] if each["event"] != "cancelled"]}


class ForgetsLength(FepEngine):
    """A target that tells the length of what it stored as that of a truncated message."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        for event in seen["events"]:
            if event["event"] == "received":
                event["length"] = len(event["data"]) // 2
        return seen


class IgnoresRights(FepEngine):
    """A target whose regions peers may read and write, whatever their rights are."""

    def reset(self, config: Any) -> None:
        super().reset({**config, "regions": [{**each, "access": "rw"} for each in config["regions"]]})


class ShowsHidden(FepEngine):
    """A target whose regions all jobs reach."""

    def reset(self, config: Any) -> None:
        super().reset({**config, "regions": [{**each, "only_job": None} for each in config["regions"]]})


class TakesFromAll(FepEngine):
    """A target whose receives take messages of any initiator."""

    def start(self, operation: SesWork) -> None:
        if isinstance(operation, Receive):
            operation.source = None
        super().start(operation)


class ForgetsAtClose(FepEngine):
    """An initiator that forgets its operations when it closes its PDCs."""

    def reset(self, config: Any) -> None:
        super().reset(config)
        self.under_way: set[int] = set()
        self.forgotten: set[int] = set()

    def submit(self, work: Any) -> None:
        super().submit(work)
        if work["op"] == "close":
            self.forgotten |= self.under_way
        elif work["op"] in ("write", "read", "atomic", "send", "tagged_send"):
            self.under_way.add(work["id"])

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        ended = {each["id"] for each in seen["events"] if each["event"] == "completion"}
        self.under_way -= ended
        return {**seen, "events": [each for each in seen["events"] if each["id"] not in ended & self.forgotten]}


class _Zeros(BufferMemory):
    def read(self, offset: int, length: int) -> Buffer:
        return bytes(length)


class ReadsZeros(FepEngine):
    """A target whose reads return zeros."""

    def memory(self, data: bytearray) -> BufferMemory:
        return _Zeros(data)
