# SPDX-License-Identifier: GPL-2.0-only
"""This module has the descriptions that Wireshark shows of fields whose table has none."""

import re

from uetproto.wire.fields import Field, Header
from uetproto.wire.filter_names import BY_FORM

_BY_NAME = {
    "ack_cc_state": "congestion control state of a type that is not published",
    "ack_ccx_state": "extended congestion control state",
    "cc_flags": "flags of the congestion control state",
    "ccx_type": "type of the extended congestion control state",
    "count": "packets of the sync group",
    "flags": "flags, see its bits",
    "group": "sync group",
    "initiator_restart_token": "token with which the initiator knows the message again",
    "nack_ccx_state1": "extended congestion control state, first part",
    "nack_ccx_state2": "extended congestion control state, second part",
    "nccx_type": "type of the extended congestion control state",
    "pid_on_fep": "process on the fabric endpoint",
    "read_memory_key": "memory key for the READ of the rest",
    "resource_index": "resource index for the READ of the rest",
    "ri_generation": "generation of the resource index",
    "target_restart_token": "token with which the target knows the message again",
    "type": "type that tells this header from others at its place",
    "version": "version of SES, 0",
    # SHARP
    "child_idx": "index of the child in its parent",
    "coll": "collective operation",
    "code": "why the node refuses",
    "counter": "counts up with each heartbeat",
    "dtype": "datatype of the elements",
    "features": "features that the sender has",
    "granted_osts": "operations that may be open at a time",
    "group_id": "group of members",
    "group_size": "members of the group",
    "is_root": "the node is the root of the tree",
    "job_id": "job to which the group belongs",
    "mlid": "multicast LID of the result",
    "op": "reduction, or what to do",
    "opcode": "kind of message",
    "qkey": "Q_Key of the multicast result",
    "qpn": "queue pair number",
    "sat_tree_id": "tree that is locked",
    "sender": "who sends the heartbeat",
    "seq": "number of the operation in its group",
    "status": "result of the request",
    "timeout_ms": "time after which the lock falls, in ms",
    "tree_id": "aggregation tree",
    "user_data_per_ost": "bytes of data that one operation may have",
    "ver": "version of the protocol, 1",
    "want_osts": "operations that the sender would have open at a time",
}  # fmt: skip


def description(header: Header, field: Field) -> str:
    """Return the description of a field: that of its table, of its name over forms, or one made from its name."""
    if field.doc:
        return field.doc
    if field.name.startswith("rsvd"):
        return "reserved, sent as 0"
    for row in BY_FORM.get(header.name, ()):
        if field.name in row.fields:
            return row.doc[0].lower() + row.doc[1:] if row.doc[1].islower() else row.doc
    if field.name in _BY_NAME:
        return _BY_NAME[field.name]
    words = " ".join(re.findall(r"[a-z]+|\d+", field.name))
    return f"{words} of {header.title}"
