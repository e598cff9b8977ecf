# SPDX-License-Identifier: GPL-2.0-only
"""This package has what tests of sealed packets need beside those of UET: sealing with headers of the test's choice."""
