"""For all tests."""

import signal

# A shell starts background jobs with Ctrl-C ignored, which they pass on; what the tests start and
# interrupt must hear it, however the tests were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
