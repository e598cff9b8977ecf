# SPDX-License-Identifier: GPL-2.0-only
"""This package has the trackers of packet delivery contexts (PDCs), of RUDI and of UUD, and the rules that judge the
events of these trackers."""
