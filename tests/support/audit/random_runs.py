# SPDX-License-Identifier: GPL-2.0-only
"""This module makes random runs of the emulator: a seed determines network, endpoints and traffic.

Only values that the protocol pages allow are drawn, so that an audit must have no finding.
"""

from collections.abc import Iterator
from random import Random

from tests.support.audit.fabric import FabricRun
from tests.support.audit.network import Faults, Run
from tests.support.audit.random_fabrics import random_fabric
from tests.support.audit.random_values import COMMON, MOST, PDS, ROCE, SES, SIZES, faults, some
from uetproto.engine.contract import Mode
from uetproto.traffic import profile
from uetproto.traffic.profile_roce import CHOICES as ROCE_CHOICES
from uetproto.traffic.profile_uet import CHOICES as UET_CHOICES
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES

_KINDS = {"uet": 0.7, "sealed": 0.1, "roce": 0.2}
FABRICS = {"sharp": 0.12, "collective": 0.08}
"""Share of the seeds that make a run of each of these kinds; the runs of other seeds do not depend on it."""
_SECURITY = (
    ("security.mode=direct", "security.ssi=7"),
    ("security.mode=cluster",),
    ("security.mode=cluster", "security.rekey_mask=0xFF00", "security.rekey_shift=8"),
    ("security.mode=client-server", "security.ssi=7", "endpoints=2"),
)


def random_run(seed: int, kind: str | None = None) -> Run | FabricRun:
    """Return the run of a seed; `kind`: one of `FABRICS`; None: the seed determines it."""
    chance = Random(f"audit/fabric/{seed}")
    (drawn,) = chance.choices([*FABRICS, None], [*FABRICS.values(), 1 - sum(FABRICS.values())])
    kind = kind or drawn
    return _random_run(seed) if kind is None else random_fabric(seed, kind, chance)


def _random_run(seed: int) -> Run:
    chance = Random(f"audit/{seed}")
    (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
    settings = [f"seed={seed}", f"sizes={chance.choice(SIZES)}"]
    if kind == "roce":
        settings += [*_roce_operations(chance), *some(chance, "roce.", ROCE)]
        settings += [text for text in some(chance, "", COMMON, 0.6) if not text.startswith("jobs")]
        groups = chance.choice((0.0, 0.3)) if "ud" in settings[2] else 0.0
        settings.append(f"multicast={groups}")
        name = "roce-mixed"
    else:
        settings += [*_uet_operations(chance), *some(chance, "", COMMON, 0.6), f"crc={chance.random() < 0.9}".lower()]
        settings += [*some(chance, "pds.", PDS), *some(chance, "ses.", SES)]
        settings += ["ses.backoff_least=5 us", f"ses.backoff_most={chance.choice((20, 2000))} us"]
        settings.append(f"encapsulation={chance.choice(('udp', 'udp', 'native'))}")
        name = "mixed"
        if kind == "sealed":
            name = "sealed"
            settings += chance.choice(_SECURITY)
            settings.append(f"security.start={chance.choice(('off', 'expected', 'random'))}")
            settings.append(f"security.rotate_at={chance.choice((20, 100, 500))}")
    harmed = chance.random() < 0.8
    return Run(
        seed=seed,
        profile=profile.load(name, settings),
        before=faults(chance) if harmed else Faults(),
        behind=faults(chance) if harmed else Faults(),
        most=MOST if chance.random() < 0.3 else chance.randrange(10, MOST),
        requests=chance.choice((0.0, 0.0, 0.02, 0.5)),
    )


def _uet_operations(chance: Random) -> Iterator[str]:
    """Yield settings with some operations, and some modes that can carry one of them."""
    codes = chance.sample(sorted(UET_CHOICES.values()), chance.choice((1, 2, 4, len(UET_CHOICES))))
    able = sorted({mode for code in codes for mode in OPCODE_PROFILES[code].modes})
    modes = set(chance.sample(able, chance.randint(1, len(able))))
    codes = [code for code in codes if OPCODE_PROFILES[code].modes & modes]
    names = {code: name for name, code in UET_CHOICES.items()}
    yield "operations=" + ", ".join(names[code] for code in codes)
    yield "modes=" + ", ".join(mode.name.lower() for mode in Mode if mode in modes)


def _roce_operations(chance: Random) -> Iterator[str]:
    transports = chance.choice(("rc", "rc", "uc", "ud", "rc, uc, ud"))
    legal = {
        "rc": list(ROCE_CHOICES), "uc": ["send", "send_imm", "write", "write_imm"], "ud": ["send", "send_imm"],
        "rc, uc, ud": list(ROCE_CHOICES),
    }[transports]  # fmt: skip
    names = chance.sample(legal, chance.randint(1, len(legal)))
    if transports == "rc, uc, ud":
        names = list(dict.fromkeys(("send", *names)))
    yield f"transport={transports}"
    yield "operations=" + ", ".join(names)
