# SPDX-License-Identifier: GPL-2.0-only
"""This package has machines that drive whole networks of our own engines, without an adapter."""
