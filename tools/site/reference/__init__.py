# SPDX-License-Identifier: GPL-2.0-only
"""This package makes what the reference of the site has and the clone has not: pictures, and pages from the code."""
