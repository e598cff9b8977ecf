"""Random emulator runs: of one number all settings of a network, its endpoints and their traffic.

Only what the pages allow is drawn, not the habits of another implementation: an audit has nothing to say of these runs.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.audit.network import Faults, Run
from uetproto.engine.contract import MICROSECOND, Mode
from uetproto.engine.ses_opcodes import OPERATIONS
from uetproto.traffic import profile
from uetproto.traffic.profile_roce import CHOICES as ROCE_CHOICES
from uetproto.traffic.profile_uet import CHOICES as UET_CHOICES

MOST = 400
"""Frames of a run."""
_KINDS = {"uet": 0.7, "sealed": 0.1, "roce": 0.2}
_YES_NO = (True, False)

Values = dict[str, tuple[Any, ...]]

_COMMON: Values = {
    "jobs": (1, 1, 3),
    "endpoints": (2, 2, 2, 4),
    "pdcs": (1, 1, 2),
    "operations_per_pdc": (0, 0, 1, 3, 10),
    "depth": (1, 4, 8, 16),
    "ip": (4, 4, 6),
    "protocol_errors": (0.0, 0.0, 0.05, 0.3),
    "unexpected": (0.0, 0.0, 0.1, 0.5),
    "rate": ("400 Gb/s", "400 Gb/s", "10 Gb/s"),
    "delay": ("1 us", "200 ns", "30 us"),
}
_SIZES = ("0 .. 64", "1 .. 4096", "1 .. 20000", "0 .. 64, 1 .. 4096, 4 KiB .. 64 KiB", "16", "16 KiB")

_PDS: Values = {
    "default_mpr": (1, 2, 8, 255),
    "mp_range": (128, 256, 1024, 32640),
    "ack_on_ecn": _YES_NO,
    "enb_ack_per_pkt": _YES_NO,
    "ack_gen_trigger": (0, 2048, 16384),
    "ack_gen_min_pkt_add": (0, 1, 2048),
    "max_ack_data_size": (0, 16, 1024, 8192),
    "trimmable_ack_size": (0, 16, 10240),
    "rto_init_time": ("100 us", "1 ms", "3 ms"),
    "nack_retx_time": ("10 us", "1 ms", "5 ms"),
    "max_rto_retx_cnt": (1, 5, 15),
    "pds_clear_time": ("10 us", "1 ms", "20 ms"),
    "new_pdc_time": ("1 ms", "5 ms"),
    "idle_time": ("1 ms", "60 s"),
    "close_req_time": ("1 ms", "1 s"),
    "close_thresh": (0, 4),
    "max_bitmaps": (1, 65535),
    "max_packet_buffers": (1, 4, 1 << 20),
    "max_gtd_del": (1, 3, 65535),
    "dup_without_retx": ("drop", "answer"),
    "rod_gap": ("discard", "reorder"),
    "ar_on_eom": _YES_NO,
    "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "clear_cmd": ("timer", "immediate"),
    "close_drain": ("drain", "error"),
    "store_ack_read_data": _YES_NO,
    "ack_cc": ("when_gap", "always", "never"),
    "ack_ccx": _YES_NO,
    "clear_source": ("explicit", "cack"),
    "window_base": ("clear", "cack"),
    "inferred_loss": ("off", "sack", "probe"),
    "inferred_loss_packets": (1, 5),
    "entropy_values": (1, 256),
}
_SES: Values = {
    "payload_mtu": (1024, 2048, 4096, 8192),
    "optimized_headers": _YES_NO,
    "unexpected_policy": ("hold", "refuse"),
    "unexpected_messages": (0, 1, 64),
    "unexpected_bytes": (0, 4096, 1 << 20),
    "truncation_policy": ("truncate", "refuse"),
    "message_retry_limit": (1, 10),
    "max_pending_deferrals": (0, 1, 8),
    "max_rx_messages": (1, 65536),
    "eager_length": (-1, 0, 100, 10_000),
    "large_send": ("plain", "auto", "rendezvous", "deferrable"),
    "rendezvous_threshold": (0, 8192),
    "deferrable_threshold": (0, 8192),
    "write_latency": ("0 s", "5 us"),
}
_ROCE: Values = {
    "path_mtu": (256, 1024, 4096),
    "timeout": (1, 4, 8),
    "retry_cnt": (0, 3, 7),
    "rnr_retry": (0, 3, 7),
    "min_rnr_timer": (1, 12),
    "max_rd_atomic": (1, 4, 16),
    "max_unacked_psns": (1, 8, 2**15),
    "ack_req_interval": (0, 2, 64),
    "credits": _YES_NO,
    "m": (0, 1),
    "implied_nak": ("once", "every"),
    "in_rnr_wait": ("ignore", "resend"),
    "ack_coalesce": (1, 3, 16),
    "ack_delay": ("0 s", "3 us"),
    "psn_nak": ("once", "every"),
    "check_order": ("key_first", "alignment_first"),
    "duplicate_write": ("always", "requested"),
    "ecn": ("ect0", "ect1", "not_ect"),
    "icrc": (True, True, True, False),
    "congestion": ("off", "dcqcn"),
    "cnp": _YES_NO,
}
_CHANGED = 0.25
"""Share of the parameters that a run changes."""
_SECURITY = (
    ("security.mode=direct", "security.ssi=7"),
    ("security.mode=cluster",),
    ("security.mode=cluster", "security.rekey_mask=0xFF00", "security.rekey_shift=8"),
    ("security.mode=client-server", "security.ssi=7", "endpoints=2"),
)
_SHARES = (0.0, 0.0, 0.01, 0.05, 0.2)


def random_run(seed: int) -> Run:
    """The run of this number."""
    chance = Random(f"audit/{seed}")
    (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
    settings = [f"seed={seed}", f"sizes={chance.choice(_SIZES)}"]
    if kind == "roce":
        settings += [*_roce_operations(chance), *_some(chance, "roce.", _ROCE)]
        settings += [text for text in _some(chance, "", _COMMON, 0.6) if not text.startswith("jobs")]
        groups = chance.choice((0.0, 0.3)) if "ud" in settings[2] else 0.0
        settings.append(f"multicast={groups}")
        name = "roce-mixed"
    else:
        settings += [*_uet_operations(chance), *_some(chance, "", _COMMON, 0.6), f"crc={chance.random() < 0.9}".lower()]
        settings += [*_some(chance, "pds.", _PDS), *_some(chance, "ses.", _SES)]
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
        before=_faults(chance) if harmed else Faults(),
        behind=_faults(chance) if harmed else Faults(),
        most=MOST if chance.random() < 0.3 else chance.randrange(10, MOST),
        requests=chance.choice((0.0, 0.0, 0.02, 0.5)),
    )


def _faults(chance: Random) -> Faults:
    held = chance.choice((MICROSECOND // 5, 5 * MICROSECOND, 100 * MICROSECOND))
    return Faults(*(chance.choice(_SHARES) for _ in Faults._fields[:-1]), held=held)


def _some(chance: Random, prefix: str, values: Values, share: float = _CHANGED) -> Iterator[str]:
    for name, legal in values.items():
        if chance.random() < share:
            value = chance.choice(legal)
            yield f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}"


def _uet_operations(chance: Random) -> Iterator[str]:
    """Some operations, and of the modes some that carry one of them."""
    codes = chance.sample(sorted(UET_CHOICES.values()), chance.choice((1, 2, 4, len(UET_CHOICES))))
    able = sorted({mode for code in codes for mode in OPERATIONS[code].modes})
    modes = set(chance.sample(able, chance.randint(1, len(able))))
    codes = [code for code in codes if OPERATIONS[code].modes & modes]
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
