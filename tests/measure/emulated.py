"""A mark for tests that need emulated hosts. They are skipped, with the reason, without them."""

import pytest

from fastplan.measure.hosts import why_unavailable

REASON = why_unavailable()
needs_hosts = pytest.mark.skipif(REASON is not None, reason=REASON or "")
