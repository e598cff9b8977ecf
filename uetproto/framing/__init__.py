# SPDX-License-Identifier: GPL-2.0-only
"""Framers stand between the engines and their users: they turn datagrams into frames, and frames into datagrams."""
