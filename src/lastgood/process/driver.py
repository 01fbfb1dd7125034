"""The right Python and Java for a command that starts a Spark driver.

Wrong ones are found before the start, as one clear error, instead of after it, in a Java stack trace.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.process.child import CommandNotFoundError
from lastgood.process.java import JAVA_MINIMUM, Java, find_java

_JAVA_MINIMUM_SPARK_3 = 8
_SUBMITTERS = ("spark-submit", "pyspark", "spark-sql")
_PROBE = """
import sys
sys.path[:] = [each for each in sys.path if each not in ("", ".")]  # no module of the folder that we are called in
import json
from importlib.metadata import PackageNotFoundError, version
def of(name):
    try: return version(name)
    except PackageNotFoundError: return None
print(json.dumps({"python": list(sys.version_info[:2]), "pyspark": of("pyspark") or of("pyspark-connect")}))
"""


class PythonUnusableError(LastgoodError):
    """The Python that would run the driver or its workers is not there, or is another version."""

    condition = "PYTHON_UNUSABLE"
    exit_code = 8
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and the pyspark that it has."""

    program: Path
    version: tuple[int, int]
    pyspark: str | None

    @property
    def java_minimum(self) -> int:
        """Oldest Java that its pyspark runs on."""
        if self.pyspark and self.pyspark.startswith("3."):
            return _JAVA_MINIMUM_SPARK_3
        return JAVA_MINIMUM

    def __str__(self) -> str:
        """Versions, as a person says them."""
        python = f"Python {'.'.join(map(str, self.version))}"
        if not self.pyspark:
            return python
        return f"{python}, pyspark {self.pyspark}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command made ready to start."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    python: Interpreter | None
    """None where the command is not known to start a Spark driver: it is started as it stands."""
    java: Java | None


def prepare_launch(command: Sequence[str], env: Mapping[str, str]) -> Launch:
    """Settle which Python and Java `command` will use, and make its environment say so.

    `python …` and `spark-submit …` are understood; anything else is started as it stands. A name that
    `PATH` does not have, or a `python` without pyspark, is sought beside lastgood itself.

    Raises:
        CommandNotFoundError: `command` is no program.
        PythonUnusableError: `PYSPARK_PYTHON` names no Python, or one of another version than the driver's.
        JavaMissingError: no Java for the pyspark that was found.
    """
    name = Path(command[0]).name
    if name in _SUBMITTERS:
        return _prepare_submit(command, env)
    if name.removesuffix(".exe").rstrip("0123456789.") == "python":
        return _prepare_python(command, env)
    _find(command[0], env)
    return Launch(tuple(command), dict(env), None, None)


def _prepare_python(command: Sequence[str], env: Mapping[str, str]) -> Launch:
    given = _look_up(command[0], env)
    driver = None
    if given:
        driver = _probe(given)
    if (driver is None or driver.pyspark is None) and "/" not in command[0]:
        own = _probe(Path(sys.executable))
        if own is not None and own.pyspark is not None:
            driver = own
    if driver is None:
        if given is None:
            raise _make_not_found_error(command[0], env)
        raise PythonUnusableError(
            "the command is no working Python",
            subject=str(given),
            found="it does not run a Python program",
            expected="a Python interpreter",
        )
    ready = (str(driver.program), *command[1:])
    if driver.pyspark is None or "SPARK_REMOTE" in env:
        return Launch(ready, dict(env), None, None)
    java = find_java(env, minimum=driver.java_minimum)
    return Launch(ready, _make_environment(env, driver, java), driver, java)


def _prepare_submit(command: Sequence[str], env: Mapping[str, str]) -> Launch:
    submit = _find(command[0], env)
    named = env.get("PYSPARK_DRIVER_PYTHON") or env.get("PYSPARK_PYTHON")
    if named:
        python = _find_named_python(named, env)
    else:
        python = submit.parent / "python3"
    driver = _probe(python)
    if driver is None and named:
        raise _make_unusable_error(named, "it does not run a Python program")
    if driver is None:  # a Spark distribution has no Python of its own: Spark takes python3 from PATH
        on_path = shutil.which("python3", path=env.get("PATH", ""))
        driver = None
        if on_path:
            driver = _probe(Path(on_path))
    minimum = _JAVA_MINIMUM_SPARK_3
    if driver and driver.pyspark:
        minimum = driver.java_minimum
    java = find_java(env, minimum=minimum)
    ready = (str(submit), *command[1:])
    if driver is None:
        return Launch(ready, {**env, "JAVA_HOME": str(java.home)}, None, java)
    return Launch(ready, _make_environment(env, driver, java), driver, java)


def _make_environment(env: Mapping[str, str], driver: Interpreter, java: Java) -> dict[str, str]:
    """The environment in which driver and local workers use `driver`, and the JVM is `java`."""
    ready = {**env, "JAVA_HOME": str(java.home)}
    named = env.get("PYSPARK_PYTHON")
    if named:
        worker = _probe(_find_named_python(named, env))
        if worker is None:
            raise _make_unusable_error(named, "it does not run a Python program")
        if worker.version != driver.version:
            raise _make_unusable_error(
                named,
                str(worker),
                f"{driver}, as the driver ({driver.program})",
            )
        return ready
    # Workers take `python3` from PATH. An absolute PYSPARK_PYTHON would be sent to the executors of a
    # cluster, where that path need not exist; PATH stays on this machine.
    folder = driver.program.parent
    neighbour = _probe(folder / "python3")
    if neighbour is not None and neighbour.version == driver.version:
        ready["PATH"] = f"{folder}:{env.get('PATH', '')}"
    else:
        ready["PYSPARK_PYTHON"] = str(driver.program)
    return ready


def _probe(program: Path) -> Interpreter | None:
    try:
        shown = subprocess.run(
            [program, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        told = json.loads(shown.stdout)
        return Interpreter(program, (told["python"][0], told["python"][1]), told["pyspark"])
    except (OSError, ValueError, TypeError, KeyError, subprocess.TimeoutExpired):
        return None


def _find(name: str, env: Mapping[str, str]) -> Path:
    """A program on PATH, else beside the Python that runs lastgood."""
    found = _look_up(name, env)
    if found is None and "/" not in name:
        found = _look_up(str(Path(sys.executable).parent / name), env)
    if found is None:
        raise _make_not_found_error(name, env)
    return found


def _look_up(name: str, env: Mapping[str, str]) -> Path | None:
    found = shutil.which(name, path=env.get("PATH", ""))
    if not found:
        return None
    return Path(found)


def _find_named_python(name: str, env: Mapping[str, str]) -> Path:
    found = _look_up(name, env)
    if found is None:
        raise _make_unusable_error(name, "no such program")
    return found


def _make_not_found_error(name: str, env: Mapping[str, str]) -> CommandNotFoundError:
    found = "not executable" if "/" in name and Path(name).exists() else "no such program"
    return CommandNotFoundError(
        "the command cannot be started",
        subject=name,
        found=found,
        expected="a path to a program" if "/" in name else f"a program on PATH ({env.get('PATH', '')})",
    )


def _make_unusable_error(
    name: str, found: str, expected: str = "a Python with the driver's version"
) -> PythonUnusableError:
    return PythonUnusableError(
        "the Python for Spark's workers cannot be used",
        subject=f"PYSPARK_PYTHON={name}",
        found=found,
        expected=expected,
        next="unset PYSPARK_PYTHON",
    )
