"""Find a Java that Spark can run on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass

JAVA_MINIMUM = 17
"""Oldest Java of Spark 4; Spark 3.5 runs on it as well."""


class JavaMissingError(LastgoodError):
    """There is no Java, or only one too old for Spark."""

    condition = "JAVA_MISSING"
    exit_code = 6
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    home: Path
    version: int
    """Feature version: 17, 21, …"""

    @property
    def program(self) -> Path:
        """The `java` executable."""
        return self.home / "bin" / "java"


def find_java(env: Mapping[str, str], *, minimum: int = JAVA_MINIMUM) -> Java:
    """Find the Java that a Spark started with `env` would use, and see that it is new enough.

    `JAVA_HOME` counts first, as in Spark's own launcher, then `java` on `PATH`.

    Raises:
        JavaMissingError: there is none, it does not start, or it is older than `minimum`.
    """
    home = env.get("JAVA_HOME")
    if home:
        program: Path | None = Path(home) / "bin" / "java"
        where = f"JAVA_HOME={home}"
    else:
        on_path = shutil.which("java", path=env.get("PATH", ""))
        program = None
        if on_path:
            program = Path(on_path)
        where = "PATH"
    if program is None or not program.is_file():
        raise _make_missing_error(where, "no java", minimum)
    version = _find_version(program)
    if version is None:
        raise _make_missing_error(where, f"{program} does not tell its version", minimum)
    if version < minimum:
        raise _make_missing_error(where, f"Java {version} ({program})", minimum)
    return Java(program.resolve().parent.parent, version)


def _find_version(program: Path) -> int | None:
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if not match:
        return None
    return int(match.group(1))


def _make_missing_error(where: str, found: str, minimum: int) -> JavaMissingError:
    return JavaMissingError(
        f"Spark needs Java {minimum} or newer",
        subject=where,
        found=found,
        expected=f"Java {minimum} or newer",
        next="apt-get install openjdk-17-jre-headless, or set JAVA_HOME",
    )
