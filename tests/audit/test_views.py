# SPDX-License-Identifier: GPL-2.0-only
"""Random emulator runs give no error and no warning, seen from wherever and however (the views: `views`).

Of SHARP, about which there are only notes, they give no note either.

`python -m tests.support.audit.views SEED` shows what is found of a run, and writes its views as captures.
"""

from collections import Counter
from itertools import product

import pytest

from tests.support.audit.fabric import FabricRun
from tests.support.audit.network import MIDDLE, Faults, Run
from tests.support.audit.random_runs import FABRICS, random_run
from tests.support.audit.random_values import MOST
from tests.support.audit.views import CUTS, MORE_CUTS, WHOLE, capture, findings, is_wrong, told, views
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.sharp.rules import RULES
from uetproto.engine.contract import Mode
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.profile_uet import CHOICES, UetProfile
from uetproto.wire.headers.sharp import Flag, SharpOpcode, Status
from uetproto.wire.stack import decode

RUNS = effort(12, 1_000, 50_000)
SLICES = 8
FEW = range(150)
_YES_NO = (True, False)
_NEVER_SET = (Flag.UNLOCK, Flag.UDH)
"""By the hosts of the emulator."""


@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_found(part: int) -> None:
    for seed in range(part, RUNS, SLICES):
        wrong = [told(seed, view, finding) for view, finding in findings(random_run(seed)) if is_wrong(finding)]
        assert wrong == []


# Whether the runs are what they are said to be ------------------------------------------------------------------------


def test_one_seed_one_run() -> None:
    for kind, numbers in {None: effort(4, 10, 10), **dict.fromkeys(FABRICS, effort(2, 3, 3))}.items():
        for seed in range(numbers):
            first, second = (random_run(seed, kind).emulate() for _ in range(2))
            assert first == second


def test_all_operations_modes_and_faults_are_met() -> None:
    found = [random_run(seed) for seed in FEW]
    runs = [run for run in found if isinstance(run, Run)]
    uet = [run.profile for run in runs if isinstance(run.profile, UetProfile)]
    roce = [run.profile for run in runs if isinstance(run.profile, RoceProfile)]
    assert {mode for profile in uet for mode in profile.modes} == set(Mode)
    assert {code for profile in uet for code in profile.operations.things} == set(CHOICES.values())
    assert {kind.name for profile in roce for kind in profile.transports} == {"RC", "UC", "UD"}
    assert any(profile.security for profile in uet)
    for half in ([run.before for run in runs], [run.behind for run in runs]):
        for name in Faults._fields[:-1]:
            assert any(getattr(faults, name) for faults in half)
    assert any(not run.before and not run.behind for run in runs)
    fabrics = [run for run in found if isinstance(run, FabricRun)]
    assert {(run.transport, run.sharp) for run in fabrics} == {(on, by) for on in ("uet", "roce") for by in _YES_NO}


FORMS = {
    "pds.rod_req.syn", "pds.rud_req", "pds.rudi_req", "pds.rudi_resp", "pds.uud_req", "pds.ack", "pds.ack_cc",
    "pds.ack_ccx", "pds.nack", "pds.cp", "pds.cp.syn", "ses.request_std", "ses.request_small", "ses.request_medium",
    "ses.response_data", "ses.response_data_small", "ses.deferrable_std", "ses.rtr_std", "ses.ext.rendezvous",
    "ses.ext.atomic", "ses.ext.sync", "tss", "bth", "reth", "aeth", "atomic_eth", "deth", "ipv6", "entropy",
}  # fmt: skip


def test_packets_of_all_kinds_are_met() -> None:
    """The runs have packets of every form and trimmed ones, also those that only loss and errors bring about."""
    missing = FORMS | {"trimmed"}
    for seed in (27, 37, 71, 58, 94, 31, 79, *FEW):  # the first ones have them all as the settings are drawn today
        for record in random_run(seed).emulate()[MIDDLE]:
            packet = decode(record.frame)
            missing -= {layer.form for layer in packet.layers}
            missing -= set(packet.notes)
        if not missing:
            break
    assert not missing


OF_SHARP = {
    *(code.name for code in SharpOpcode), *(flag.name for flag in Flag if flag not in _NEVER_SET),
    "MISMATCH", "LOCK_BUSY", "CHILD_DOWN", "TIMEOUT_NO_PROGRESS", "deth", "pds.rud_req", "pds.rod_req", "pds.nack",
}  # fmt: skip
OF_COLLECTIVES = {
    "pds.rud_req", "pds.rod_req", "ses.request_std.som", "ses.send_std.som", "reth", "imm", "deth",
}  # fmt: skip


def test_messages_of_shared_work_are_met() -> None:
    """The runs have every message of ranks, aggregating switches and multicast, with errors and retransmissions."""
    missing = {f"sharp {what}" for what in OF_SHARP} | {f"collective {form}" for form in OF_COLLECTIVES}
    likely = [(seed, "sharp") for seed in (39, 112, 42, 77)] + [(seed, "collective") for seed in (38, 0, 16)]
    for seed, kind in (*likely, *product(FEW[:40], FABRICS)):
        for record in random_run(seed, kind).emulate()[MIDDLE]:
            packet = decode(record.frame, sharp=True)
            missing -= {f"{kind} {layer.form}" for layer in packet.layers}
            if "sharp" in packet:
                message = packet["sharp"]
                missing -= {f"sharp {SharpOpcode(message['opcode']).name}", f"sharp {Status(message['status']).name}"}
                missing -= {f"sharp {flag.name}" for flag in Flag if message["flags"] & flag}
        if not missing:
            break
    assert not missing


def test_all_rules_of_sharp_are_judged() -> None:
    """In views of which nothing is missing; that they have found nothing is said of something."""
    judged: Counter[str] = Counter()
    for seed in FEW[16 : 16 + effort(4, 10, 10)]:  # the first runs have few messages
        run = random_run(seed, "sharp")
        for view in views(run, run.emulate()):
            if view.name.endswith(WHOLE):
                tallies = audit([capture(view.records)], view.options).tallies
                judged.update({name: tally.judged for name, tally in tallies.items()})
    assert min(judged[rule.id] for rule in RULES) > effort(10, 40, 40)


def test_views_differ() -> None:
    """All are cut from one emulation, and no end sees what got lost on the way to it."""
    differ, runs = 0, effort(12, 40, 40)
    for seed in FEW[:runs]:
        run = random_run(seed)
        places = run.emulate()
        names = [view.name.partition(",")[0] for view in views(run, places)]
        assert {"middle", *CUTS} <= set(names)
        assert len(MORE_CUTS.keys() & set(names)) == 1
        assert sum(name.startswith("end ") for name in names) >= 2
        assert 1 <= sum(record.src == place for place, records in places.items() for record in records) <= MOST
        frames = [{record.frame for record in records} for records in places.values()]
        differ += any(one != other for one in frames for other in frames)
    assert differ > runs / 2


def test_what_is_wrong_is_found_in_views() -> None:
    """With a bit of each frame turned there are findings in all of them."""
    runs = (run for seed in FEW if isinstance(run := random_run(seed), Run) and isinstance(run.profile, UetProfile))
    run = next(run for run in runs if run.profile.crc and run.profile.security is None and not run.before.trim)
    for view in views(run, run.emulate()):
        spoilt = [record._replace(frame=spoilt_bit(record.frame)) for record in view.records]
        assert audit([capture(spoilt)], Options(crc="on")).findings


def spoilt_bit(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))
