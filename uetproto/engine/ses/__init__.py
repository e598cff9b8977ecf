"""The semantic sublayer (SES) executes messages: addressing, matching, checks, atomics and responses."""
