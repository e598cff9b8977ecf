"""The transport security sublayer (TSS) seals the packets of secure domains, by AES-GCM, and opens sealed packets."""
