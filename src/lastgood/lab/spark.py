"""Real Spark of several versions, and scripts run on it; pyspark is found and started here, never imported."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO

from lastgood.errors import ExtraMissingError, LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.lab.cache import explain_cache_errors, hold_exclusively, locate_cache
from lastgood.lab.ports import LOOPBACK
from lastgood.process.child import Child
from lastgood.process.java import Java

SPARK_VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0")
"""The releases that `provide_spark` can make."""

_JAR_SETS = {"4.2.0": "spark"}
SPARKS_WITH_JARS = tuple(_JAR_SETS)
"""The releases of which the JVM parts are known that add Kafka and Delta."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""The setting with what the driver's JVM is told."""

QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""What the JVM is told that has little to do: to compile once, and not over again what is used much.

With this compiler alone it would keep 48 MB of code: Spark's is more, so that it is compiled over again.
"""

SMALL_CONF: Mapping[str, str] = MappingProxyType(
    {
        "spark.master": "local[2]",
        "spark.driver.memory": "700m",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        JAVA_OPTIONS: f"-XX:+UseSerialGC {QUICK_COMPILER}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # With Spark's and Delta's defaults (10000 and 50) vacuum and restore of a tiny table take a minute.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
)
"""Settings for a session with little data on a small machine."""

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

_SHELL_ONLY = re.compile(
    r"SPARK_.*|PYSPARK_.*|PYTHON(PATH|HOME|STARTUP)|(HADOOP|YARN)_CONF_DIR|_JAVA_OPTIONS"
    r"|JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS",
)


class SparkUnavailableError(LastgoodError):
    """The virtual environment of a Spark version cannot be made."""

    condition = "SPARK_UNAVAILABLE"
    exit_code = 9
    retry = Retry.LATER


@dataclass(frozen=True, slots=True)
class SparkEnvironment:
    """A Python with a pyspark."""

    version: str
    """Of its Spark, such as `4.2.0`."""
    python: Path
    home: Path
    """The pyspark folder, which is a complete SPARK_HOME."""

    @property
    def jar_set(self) -> str | None:
        """The set of JVM parts that adds Kafka and Delta to it; None if we have none for this version."""
        return _JAR_SETS.get(self.version)


def find_default_spark() -> SparkEnvironment:
    """The pyspark of the Python that runs now.

    Raises:
        ExtraMissingError: it has none.
    """
    installed = _find_installed_spark()
    if installed is None:
        raise ExtraMissingError(extra="demo", module="pyspark", needed_for="a Spark on this machine")
    return installed


def provide_spark(
    version: str,
    *,
    cache: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> SparkEnvironment:
    """A Spark of this version: the installed one if it is that, else one in a virtual environment of its own.

    The environment is made once, with pip and the Python that runs now, and kept in the cache; any number of
    processes may ask for it at the same time.

    Args:
        version: One of `SPARK_VERSIONS`.
        cache: Folder to keep it below; else `LASTGOOD_CACHE`, else the user's cache folder.
        progress: Is told, in a few words, what takes time.

    Raises:
        UsageError: the version is not one of `SPARK_VERSIONS`.
        SparkUnavailableError: the environment cannot be made.
        StorageError: the cache cannot be read or written.
    """
    if version not in SPARK_VERSIONS:
        raise UsageError("there is no Spark of this version", found=version, expected=", ".join(SPARK_VERSIONS))
    installed = _find_installed_spark()
    if installed is not None and installed.version == version:
        return installed
    tell = progress or (lambda _: None)
    folder = locate_cache(cache, os.environ)
    name = folder / f"spark-{version}"
    waiting = f"waiting for another process that sets up Spark {version}"
    with explain_cache_errors(folder):
        environment = _find_environment(name)
        if environment is None:
            with hold_exclusively(folder / f"spark-{version}.lock", on_wait=lambda: tell(waiting)):
                environment = _find_environment(name) or _make_environment(name, version, tell)
        return environment


def _find_modified_ns(part: Path) -> int | None:
    if not part.exists():
        return None
    return part.stat().st_mtime_ns


def find_class_archive(
    environment: SparkEnvironment, java: Java, jars: Sequence[Path] = (), *, cache: Path | None = None
) -> Path:
    """Where this Spark with these jars on this Java has its class archive, if it was made: see `make_class_archive`."""
    parts = (java.program, environment.home / "jars", *jars)
    of = " ".join(f"{part} {_find_modified_ns(part)}" for part in parts)
    name = f"spark-{environment.version}-{hashlib.sha256(of.encode()).hexdigest()[:12]}.jsa"
    return locate_cache(cache, os.environ) / "classes" / name


def make_small_conf(
    jars: Sequence[Path] = (), *, archive: Path | None = None, java_options: str | None = None
) -> dict[str, str]:
    """`SMALL_CONF`, with these jars, and with Delta's extension and catalog if Delta is among them.

    Args:
        jars: JVM parts.
        archive: The JVM takes the classes of Spark and of these jars from there if it fits, else from their jars. Only
            those on its own class path, which is why the jars are there then.
        java_options: What the JVM is told instead of what `SMALL_CONF` has it told, beside the archive.
    """
    conf = dict(SMALL_CONF)
    if java_options is not None:
        conf[JAVA_OPTIONS] = java_options
    if archive is not None:
        conf[JAVA_OPTIONS] += f" -XX:SharedArchiveFile={shlex.quote(str(archive))}"
    if jars and archive is not None:
        conf["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
    elif jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    if any(jar.name.startswith("delta-spark_") for jar in jars):
        conf.update(DELTA_CONF)
    return conf


def make_quick_conf(
    environment: SparkEnvironment, java: Java, jars: Sequence[Path] = (), java_options: str | None = None
) -> dict[str, str]:
    """`make_small_conf` with the class archive of this Spark with these jars on this Java, if one was made."""
    archive = find_class_archive(environment, java, jars)
    return make_small_conf(jars, archive=archive if archive.exists() else None, java_options=java_options)


def submit_command(
    script: Path,
    args: Sequence[str] = (),
    *,
    environment: SparkEnvironment,
    conf: Mapping[str, str],
) -> list[str]:
    """The command line that runs a PySpark script with the `spark-submit` of this environment."""
    return [str(environment.home / "bin" / "spark-submit"), *list_settings(conf), str(script), *args]


def list_settings(conf: Mapping[str, str]) -> list[str]:
    """Settings as words of a command line."""
    words = []
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    return words


def submit_env(environment: SparkEnvironment, java: Java, env: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for `submit_command`: `env` without what would lead to another Spark or Java."""
    kept = {name: value for name, value in env.items() if not _SHELL_ONLY.fullmatch(name)}
    return {
        **kept,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(environment.home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": str(environment.python),
        "PYSPARK_DRIVER_PYTHON": str(environment.python),
    }


def submit(  # noqa: PLR0913 - all but the script and its arguments by name
    script: Path,
    args: Sequence[str] = (),
    *,
    environment: SparkEnvironment,
    java: Java,
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
    java_options: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: IO[bytes] | int | None = None,
) -> Child:
    """Start a PySpark script in a small session; it ends with us, and we get it while it runs.

    Args:
        script: The Python file.
        args: Its arguments.
        environment: The Spark to run it on.
        java: The Java to run that on.
        jars: JVM parts for it, such as `fetch_jars(["spark"], …)["spark"]`.
        conf: Settings beside and above those of `make_quick_conf`.
        java_options: As `make_small_conf`.
        env: Environment variables beside and above ours.
        cwd: Its working directory; ours if None.
        output: Where its output and Spark's log go, together; to ours if None.

    Raises:
        CommandNotFoundError: the environment has no `spark-submit`.
    """
    settings = {**make_quick_conf(environment, java, jars, java_options), **(conf or {})}
    return Child(
        submit_command(script, args, environment=environment, conf=settings),
        env={**submit_env(environment, java, os.environ), **(env or {})},
        cwd=cwd,
        output=output,
    )


def _find_installed_spark() -> SparkEnvironment | None:
    spec = importlib.util.find_spec("pyspark")
    locations = spec.submodule_search_locations if spec is not None else None
    if not locations:
        return None
    return _identify_spark(Path(sys.executable), Path(next(iter(locations))))


def _find_environment(name: Path) -> SparkEnvironment | None:
    """The environment that `name` links to; None if there is none, or one whose Python is gone."""
    if not name.exists():
        return None
    folder = name.resolve()
    homes = list(folder.glob("lib/python*/site-packages/pyspark"))
    python = folder / "bin" / "python"
    if homes and python.exists():
        return _identify_spark(python, homes[0])
    return None


def _identify_spark(python: Path, home: Path) -> SparkEnvironment | None:
    """What this pyspark is; None if it is none."""
    try:
        version = re.search(r"""__version__.*['"](.+)['"]""", (home / "version.py").read_text())
    except FileNotFoundError:
        return None
    if not version:
        return None
    return SparkEnvironment(version.group(1), python, home)


def _make_environment(name: Path, version: str, tell: Callable[[str], None]) -> SparkEnvironment:
    """Make a virtual environment, then link `name` to it: who sees the link sees a whole environment.

    An environment cannot be moved, so it is made where it stays, below a name that nobody looks for.
    """
    for abandoned in name.parent.glob(f"{name.name}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)  # of a process that was killed; its pip may still be dying
    folder = Path(tempfile.mkdtemp(prefix=f"{name.name}-", dir=name.parent))
    log = folder / "setup.log"
    tell(f"making a virtual environment for Spark {version}")
    _run([sys.executable, "-I", "-m", "venv", str(folder)], version, log)
    tell(f"installing pyspark {version} with pip")
    # pyspark pins its one dependency itself, so its version is all there is to say.
    pip = (str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input")
    _run([*pip, f"pyspark=={version}"], version, log)
    environment = _find_environment(folder)
    if environment is None or environment.version != version:
        raise _make_unavailable_error(version, log, "pip has installed another pyspark, or none")
    link = name.with_name(f"{name.name}.new")
    # Safe: of our own cache, whose lock we hold; nobody looks for this name.
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    # Safe: where there is a link already, it leads to no whole environment: else we were not here.
    link.replace(name)
    return environment


def _run(command: list[str], version: str, log: Path) -> None:
    with log.open("ab") as output, Child(command, output=output) as child:
        ending = child.wait()
    if ending is None or not ending.is_success:
        said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise _make_unavailable_error(version, log, said[-1] if said else str(ending))


def _make_unavailable_error(version: str, where: Path, found: str) -> SparkUnavailableError:
    return SparkUnavailableError(
        f"the virtual environment of Spark {version} cannot be made",
        subject=str(where),
        found=found,
        expected=f"pyspark {version}, installed by pip",
        next="look into that file, check the network, run the same command again",
    )
