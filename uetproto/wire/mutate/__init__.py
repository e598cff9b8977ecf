# SPDX-License-Identifier: GPL-2.0-only
"""This package makes mutations: named damage to bytes, headers or frames, for fuzzing and for tests of the audit."""
