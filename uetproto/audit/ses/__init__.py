# SPDX-License-Identifier: GPL-2.0-only
"""This package has the tracker of semantic (SES) messages, and the rules that judge its events."""
