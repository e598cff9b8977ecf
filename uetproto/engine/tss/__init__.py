# SPDX-License-Identifier: GPL-2.0-only
"""The transport security sublayer (TSS) seals the packets of secure domains, by AES-GCM, and opens sealed packets."""
