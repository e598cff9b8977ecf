# SPDX-License-Identifier: GPL-2.0-only
"""This package connects the machines to implementations: the interface of an adapter, and the adapters that are
shipped."""
