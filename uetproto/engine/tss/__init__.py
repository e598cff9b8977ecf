"""The transport security sublayer (TSS) seals and opens the packets of secure domains: encrypted, authenticated."""
