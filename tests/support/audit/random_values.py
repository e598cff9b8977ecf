# SPDX-License-Identifier: GPL-2.0-only
"""This module has the values from which random runs draw parameters and faults."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.support.audit.network import Faults
from uetproto.engine.contract import MICROSECOND

MOST = 400
"""Number of frames of a run."""
YES_NO = (True, False)

Values = dict[str, tuple[Any, ...]]

COMMON: Values = {
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
SIZES = ("0 .. 64", "1 .. 4096", "1 .. 20000", "0 .. 64, 1 .. 4096, 4 KiB .. 64 KiB", "16", "16 KiB")

PDS: Values = {
    "default_mpr": (1, 2, 8, 255),
    "mp_range": (128, 256, 1024, 32640),
    "ack_on_ecn": YES_NO,
    "enb_ack_per_pkt": YES_NO,
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
    "ar_on_eom": YES_NO,
    "sack_base": ("tracked", "trigger", "cack_plus_1"),
    "clear_cmd": ("timer", "immediate"),
    "close_drain": ("drain", "error"),
    "store_ack_read_data": YES_NO,
    "ack_cc": ("when_gap", "always", "never"),
    "ack_ccx": YES_NO,
    "clear_source": ("explicit", "cack"),
    "window_base": ("clear", "cack"),
    "inferred_loss": ("off", "sack", "probe"),
    "inferred_loss_packets": (1, 5),
    "entropy_values": (1, 256),
    "ack_on_gap_close": YES_NO,
}
SES: Values = {
    "payload_mtu": (1024, 2048, 4096, 8192),
    "optimized_headers": YES_NO,
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
SES_OF_RANKS: Values = {name: SES[name] for name in ("payload_mtu", "optimized_headers", "message_retry_limit")}
"""SES parameters of ranks; the others stay as they are, so that a target can hold messages that its rank has not
received yet."""
ROCE: Values = {
    "path_mtu": (256, 1024, 4096),
    "timeout": (1, 4, 8),
    "retry_cnt": (0, 3, 7),
    "rnr_retry": (0, 3, 7),
    "min_rnr_timer": (1, 12),
    "max_rd_atomic": (1, 4, 16),
    "max_unacked_psns": (1, 8, 2**15),
    "ack_req_interval": (0, 2, 64),
    "credits": YES_NO,
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
    "cnp": YES_NO,
}
_CHANGED = 0.25
"""Share of the parameters that a run changes."""
_SHARES = (0.0, 0.0, 0.01, 0.05, 0.2)
"""Shares of frames to which a fault is applied."""


def faults(chance: Random) -> Faults:
    """Return random faults for one half of the way."""
    held = chance.choice((MICROSECOND // 5, 5 * MICROSECOND, 100 * MICROSECOND))
    shares = {name: chance.choice(_SHARES) for name in Faults._fields[:-1]}
    return Faults(held=held, **shares)


def some(chance: Random, prefix: str, values: Values, share: float = _CHANGED) -> Iterator[str]:
    """Yield settings of a random part of these parameters."""
    for name, legal in values.items():
        if chance.random() < share:
            value = chance.choice(legal)
            yield f"{prefix}{name}={str(value).lower() if isinstance(value, bool) else value}"
