"""Where the command begins: nothing that takes time is imported before Ctrl-C means what it is to mean."""

from __future__ import annotations

import sys

from lastgood.cli.interrupts import INTERRUPTED, is_interrupted, watch_for_interrupts


def start() -> None:
    """Run the command line and exit."""
    try:
        watch_for_interrupts()
        from lastgood.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        if is_interrupted():  # before Python 3.12 a class that is just being made turns it into a RuntimeError
            sys.exit(INTERRUPTED)
        raise
