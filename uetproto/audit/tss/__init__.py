# SPDX-License-Identifier: GPL-2.0-only
"""This package has the tracker that follows secure domains (TSS) in a capture, and the rules that judge its events."""
