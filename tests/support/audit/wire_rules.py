"""Parts that several tests of audit share: rules."""

from tests.support.audit import frames as f

V4 = f.LOWER["ipv4"]
GOOD = f.frame(*V4, f.REQUEST, f.WRITE)
