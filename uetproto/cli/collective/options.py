# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the options of `uetproto collective`, and refuses illegal ones with the legal values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from uetproto.api.distributed import ReduceOp
from uetproto.api.distributed.choice import choose
from uetproto.api.distributed.networks.transports import TRANSPORTS
from uetproto.cli.collective.offload import SHARP, multicast_settings, sharp_settings
from uetproto.cli.collective.run import AUTO, MOST_RANKS, MULTICAST
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, OPTIONS, maker_of, scheduled
from uetproto.collectives.algorithms.schedule import REDUCING
from uetproto.collectives.reduce_ops import OPS
from uetproto.collectives.topology.kinds import PARAMETERS
from uetproto.emulator.congestion import OFF
from uetproto.emulator.network.config import TRAINS
from uetproto.emulator.network.layouts import LAYOUTS
from uetproto.engine.cc.config import PATHS
from uetproto.engine.cc.registry import ALGORITHMS as CC
from uetproto.engine.cc.registry import check_algorithm
from uetproto.errors import LocalError, argument, similar
from uetproto.toml.values import RATE, size, time
from uetproto.wire.headers.roce import PMTUS
from uetproto.wire.headers.uet_ses import PAYLOAD_MTUS

_BYTES, _TIME = size(0, 1 << 40), time()
DEFAULT_RATE, DEFAULT_DELAY = "400 Gb/s", "1 us"
DEFAULT_BYTES = "1 MiB"
_DIGITS = 6
"""Largest number of digits of a number in the text of a topology."""
CROSS_NIC = {"0": "never leave the rail", "1": "allow", "2": "prefer the same NIC"}
"""Maps the values of `--cross-nic` to the policies of NCCL that they stand for (collectives.md §4.2)."""


def rank_numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isascii() and number.isdecimal() and len(number) < 7 and int(number) for number in numbers):
        raise LocalError(
            argument("ranks", text), f"legal are whole numbers, 1 … {MOST_RANKS}, with commas between them",
            id="wrong-format"
        )  # fmt: skip
    return list(dict.fromkeys(map(int, numbers)))


def length(op: str, text: str | None) -> int:
    if op == "barrier":
        if text not in (None, "0"):
            raise LocalError(argument("bytes", text), "a barrier moves none", "0", id="not-with-operation")
        return 0
    text = DEFAULT_BYTES if text is None else text
    try:
        number: int = _BYTES.check(int(text) if text.isascii() and text.isdecimal() else text)
    except ValueError:
        raise LocalError(argument("bytes", text), f"legal is {_BYTES.legal}", id="wrong-format") from None
    return number


def reduce_op(op: str, name: str | None) -> ReduceOp:
    if name is None:
        return ReduceOp.SUM
    if op not in REDUCING:
        raise LocalError(
            argument("reduce_op", name), f"{op} reduces nothing; legal with {', '.join(sorted(REDUCING))}",
            id="not-with-operation"
        )  # fmt: skip
    if name.upper() not in OPS:
        raise LocalError(
            argument("reduce_op", name), f"no such operation{similar(name, OPS)}", ", ".join(OPS),
            id="unknown-operation"
        )  # fmt: skip
    found: ReduceOp = getattr(ReduceOp, name.upper())
    return found


def topology(text: str) -> tuple[str, dict[str, int]]:
    """Return kind and parameters of a topology, such as `leaf-spine:hosts_per_leaf=4`."""
    kind, _, rest = text.partition(":")
    if kind not in PARAMETERS:
        raise LocalError(
            argument("topology", kind), f"no such topology{similar(kind, PARAMETERS)}", ", ".join(PARAMETERS),
            id="unknown-topology"
        )  # fmt: skip
    shape = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in PARAMETERS[kind] or not (value.isascii() and value.isdecimal()):
            keys = ", ".join(f"{key}=N" for key in PARAMETERS[kind]) or "none"
            hint = similar(key, PARAMETERS[kind])
            raise LocalError(
                argument("topology", text), f"{part!r} is no parameter of {kind}{hint}", keys, id="unknown-argument"
            )
        if len(value) > _DIGITS:
            raise LocalError(
                argument("topology", text), f"{part!r}", f"a number of at most {_DIGITS} digits", id="wrong-format"
            )
        shape[key] = int(value)
    return kind, shape


def operations(text: str) -> list[str]:
    """Return the operations of a comma-separated list."""
    found = list(dict.fromkeys(text.split(",")))
    for op in found:
        if op not in ALGORITHMS:
            raise LocalError("op", f"{op!r}{similar(op, ALGORITHMS)}", ", ".join(ALGORITHMS), id="unknown-operation")
    return found


def algorithms(
    ops: Sequence[str], algorithm: str | None, compare: str | None, *, hosts: bool
) -> dict[str, list[str | None]]:
    """Return the names of the algorithms to run for each operation. None stands for the default algorithm, which
    depends on the number of bytes.

    An operation runs only those of the named algorithms that exist for it. "all" stands for all algorithms with a
    schedule, without the hierarchical ones if each host has one rank.
    """
    named = [] if algorithm is None else [algorithm]
    named += compare.split(",") if compare is not None and compare != "all" else []
    for name in named:
        if not any(name in _names(op) for op in ops):
            known = dict.fromkeys(name for op in ops for name in _names(op))
            raise LocalError(
                "algorithm", f"{name!r} of {', '.join(ops)}{similar(name, known)}", ", ".join(known),
                id="unknown-algorithm"
            )  # fmt: skip
    found: dict[str, list[str | None]] = {}
    for op in ops:
        every = [name for name in scheduled(op) if hosts or name not in HIERARCHICAL]
        names = [name for name in dict.fromkeys([*named, *(every if compare == "all" else ())]) if name in _names(op)]
        if named and not names:
            raise LocalError(
                "algorithm", f"{', '.join(named)}: {op} has none of them", ", ".join(_names(op)), id="unknown-algorithm"
            )
        found[op] = [*names] or [None]
    return found


def _names(op: str) -> list[str]:
    return [*ALGORITHMS[op], *([AUTO] if op == "all_reduce" else [])]


def check_schedule(op: str, algorithm: str | None) -> None:
    """Raise `LocalError` if an algorithm has no schedule."""
    if algorithm == AUTO:
        raise LocalError(
            argument("algorithm", AUTO), f"{argument('only_schedule', True)} runs nothing", "ring, double_tree",
            id="conflicting-arguments"
        )  # fmt: skip
    if algorithm is not None:
        maker_of(op, algorithm)


_PLACE = re.compile(r"[a-z]+[0-9]+(\.[a-z]+[0-9]+)*")
"""Name of a switch, or of a cable between two; the network knows which there are."""


def taps(output: str | None, tap: str | None, transport: str, runs: int, ranks: int, as_json: bool) -> list[str] | None:
    """Return the names of the ranks, aggregation nodes, cables and switches whose packets are captured, or None if
    nothing is captured."""
    if output is None:
        if tap is not None:
            raise LocalError(argument("tap", tap), f"needs {argument('output', 'FILE')}", id="no-effect")
        return None
    if transport not in TRANSPORTS:
        raise LocalError(
            argument("output", output),
            f"the model has no packets; legal with {argument('transport', ', '.join(TRANSPORTS))}",
            id="model-without-packets",
        )
    if runs > 1:
        raise LocalError(
            argument("output", output), f"a capture holds one collective, here are {runs}", id="single-run"
        )
    if output == "-" and as_json:
        raise LocalError("-o - and --json both want standard output", id="stdout-taken")
    if tap in (None, "all"):
        return ["rank0"] if tap is None else [f"rank{rank}" for rank in range(ranks)]
    found = []
    for one in tap.split(","):
        if one.startswith("an.") or _PLACE.fullmatch(one):
            found.append(one)
        elif one.isascii() and one.isdecimal() and len(one) < 7 and int(one) < ranks:
            found.append(f"rank{int(one)}")
        else:
            legal = (
                f"ranks, 0 … {ranks - 1}, with commas between them, all, cables such as leaf0.spine1, switches such as"
                " leaf0, and with SHARP an.SWITCH"
            )
            raise LocalError(argument("tap", tap), f"legal are {legal}", id="unknown-place")
    return list(dict.fromkeys(found))


def own_options(op: str, names: Sequence[str | None], length: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the options in `given` that have a value. Raises `LocalError` for an option that none of the
    algorithms to run has."""
    named = {name: value for name, value in given.items() if value is not None}
    chosen = [choose(op, length, even=True) if name is None else name for name in names]
    for name, value in named.items():
        if op != "all_reduce" or not any(algorithm in OPTIONS[name] for algorithm in chosen):
            legal = ", ".join(OPTIONS[name])
            raise LocalError(
                f"{argument(name, value)}: {op} by {', '.join(chosen)} has none; legal with all_reduce by {legal}",
                id="not-with-operation",
            )
    return named


def in_network(names: Sequence[str | None], sharp: Sequence[str], multicast: Sequence[str]) -> dict[str, Any]:
    """Return the settings of `--sharp` and `--multicast`. Raises `LocalError` if none of the algorithms to run uses
    them."""
    if sharp and not SHARP.union({AUTO}).intersection(names):
        raise LocalError(
            argument("sharp", sharp[0]), f"goes with {argument('algorithm', ', '.join(sorted({*SHARP, AUTO})))}",
            id="no-effect"
        )  # fmt: skip
    if multicast and MULTICAST not in names:
        raise LocalError(
            argument("multicast", multicast[0]), f"goes with {argument('algorithm', MULTICAST)}", id="no-effect"
        )
    return {"sharp": sharp_settings(sharp), "multicast": multicast_settings(multicast)}


def ports(number: int, transport: str) -> int:
    """Return the number of ports of each NIC. Raises `LocalError` if there is more than one port and the transport has
    no packets. Such a transport has no NICs."""
    if number > 1 and transport not in TRANSPORTS:
        raise LocalError(
            argument("ports", number),
            f"{transport} has no NICs; legal with {argument('transport', ', '.join(TRANSPORTS))}",
            id="model-without-packets",
        )
    return number


def cross_nic(policy: str | None, transport: str, gpus_per_node: int) -> int | None:
    """Return the number of a cross-NIC policy, or None if no policy is given. Raises `LocalError` if the transport has
    no packets, or if each host has one NIC."""
    if policy is None:
        return None
    if transport not in TRANSPORTS:
        raise LocalError(
            argument("cross_nic", policy),
            f"{transport} has no NICs; legal with {argument('transport', ', '.join(TRANSPORTS))}",
            id="model-without-packets",
        )
    if policy not in CROSS_NIC:
        raise LocalError(
            argument("cross_nic", policy), f"legal are {', '.join(f'{n} {what}' for n, what in CROSS_NIC.items())}",
            id="out-of-range"
        )  # fmt: skip
    if gpus_per_node < 2:
        raise LocalError(
            argument("cross_nic", policy), "a host has one NIC",
            f"{argument('topology', 'rails')} or T:gpus_per_node=N", id="not-with-topology"
        )  # fmt: skip
    return int(policy)


ROCE_CC = ("pfc", "dcqcn", "dcqcn+pfc")
"""Values of `--cc` over RoCE: pauses of the switches, rates of the senders by marks, or both."""


def transports(text: str) -> list[str]:
    """Return the transports of a comma-separated list."""
    found, known = list(dict.fromkeys(text.split(","))), ("model", *TRANSPORTS)
    for name in found:
        if name not in known:
            raise LocalError(
                argument("transport", text), f"no such transport: {name}{similar(name, known)}", ", ".join(known),
                id="unknown-transport"
            )  # fmt: skip
    if len(found) > 1 and "model" in found:
        raise LocalError(
            argument("transport", text), "the model has no packets", "model alone", id="model-without-packets"
        )
    return found


def congestion(
    cc: str | None, lb: str | None, transports: Sequence[str], kind: str, algorithms: Sequence[str | None]
) -> list[dict[str, str]]:
    """Return the variants to run: `transport`, `cc` and `lb` of a case. Each name in the list `cc` goes with those of
    the transports that have it. Without `cc` UET has NSCC in a network of several switches, unless the network carries
    the collective out."""
    inside = [name for name in algorithms if name in SHARP or name == MULTICAST]
    if cc is None:
        if lb is not None and (kind not in LAYOUTS or "uet" not in transports):
            raise LocalError(argument("lb", lb), "without congestion control", f"with {argument('cc')}", id="no-effect")
        on = kind in LAYOUTS and not inside and AUTO not in algorithms
        chosen = {name: ["nscc" if on and name == "uet" else OFF] for name in transports}
    else:
        chosen = {name: _controls(cc, name) for name in transports}
        for one in cc.split(","):
            if not any(one in found for found in chosen.values()):
                _refuse_control(cc, one, transports)
    controlled = [one for found in chosen.values() for one in found if one != OFF]
    if inside and controlled:
        raise LocalError(
            argument("cc", cc), f"{inside[0]} has senders that do not wait", f"another {argument('algorithm')}",
            id="not-with-operation"
        )  # fmt: skip
    if lb is not None and lb not in PATHS:
        raise LocalError(
            argument("lb", lb), f"no such path selection{similar(lb, PATHS)}", ", ".join(PATHS), id="unknown-name"
        )
    if lb is not None and not any(one != OFF for one in chosen.get("uet", ())):
        raise LocalError(argument("lb", lb), "without congestion control", f"with {argument('cc')}", id="no-effect")
    return [
        {"transport": name, "cc": one, "lb": lb or "mixed"} for name, found in chosen.items() for one in found
    ]  # fmt: skip


def _controls(cc: str, transport: str) -> list[str]:
    """Return those names of a list that a transport has."""
    return [one for one in dict.fromkeys(cc.split(",")) if one == OFF or _has(transport, one)]


def _has(transport: str, cc: str) -> bool:
    if transport != "uet":
        return transport == "roce" and cc in ROCE_CC
    try:
        check_algorithm(cc)
    except LocalError:
        return False
    return True


def _refuse_control(text: str, name: str, transports: Sequence[str]) -> None:
    for other in TRANSPORTS:
        if _has(other, name):
            raise LocalError(
                argument("cc", text), f"{name} not over {', '.join(transports)}",
                f"with {argument('transport', other)}", id="not-with-transport"
            )  # fmt: skip
    legal = {"uet": f"{', '.join(CC)}, joined by +", "roce": ", ".join(ROCE_CC)}
    known = "; ".join(f"over {one} {legal[one]}" for one in transports if one in legal)
    raise LocalError(
        argument("cc", text), f"no such algorithm: {name}", f"{OFF}{known and '; '}{known}", id="unknown-algorithm"
    )


def fabric_values(
    rate: str, delay: str, mtu: int | None, loss: float, trains: str, transports: Sequence[str]
) -> dict[str, Any]:
    """Return rate, delay, payload MTU, loss and trains of a case."""
    if "model" in transports:
        given = (
            ("mtu", mtu, None),
            ("loss", loss, 0),
            ("rate", rate, DEFAULT_RATE),
            ("delay", delay, DEFAULT_DELAY),
            ("trains", trains, TRAINS[0]),
        )
        for name, value, default in given:
            if value != default:
                raise LocalError(
                    argument(name, value), "the model has no packets", argument("transport", ", ".join(TRANSPORTS)),
                    id="model-without-packets"
                )  # fmt: skip
    found = {}
    for name, text, kind in (("rate", rate, RATE), ("delay", delay, _TIME)):
        try:
            found[name] = kind.check(int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text)
        except ValueError:
            raise LocalError(argument(name, text), f"legal is {kind.legal}", id="wrong-format") from None
    legal = [one for one in PAYLOAD_MTUS if "roce" not in transports or one in PMTUS]
    if mtu is not None and mtu not in legal:
        raise LocalError(argument("mtu", mtu), "is not legal", f"{', '.join(map(str, legal))}", id="out-of-range")
    return found | {"mtu": mtu, "loss": loss, "trains": trains}
