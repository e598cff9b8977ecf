# SPDX-License-Identifier: GPL-2.0-only
"""The semantic sublayer (SES) executes messages: addressing, matching, checks, atomics and responses."""
