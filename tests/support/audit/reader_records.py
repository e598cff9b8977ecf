# SPDX-License-Identifier: GPL-2.0-only
"""This module has frames without a CRC32C, which the audit's reader has to recognize."""

from tests.support.audit import frames as f

WITHOUT = [
    f.frame(*f.LOWER["ipv4"], f.changed(f.REQUEST, psn=psn), f.changed(f.FIRST, message_id=psn), trailer=None)
    for psn in range(7, 47)
]
