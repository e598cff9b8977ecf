# SPDX-License-Identifier: GPL-2.0-only
"""This package has the tracker of single packets, and the rules that judge a packet alone."""
