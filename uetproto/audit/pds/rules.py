# SPDX-License-Identifier: GPL-2.0-only
"""This module lists all rules about PDCs, and the invariants of PDCs that no capture can show.

`rules_sent.py` judges the requests that an end of a PDC sends, `rules_control.py` judges its control packets, and
`rules_replies.py` judges the answers of the other end.
"""

from uetproto.audit.pds.rules_control import CONTROL
from uetproto.audit.pds.rules_replies import REPLIES
from uetproto.audit.pds.rules_sent import SENT
from uetproto.audit.pds.rules_window import WINDOWS
from uetproto.audit.rule import Rule, not_observable

RULES: tuple[Rule, ...] = SENT + CONTROL + REPLIES + WINDOWS

NOT_OBSERVABLE = not_observable("pds", {
    "Delivery to SES is inside an end.": (1, 2, 4, 5),
    "Delivery to SES is inside an end; CRC and ICV are judged.": (3,),
    "Calls between PDS and SES are inside an end.": (6, 7),
    "Which response reached the SES of the source is inside an end.": (8, 9),
    "The fields of the offsets have 16 signed bits: others cannot be written.": (19,),
    "It compares two runs.": (22, 23, 36, 37),
    "An ACK names a PSN, and what must not be answered has none: such an answer cannot be told apart.": (33,),
    "What an end does not change cannot be seen.": (35,),
    "When an ACK reached the source is not known from outside: the copy may have been on its way.": (38,),
    "Storage is inside an end; CACK_PSN beyond what was cleared is judged (PDS-CACK-UNCLEARED).": (39,),
    "ACK_Gen_Trigger and when SES responds are the destination's.": (41,),
    "Which packets arrived, and when SES responded, only the destination knows.": (53,),
    "Errors to SES and timers are inside an end.": (44,),
    "Requests of SES are inside an end.": (46,),
    "Which packets an end refuses does not show.": (48,),
    "It speaks of what happens at last; a capture ends before.": (49, 50, 51),
    "Whether the network is dead, and what an end has given up, does not show.": (52,),
})  # fmt: skip
"""Invariants of pds.md that no packet can contradict. Invariant 45 (RUDI) and invariant 29 (messages) are judged by the
rules of other modules."""
