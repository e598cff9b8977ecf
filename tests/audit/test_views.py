"""Random emulator runs give no error and no warning, seen from wherever and however (the views: `views`).

`python -m tests.audit.views SEED` shows what is found of a run, and writes its views as captures.
"""

from collections import Counter

import pytest

from tests.audit.network import MIDDLE, Faults, emulate
from tests.audit.random_runs import MOST, random_run
from tests.audit.views import CUTS, MORE_CUTS, capture, findings, told, views
from tests.properties.test_hostile import deep
from uetproto.audit.auditor import Options, audit
from uetproto.audit.rule import Severity
from uetproto.engine.contract import Mode
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.traffic.profile_uet import CHOICES, UetProfile
from uetproto.wire.stack import decode

RUNS = deep(1_000, 50_000)
SLICES = 40
FEW = range(150)


@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_found(part: int) -> None:
    for seed in range(part, RUNS, SLICES):
        wrong = [
            told(seed, view, finding)
            for view, finding in findings(random_run(seed))
            if finding.severity is not Severity.NOTE
        ]
        assert wrong == []


# Whether the runs are what they are said to be ------------------------------------------------------------------------


def test_one_seed_one_run() -> None:
    for seed in range(20):
        first, second = (emulate(random_run(seed)) for _ in range(2))
        assert first == second


def test_all_operations_modes_and_faults_are_met() -> None:
    runs = [random_run(seed) for seed in FEW]
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


def test_packets_of_all_kinds_are_met() -> None:
    """Among them those that only trouble brings about."""
    met: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for seed in FEW:
        for record in emulate(random_run(seed))[MIDDLE]:
            packet = decode(record.frame)
            met.update(layer.form for layer in packet.layers)
            notes.update(packet.notes)
    for form in (
        "pds.rod_req.syn", "pds.rud_req", "pds.rudi_req", "pds.rudi_resp", "pds.uud_req", "pds.ack", "pds.ack_cc",
        "pds.ack_ccx", "pds.nack", "pds.cp", "pds.cp.syn", "ses.request_std", "ses.request_small", "ses.request_medium",
        "ses.response_data", "ses.response_data_small", "ses.deferrable_std", "ses.rtr_std", "ses.ext.rendezvous",
        "ses.ext.atomic", "ses.ext.sync", "tss", "bth", "reth", "aeth", "atomic_eth", "deth", "ipv6", "entropy",
    ):  # fmt: skip
        assert met[form], form
    assert notes["trimmed"]


def test_views_differ() -> None:
    """All are cut from one emulation, and no end sees what got lost on the way to it."""
    differ = 0
    for seed in FEW[:40]:
        run = random_run(seed)
        places = emulate(run)
        names = [view.name.partition(",")[0] for view in views(run, places)]
        assert {"middle", *CUTS} <= set(names)
        assert len(MORE_CUTS.keys() & set(names)) == 1
        assert sum(name.startswith("end ") for name in names) >= 2
        assert 1 <= sum(record.src == place for place, records in places.items() for record in records) <= MOST
        frames = [{record.frame for record in records} for records in places.values()]
        differ += any(one != other for one in frames for other in frames)
    assert differ > 20


def test_what_is_wrong_is_found_in_views() -> None:
    """With a bit of each frame turned there are findings in all of them."""
    runs = (random_run(seed) for seed in FEW)
    run = next(run for run in runs if run.profile.crc and run.profile.security is None and not run.before.trim)
    for view in views(run, emulate(run)):
        spoilt = [record._replace(frame=spoilt_bit(record.frame)) for record in view.records]
        assert audit([capture(spoilt)], Options(crc="on")).findings


def spoilt_bit(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))
