"""What all tests share."""

import signal

# A shell starts background jobs with Ctrl-C ignored, and whoever is started so passes that on: the tests of Ctrl-C
# would then test nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
