"""Where the command begins: nothing that takes time is imported before Ctrl-C means what it is to mean."""

from __future__ import annotations

import gc
import sys

from lastgood.cli.interrupts import INTERRUPTED, is_interrupted, watch_for_interrupts


def start() -> None:
    """Run the command line and exit."""
    try:
        watch_for_interrupts()
        gc.disable()  # an eighth of a start would go into looking through what is imported and stays; see `_Verbs`
        from lastgood.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        if is_interrupted():  # before Python 3.12 a class that is just being made turns it into a RuntimeError
            sys.exit(INTERRUPTED)
        raise
    finally:
        gc.disable()  # nor through what ends with the process: whatever is written was closed by who wrote it
