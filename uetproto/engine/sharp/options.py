# SPDX-License-Identifier: GPL-2.0-only
"""This module has the options of SHARP with published names (sharp.md §5): SHARP_COLL_*, HCOLL_*, NCCL_* and those of
sharp_am.

`SharpOptions.of` takes names and text values, as an environment or a configuration file has them. `OPTIONS` says which
values are legal; an unknown name or an illegal value raises a `LocalError` that names the option. The project's own
parameters are fields of `SharpConfig`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.engine.contract import MILLISECOND
from uetproto.errors import LocalError, shown, similar, typed
from uetproto.knobs import KeyType

DYNAMIC = 0
"""Value that stands for "dynamic": the quota or limit is not set by the user."""


def _whole(low: int, high: int) -> KeyType:
    def read(text: str) -> int:
        value = int(text, 0)
        if not low <= value <= high:
            raise ValueError
        return value

    return KeyType(read, f"{low} … {high}")


_SWITCHES = {"0": False, "n": False, "no": False, "off": False, "false": False,
             "1": True,  "y": True,  "yes": True, "on": True,   "true": True}  # fmt: skip


def _switch(text: str) -> bool:
    try:
        return _SWITCHES[text.lower()]
    except KeyError:
        raise ValueError from None


def _dynamic(low: int, high: int) -> KeyType:
    whole = _whole(low, high)
    return KeyType(lambda text: DYNAMIC if text == "dynamic" else whole.check(text), f"dynamic, {whole.legal}")


def _unset_or(kind: KeyType) -> KeyType:
    return KeyType(lambda text: kind.check(text) if text else False, f"empty, {kind.legal}")


SUBGROUPS = ("basesmsocket", "basesmuma", "p2p")
"""Subgroups of HCOLL's hierarchy: ranks of a socket, leaders of a host, and the network (sharp.md §4.3)."""
_BCOLS = ("basesmuma", "ucx_p2p")


def _names(legal: tuple[str, ...], accepts: Callable[[tuple[str, ...]], bool], text: str) -> KeyType:
    def read(given: str) -> tuple[str, ...]:
        found = tuple(given.split(",")) if given else ()
        if not set(found) <= set(legal) or (found and not accepts(found)):
            raise ValueError
        return found

    return KeyType(read, text)


def _is_hierarchy(names: tuple[str, ...]) -> bool:
    return names[-1] == "p2p" and list(names) == [name for name in SUBGROUPS if name in names]


SWITCH = KeyType(_switch, "0, 1 (no, yes; off, on; false, true)")
TEXT = KeyType(str, "any text")
COUNT = _whole(0, 2**32 - 1)
PAYLOAD = KeyType(lambda text: int(text, 0) and _whole(4, 1024).check(text), "0, 4 … 1024")


def _is_on(text: str | None) -> bool:
    return text is not None and _SWITCHES.get(text.lower(), False)


class Option(NamedTuple):
    """An option has a published name, an attribute of `SharpOptions`, a kind, a default value, and a text that says its
    meaning."""

    name: str
    attribute: str
    kind: KeyType
    default: Any
    meaning: str


WITHOUT_EFFECT = "accepted without effect"
"""Text that ends the description of an option whose value is checked, but not used."""
O = Option  # noqa: E741  one letter, as in the tables of `wire`

OPTIONS: tuple[Option, ...] = (
    # libsharp_coll
    O("SHARP_COLL_LOG_LEVEL", "log_level", _whole(0, 5), 2,
      "lines of the log: 0 fatal, 1 errors, 2 warnings, 3 jobs, trees, groups, 4 and 5 collectives, too"),
    O("SHARP_COLL_ENABLE_SAT", "enable_sat", SWITCH, False,
      "groups have a SAT, too"),
    O("SHARP_COLL_SAT_THRESHOLD", "sat_threshold", COUNT, 8096,
      "bytes from which a vector is streamed"),
    O("SHARP_COLL_SAT_LOCK_BATCH_SIZE", "lock_batch", _whole(1, 65535), 65535,
      "operations of a lock; 65535: no limit"),
    O("SHARP_COLL_SAT_LOCK_RETRY_COUNT", "lock_retries", _whole(0, 65535), 1,
      "how often LOCK_BUSY is tried again"),
    O("SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT", "lock_retry_ms", _whole(0, 60_000), 100,
      "milliseconds between these tries"),
    O("SHARP_COLL_GROUPS_PER_COMM", "groups_per_comm", _whole(1, 4), 1,
      "rails: trees that a communicator uses"),
    O("SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST", "user_data", PAYLOAD, 0,
      "user data of an OST; 0: the manager's"),
    O("SHARP_COLL_JOB_QUOTA_OSTS", "quota_osts", COUNT, 0,
      "OSTs of the job; 0: the manager's share"),
    O("SHARP_COLL_JOB_QUOTA_MAX_GROUPS", "quota_groups", COUNT, 0,
      "groups of the job; 0: the manager's share"),
    O("SHARP_COLL_JOB_QUOTA_MAX_QPS_PER_PORT", "quota_qps", COUNT, 0,
      "queue pairs of a port; 0: one"),
    O("SHARP_COLL_OSTS_PER_GROUP", "osts_per_group", _dynamic(2, 2**15), 0,
      "W of an LLT; dynamic: OSTs / groups of the quota, at least 2"),
    O("SHARP_COLL_LOCK_ON_COMM_INIT", "lock_on_comm_init", SWITCH, False,
      "lock when a group is made"),
    O("SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD", "alloc_threshold", COUNT, 0,
      "collectives of a communicator that the hosts do before it gets its groups"),
    O("SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE", "exclusive_lock", _whole(0, 2), 1,
      "0 none, 1 best effort, 2 required"),
    O("SHARP_COLL_ENABLE_MCAST_TARGET", "mcast_target", SWITCH, True,
      "LLT results may come by UD multicast, where they fit the path MTU"),
    O("SHARP_COLL_GROUP_IS_TARGET", "group_is_target", SWITCH, True,
      "LLT results may come over RC; 0: who has no multicast is refused"),
    O("SHARP_COLL_ENABLE_GROUP_TRIM", "group_trim", SWITCH, True,
      "a root with one child hands its part down"),
    O("SHARP_COLL_IB_TIMEOUT", "ib_timeout", _whole(0, 31), 18,
      "queue pairs: code of the time-out"),
    O("SHARP_COLL_IB_RETRY_COUNT", "ib_retry_count", _whole(0, 7), 7,
      "queue pairs: retries"),
    O("SHARP_COLL_IB_RNR_TIMER", "ib_rnr_timer", _whole(0, 31), 12,
      "queue pairs: code of the RNR wait"),
    O("SHARP_COLL_IB_RNR_RETRY", "ib_rnr_retry", _whole(0, 7), 7,
      "queue pairs: RNR retries; 7: no end"),
    # HCOLL
    O("HCOLL_ENABLE_SHARP", "enable_sharp", _whole(0, 4), 0,
      "0 off, 1 probe, 2 force, 3 all communicators, 4 all collectives, too"),
    O("HCOLL_SHARP_NP", "sharp_np", _whole(1, 65535), 4,
      "node leaders from which a communicator gets a group, in the modes 1 and 2; counts where it is set"),
    O("HCOLL_BCOL_P2P_ALLREDUCE_SHARP_MAX", "allreduce_max", _dynamic(0, 2**31), 0,
      "largest allreduce without SAT, but in mode 4; dynamic: OSTs * payload; counts where it is set"),
    O("HCOLL_MAIN_IB", "main_ib", TEXT, "",
      f"device:port; {WITHOUT_EFFECT}"),
    O("HCOLL_SBGP", "sbgp", _names(SUBGROUPS, _is_hierarchy, "some of basesmsocket,basesmuma and then p2p"), (),
      "hierarchy of hcoll_sharp: subgroups; without basesmuma a leader of each socket or rank uses the network"),
    O("HCOLL_BCOL", "bcol", _names(_BCOLS, lambda names: names[-1] == "ucx_p2p", "basesmuma,… and then ucx_p2p"), (),
      f"collectives of the subgroups of HCOLL_SBGP, one each; {WITHOUT_EFFECT}"),
    O("HCOLL_ML_DISABLE_ALLREDUCE", "disable_allreduce", SWITCH, False,
      "allreduce is not HCOLL's: the ranks do it"),
    O("HCOLL_ML_DISABLE_REDUCE", "disable_reduce", SWITCH, False,
      "reduce is not HCOLL's: the ranks do it"),
    O("HCOLL_ML_DISABLE_BARRIER", "disable_barrier", SWITCH, False,
      "barrier is not HCOLL's: the ranks do it"),
    O("HCOLL_ML_DISABLE_BCAST", "disable_bcast", SWITCH, False,
      "bcast is not HCOLL's: the ranks do it"),
    # NCCL
    O("NCCL_COLLNET_ENABLE", "collnet_enable", SWITCH, False,
      "NCCL may use SHARP; set to 1 the presets of its plugin hold, to 0 the ranks do all collectives"),
    O("NCCL_SHARP_DISABLE", "sharp_disable", _unset_or(SWITCH), False,
      "the plugin offers no SHARP: the ranks do all collectives"),
    O("NCCL_SHARP_GROUP_SIZE_THRESH", "group_size_thresh", _whole(0, 65535), 2,
      "members from which a communicator gets a group; counts where it is set"),
    # sharp_am
    O("root_guids_file", "root_guids_file", TEXT, "",
      "file of GUIDs, or names of aggregation nodes, one a line, that alone may be roots of trees"),
    O("ib_port_guid", "ib_port_guid", _whole(0, 2**64 - 1), 0,
      f"port of the manager; 0: automatic; {WITHOUT_EFFECT}"),
    O("dynamic_tree_allocation", "dynamic_trees", SWITCH, True,
      "trees are configured when a job begins"),
    O("dynamic_tree_algorithm", "tree_algorithm", _whole(0, 1), 0,
      f"0 fat tree, 1 quasi-fat-tree or dragonfly+; {WITHOUT_EFFECT}"),
    O("per_prio_default_quota", "llt_percent", _whole(1, 100), 20,
      "percent of an AN that an LLT job gets"),
    O("per_prio_default_sat_quota", "sat_percent", _whole(1, 100), 3,
      "percent of an AN that a SAT job gets"),
    O("sat_jobs_default_absolute_osts", "sat_osts", COUNT, 0,
      "OSTs of a SAT job; 0: by percent"),
)  # fmt: skip

BY_NAME = {option.name: option for option in OPTIONS}

NCCL_PRESETS = {
    "SHARP_COLL_ENABLE_SAT": "1",
    "SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD": "0",
    "SHARP_COLL_LOCK_ON_COMM_INIT": "1",
    "SHARP_COLL_LOG_LEVEL": "3",
}
"""Values that the NCCL plugin gives to options that the user does not set (sharp.md §1.6)."""


@dataclass(frozen=True, slots=True)
class SharpOptions:
    """This class has the values of all options as attributes, whose names are in `OPTIONS`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Maps attributes to the values that were set; all other options have their defaults."""
    given: frozenset[str] = frozenset()
    """Names of the options that the user set; the other options have presets or defaults."""

    @classmethod
    def of(cls, texts: Mapping[str, str], presets: Mapping[str, str] | None = None) -> "SharpOptions":
        """Return the options that `texts` sets. `texts` maps published names of options to values as text. `presets`
        has the same form, and its values replace the defaults. Raises `LocalError` for an unknown name or an illegal
        value."""
        values: dict[str, Any] = {}
        if _is_on(texts.get("NCCL_COLLNET_ENABLE")):
            presets = {**(presets or {}), **NCCL_PRESETS}
        for name, text in {**(presets or {}), **texts}.items():
            option = BY_NAME.get(name)
            if option is None:
                raise LocalError(
                    shown(name), f"no option of SHARP{similar(name, BY_NAME)}", ", ".join(BY_NAME),
                    id="unknown-argument"
                )  # fmt: skip
            typed(name, text, str, f"a text: {option.kind.legal}")
            try:
                values[option.attribute] = option.kind.check(text)
            except ValueError:
                raise LocalError(name, f"{shown(text)} is not legal", option.kind.legal, id="wrong-format") from None
        if (bcol := values.get("bcol")) and len(bcol) != len(sbgp := values.get("sbgp") or SUBGROUPS):
            raise LocalError(
                "HCOLL_BCOL", f"{len(bcol)} names", f"{len(sbgp)}, one for each of {','.join(sbgp)}", id="wrong-count"
            )
        return cls(values, frozenset(texts))

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the names of the options that the user set and that have no effect."""
        return tuple(o.name for o in OPTIONS if o.name in self.given and o.meaning.endswith(WITHOUT_EFFECT))

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in _DEFAULTS:
            raise AttributeError(attribute)
        return self.values.get(attribute, _DEFAULTS[attribute])

    @property
    def fall_back(self) -> bool:
        """Tell whether hosts repeat a collective that failed in SHARP; in the modes 2–4 of HCOLL_ENABLE_SHARP the job
        aborts instead (sharp.md §3.4)."""
        return bool(self.enable_sharp < _FORCE)

    @property
    def lock_retry_time(self) -> int:
        """Return the time between two lock requests in picoseconds."""
        return int(self.lock_retry_ms * MILLISECOND)

    def osts_of(self, quota_osts: int, quota_groups: int) -> int:
        """Return the window W (number of OSTs) that a group requests if its job has these quotas of OSTs and groups."""
        return int(self.osts_per_group) or max(_LEAST_OSTS, quota_osts // max(1, quota_groups))


_DEFAULTS = {option.attribute: option.default for option in OPTIONS}
_LEAST_OSTS = 2
_FORCE, _ALL_COMMUNICATORS, _ALL_COLLECTIVES = 2, 3, 4  # of HCOLL_ENABLE_SHARP


def declined(
    options: SharpOptions, op: str, nbytes: int, members: int, osts: int, payload: int, *, streams: bool = False
) -> str | None:
    """Return the reason why HCOLL or NCCL does not hand a collective of `members` leaders to SHARP, or None if it does
    (sharp.md §5).

    A threshold, which is a size or a number of ranks, counts only if the user has set it. The defaults of the libraries
    do not count, because the program asks for SHARP by name. This is a choice of this project. `streams` says whether
    the vector uses a SAT.
    """
    mode, given = options.enable_sharp, options.given
    if not mode:
        return "HCOLL_ENABLE_SHARP is 0"
    if (why := disabled(options, op)) is not None:
        return why
    if options.sharp_disable:
        return "NCCL_SHARP_DISABLE is 1"
    if "NCCL_COLLNET_ENABLE" in given and not options.collnet_enable:
        return "NCCL_COLLNET_ENABLE is 0"
    if "HCOLL_SHARP_NP" in given and members < options.sharp_np and mode < _ALL_COMMUNICATORS:
        return f"HCOLL_SHARP_NP is {options.sharp_np}, here are {members}"
    if "NCCL_SHARP_GROUP_SIZE_THRESH" in given and members < options.group_size_thresh:
        return f"NCCL_SHARP_GROUP_SIZE_THRESH is {options.group_size_thresh}, here are {members}"
    if _MOST in given and op == "all_reduce" and mode < _ALL_COLLECTIVES and not streams:
        most = options.allreduce_max or osts * payload
        if nbytes > most:
            return f"{_MOST} is {most}, here are {nbytes} bytes"
    return None


def disabled(options: SharpOptions, op: str) -> str | None:
    """Return a text that names the option that disables an operation in HCOLL; None if no option disables it."""
    disables = {
        "all_reduce": options.disable_allreduce, "reduce": options.disable_reduce,
        "barrier": options.disable_barrier, "broadcast": options.disable_bcast,
    }  # fmt: skip
    return f"HCOLL_ML_DISABLE_{_COLLS[op]} is 1" if disables.get(op) else None


_COLLS = {"all_reduce": "ALLREDUCE", "reduce": "REDUCE", "barrier": "BARRIER", "broadcast": "BCAST"}
_MOST = "HCOLL_BCOL_P2P_ALLREDUCE_SHARP_MAX"
