# SPDX-License-Identifier: GPL-2.0-only
"""This package makes traffic from a profile: endpoints communicate over a direct wire, and a tap captures their
frames."""
