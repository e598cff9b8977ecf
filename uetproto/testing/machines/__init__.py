# SPDX-License-Identifier: GPL-2.0-only
"""This package has rule-based state machines, which drive an implementation through an adapter and judge what it
does."""
