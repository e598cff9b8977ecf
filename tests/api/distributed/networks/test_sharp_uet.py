# SPDX-License-Identifier: GPL-2.0-only
"""SHARP over UET by ranks: every packet of it (sharp.md §2.1, §6 invariant 26)."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.api.sharp_worlds import run, sharp_of, world
from uetproto import decode
from uetproto.api import distributed as dist
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.sharp import Flag, SharpOpcode
from uetproto.wire.headers.uet_pds import USE_RSV_PDC


def program(rank: int) -> None:
    for count in (10, 4000):
        dist.all_reduce(np.ones(count, np.float32), algorithm="sharp")
    dist.barrier(algorithm="sharp")
    dist.all_reduce(np.ones(1000), algorithm="ring")


def packets(path: Path) -> list[Any]:
    with open_capture(str(path)) as reader:
        return [decode(record.data, sharp=True) for record in reader]


def test_every_message_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.pcapng"
    made = world(4, "uet", capture=str(path), taps="all")
    run(program, made)
    (job,) = sharp_of(made).fabric.manager.jobs
    reserved: set[tuple[Any, int]] = set()
    kinds: Counter[int] = Counter()
    syns: Counter[bool] = Counter()
    for frame in packets(path):
        names = {layer.form for layer in frame.layers}
        request = next((name for name in names if name in ("pds.rud_req.syn", "pds.rod_req.syn")), None)
        is_sharp = "sharp" in names
        if request is not None:
            word = frame[request]["pdc_info"] << 12
            assert bool(word & USE_RSV_PDC) == is_sharp
            syns[is_sharp] += 1
            if is_sharp:
                reserved.add((frame["ipv4"]["src"], frame[request]["spdcid"]))
        if not is_sharp:
            continue
        sharp, ses = frame["sharp"], frame["ses.send_std.som"]
        kinds[sharp["opcode"]] += 1
        streams = sharp["opcode"] not in (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT) or sharp["flags"] & Flag.SAT
        pds = next(name for name in names if name.startswith(("pds.rud_req", "pds.rod_req")))
        assert pds.startswith("pds.rod_req" if streams else "pds.rud_req")
        assert (frame["ipv4"]["src"], frame[pds]["spdcid"]) in reserved
        assert ses["job_id"] == sharp["job_id"] == job
        length = 32 + 4 * sharp["ext_words"] + -(-sharp["payload_len"] // 4) * 4
        assert ses["request_length"] == length == frame["udp"]["length"] - 8 - 12 - 44 - 4  # UDP, PDS, SES, CRC
        assert not sharp["flags"] & Flag.MCAST
    assert kinds[SharpOpcode.AGG_REQ] == kinds[SharpOpcode.AGG_RESULT] > 0
    assert min(syns[True], syns[False]) > 0
