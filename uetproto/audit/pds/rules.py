"""Lists all rules about PDCs, and the invariants of PDCs that no capture can show.

`rules_sent.py` judges the requests of an end, `rules_control.py` control packets, `rules_replies.py` the answers of
the other end.
"""

from uetproto.audit.pds.rules_control import CONTROL
from uetproto.audit.pds.rules_replies import REPLIES
from uetproto.audit.pds.rules_sent import SENT
from uetproto.audit.rule import Rule

RULES: tuple[Rule, ...] = SENT + CONTROL + REPLIES

NOT_OBSERVABLE: tuple[tuple[str, str], ...] = (
    ("pds 1", "Delivery to SES is inside an end."),
    ("pds 2", "Delivery to SES is inside an end."),
    ("pds 3", "Delivery to SES is inside an end; CRC and ICV are judged."),
    ("pds 4", "Delivery to SES is inside an end."),
    ("pds 5", "Delivery to SES is inside an end."),
    ("pds 6", "Calls between PDS and SES are inside an end."),
    ("pds 7", "Calls between PDS and SES are inside an end."),
    ("pds 8", "Which response reached the SES of the source is inside an end."),
    ("pds 9", "Which response reached the SES of the source is inside an end."),
    ("pds 19", "The fields of the offsets have 16 signed bits: others cannot be written."),
    ("pds 22", "It compares two runs."),
    ("pds 23", "It compares two runs."),
    ("pds 33", "An ACK names a PSN, and what must not be answered has none: such an answer cannot be told apart."),
    ("pds 35", "What an end does not change cannot be seen."),
    ("pds 36", "It compares two runs."),
    ("pds 37", "It compares two runs."),
    ("pds 38", "When an ACK reached the source is not known from outside: the copy may have been on its way."),
    ("pds 39", "Storage is inside an end; CACK_PSN beyond what was cleared is judged (PDS-CACK-UNCLEARED)."),
    ("pds 41", "ACK_Gen_Trigger and when SES responds are the destination's."),
    ("pds 44", "Errors to SES and timers are inside an end."),
    ("pds 46", "Requests of SES are inside an end."),
    ("pds 48", "Which packets an end refuses does not show."),
    ("pds 49", "It speaks of what happens at last; a capture ends before."),
    ("pds 50", "It speaks of what happens at last; a capture ends before."),
    ("pds 51", "It speaks of what happens at last; a capture ends before."),
    ("pds 52", "Whether the network is dead, and what an end has given up, does not show."),
)
"""Lists the invariants of pds.md that no packet can contradict. Other rules judge those of RUDI (45) and messages
(29)."""
