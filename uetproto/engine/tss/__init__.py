"""Transport security sublayer (TSS): secure domains, keys, sealing and opening."""
