"""Other Pythons of this machine, for what has to run on all of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def find_python(version: str) -> Path | None:
    """A Python of this version, such as `3.9`, if there is one.

    It is looked for on PATH, and beside the Python that runs now, where version managers keep them. What stands on PATH
    may be a manager's stand-in for one that is not chosen: so it is tried.
    """
    on_path = shutil.which(f"python{version}")
    beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python{version}"))
    candidates = [*([Path(on_path)] if on_path else []), *beside]
    return next((each for each in candidates if _runs(each, version)), None)


def _runs(python: Path, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    shown = subprocess.run([python, "-E", "-c", code], capture_output=True, text=True, check=False)
    return shown.returncode == 0 and shown.stdout.strip() == version
