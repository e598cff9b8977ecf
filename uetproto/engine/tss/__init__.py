"""The transport security sublayer (TSS) seals and opens packets: secure domains and keys."""
