"""The JVM parts that Spark and the services need beyond PySpark: fetched once by Ivy, checked, kept in the cache.

The list is flat (`ivy/ivy.xml`), the digests are ours (`ivy/jars.sha256`), Ivy is the one inside PySpark.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree as ET

from lastgood.errors import ExtraMissingError, LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.lab.cache import explain_cache_errors, hold_exclusively, locate_cache
from lastgood.lab.spark import find_default_spark
from lastgood.process.child import Child
from lastgood.process.java import Java

JAR_SETS = ("spark", "broker", "s3a", "hdfs", "postgresql")
"""What can be fetched: Spark's Kafka source and Delta, a Kafka broker, `s3a://` for Spark, HDFS, PostgreSQL by JDBC."""

REPOSITORY_VARIABLE = "DEFAULT_ARTIFACT_REPOSITORY"
"""Environment variable that names another repository than Maven Central, for Spark's `--packages` and for us."""

_STAMPS = "verified.json"
_REPORTS = "io.lastgood-jvm-parts-*.xml"
_POLL_SECONDS = 0.25
_NAMED = 3
"""How many of the missing artifacts an error names one by one."""


class JarsUnavailableError(LastgoodError):
    """A JVM part cannot be downloaded, or what came is not what is expected."""

    condition = "JVM_PARTS_UNAVAILABLE"
    exit_code = 7
    retry = Retry.LATER


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of the list."""

    jar_set: str
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def module_id(self) -> str:
        """As Ivy writes it."""
        return f"{self.organisation}#{self.name};{self.revision}"

    @property
    def path(self) -> str:
        """Where it lies, relative to the folder of all JVM parts."""
        return f"{self.jar_set}/{self.name}-{self.revision}.jar"


@dataclass(frozen=True, slots=True)
class Stamp:
    """How a file looked when its digest was computed: as long as it looks so, it is not read again."""

    size: int
    mtime_ns: int
    sha256: str


def parse_jars(ivy_xml: str, sha256_list: str) -> tuple[Jar, ...]:
    """The artifacts of an Ivy list in its order, each with its digest from a `sha256sum` list.

    Raises:
        KeyError: an artifact has no digest.
    """
    digests = {path: digest for digest, path in map(str.split, sha256_list.splitlines())}
    jars = []
    for dependency in _parse(ivy_xml).iter("dependency"):
        organisation, name, revision, conf = (dependency.attrib[key] for key in ("org", "name", "rev", "conf"))
        jar_set = conf.partition("->")[0]
        jars.append(
            Jar(jar_set, organisation, name, revision, digests[f"{jar_set}/{name}-{revision}.jar"]),
        )
    return tuple(jars)


def parse_failed_modules(report_xml: str) -> list[str]:
    """The ids of the modules that one of Ivy's resolve reports does not have, in its order."""
    failed = []
    for module in _parse(report_xml).iter("module"):
        for revision in module.iter("revision"):
            artifacts = revision.iter("artifact")
            if revision.get("error") or any(artifact.get("status") == "failed" for artifact in artifacts):
                failed.append(f"{module.get('organisation')}#{module.get('name')};{revision.get('name')}")
    return failed


def is_verified(jar: Jar, found: os.stat_result | None, stamp: Stamp | None) -> bool:
    """True if the file is the one whose digest was right before."""
    return (
        found is not None
        and stamp is not None
        and (stamp.size, stamp.mtime_ns, stamp.sha256) == (found.st_size, found.st_mtime_ns, jar.sha256)
    )


def fetch_jars(
    sets: Sequence[str],
    *,
    java: Java,
    cache: Path | None = None,
    repository: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Mapping[str, tuple[Path, ...]]:
    """The files of each set, verified; what is missing is downloaded, what is there costs no JVM.

    Any number of processes may call this at once. A download that dies, however, leaves nothing behind that
    would be taken for a jar.

    Args:
        sets: Names out of `JAR_SETS`.
        java: What runs Ivy.
        cache: Folder to keep them below; else `LASTGOOD_CACHE`, else the user's cache folder.
        repository: Address of a repository in Maven's layout; else `DEFAULT_ARTIFACT_REPOSITORY`, else
            Maven Central.
        progress: Is told, in a few words, what takes time.

    Raises:
        UsageError: there is no such set.
        ExtraMissingError: there is no PySpark, whose Ivy is needed.
        JarsUnavailableError: an artifact cannot be downloaded, or a file has not the expected digest.
        StorageError: the cache cannot be read or written.
    """
    unknown = [name for name in sets if name not in JAR_SETS]
    if unknown:
        raise UsageError("there is no such set of JVM parts", found=unknown[0], expected=", ".join(JAR_SETS))
    wanted = [jar for jar in list_jars() if jar.jar_set in sets]
    tell = progress or (lambda _: None)
    store = _Store(locate_cache(cache, os.environ) / "jvm")
    with explain_cache_errors(store.folder):
        if store.unverified(wanted):
            with hold_exclusively(store.folder / "lock", on_wait=lambda: tell("waiting for another download")):
                missing = store.verify(wanted)
                if missing:
                    address = repository or os.environ.get(REPOSITORY_VARIABLE)
                    store.take(missing, _Ivy(java, address, tell))
    paths: dict[str, tuple[Path, ...]] = {}
    for name in sets:
        paths[name] = tuple(store.folder / jar.path for jar in wanted if jar.jar_set == name)
    return paths


def list_jars() -> tuple[Jar, ...]:
    """Every artifact that lastgood knows."""
    return parse_jars(_read_data("ivy.xml"), _read_data("jars.sha256"))


def _read_data(name: str) -> str:
    return (importlib.resources.files("lastgood.lab") / "ivy" / name).read_text()


def _parse(xml: str) -> ET.Element:
    return ET.fromstring(xml)  # noqa: S314 - our own list, or a report that Ivy wrote a moment ago


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Store:
    """The folder of all JVM parts, and the stamps of those whose digest was right."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def unverified(self, jars: Iterable[Jar]) -> list[Jar]:
        """The jars that are missing, or whose file is not the one that was verified."""
        stamps = self._stamps()
        return [jar for jar in jars if not is_verified(jar, self._stat(jar), stamps.get(jar.path))]

    def verify(self, jars: Iterable[Jar]) -> list[Jar]:
        """Check what is there and not yet verified; return what is missing.

        Raises:
            JarsUnavailableError: a file is not what is expected; it has been removed.
        """
        missing, present = [], []
        for jar in self.unverified(jars):
            if self._stat(jar) is None:
                missing.append(jar)
            else:
                _check(jar, self.folder)
                present.append(jar)
        if present:
            self._stamp(present)
        return missing

    def take(self, jars: list[Jar], ivy: _Ivy) -> None:
        """Download jars beside their place, check them, and only then put them there."""
        with self._workspace() as workspace:
            fetched = ivy.retrieve(jars, workspace, log=self.folder / "ivy.log")
            for jar in jars:
                _check(jar, fetched)
            for jar in jars:
                target = self.folder / jar.path
                target.parent.mkdir(exist_ok=True)
                # Safe: of our own cache, whose lock we hold; it was checked to be the file that is expected there.
                (fetched / jar.path).replace(target)
        self._stamp(jars)

    @contextlib.contextmanager
    def _workspace(self) -> Iterator[Path]:
        # We hold the lock: what is there was left by a process that was killed. Its Ivy may be dying only now
        # and still write; what cannot be removed for that reason goes the next time.
        for abandoned in self.folder.glob("fetch-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=self.folder) as workspace:
            yield Path(workspace)

    def _stat(self, jar: Jar) -> os.stat_result | None:
        try:
            return (self.folder / jar.path).stat()
        except FileNotFoundError:
            return None

    def _stamps(self) -> dict[str, Stamp]:
        try:
            recorded = json.loads((self.folder / _STAMPS).read_bytes())
            return {path: Stamp(**fields) for path, fields in recorded.items()}
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return {}  # nothing is known to be right, so everything is read again

    def _stamp(self, jars: Iterable[Jar]) -> None:
        stamps = self._stamps()
        for jar in jars:
            found = (self.folder / jar.path).stat()
            stamps[jar.path] = Stamp(found.st_size, found.st_mtime_ns, jar.sha256)
        draft = self.folder / f"{_STAMPS}.new"
        draft.write_text(json.dumps({path: asdict(stamp) for path, stamp in sorted(stamps.items())}, indent=1))
        # Safe: of our own cache, whose lock we hold, and with all that was known before.
        draft.replace(self.folder / _STAMPS)


def _check(jar: Jar, folder: Path) -> None:
    path = folder / jar.path
    found = _compute_sha256(path)
    if found == jar.sha256:
        return
    # Safe: a download of ours, and not what it should be; it is downloaded anew.
    path.unlink()
    raise JarsUnavailableError(
        f"{jar.module_id} is not the file that was expected, and has been removed",
        subject=str(path),
        found=f"sha256 {found}",
        expected=f"sha256 {jar.sha256}",
        next="run the same command again: the file is downloaded anew",
    )


@dataclass(frozen=True, slots=True)
class _Ivy:
    """Ivy, as PySpark brings it."""

    java: Java
    repository: str | None
    tell: Callable[[str], None]

    def retrieve(self, jars: list[Jar], workspace: Path, *, log: Path) -> Path:
        """Download jars into a folder below `workspace`; what Ivy says goes to `log`."""
        command = self._command(jars, workspace)
        with log.open("wb") as output, Child(command, output=output) as child:
            shown = -1
            while child.wait(_POLL_SECONDS) is None:
                arrived = sum(1 for _ in workspace.glob("cache/*/*/jars/*.jar"))
                if arrived != shown:
                    self.tell(f"downloading JVM parts: {arrived} of {len(jars)}")
                    shown = arrived
        fetched = workspace / "jars"
        absent = [jar for jar in jars if not (fetched / jar.path).is_file()]
        if absent:
            reports = (workspace / "cache").glob(_REPORTS)
            failed = sorted({module for report in reports for module in parse_failed_modules(report.read_text())})
            raise _make_unavailable_error(failed or [jar.module_id for jar in absent], log)
        return fetched

    def _command(self, jars: list[Jar], workspace: Path) -> list[str]:
        (workspace / "ivy.xml").write_text(_select_jars(jars, _read_data("ivy.xml")))
        (workspace / "ivysettings.xml").write_text(_make_settings(_read_data("ivysettings.xml"), self.repository))
        return [
            *(str(self.java.program), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Divy.default.ivy.user.dir={workspace / 'ivy'}",
            *("-cp", str(_fetch_ivy_jar()), "org.apache.ivy.Main", "-warn"),
            *("-settings", str(workspace / "ivysettings.xml")),
            *("-ivy", str(workspace / "ivy.xml")),
            *("-cache", str(workspace / "cache")),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{workspace}/jars/[conf]/[artifact]-[revision].[ext]"),
            *("-confs", *sorted({jar.jar_set for jar in jars})),
        ]


def _fetch_ivy_jar() -> Path:
    jar = next((find_default_spark().home / "jars").glob("ivy-*.jar"), None)
    if jar is None:  # the slim pyspark-client has no JVM in it
        raise ExtraMissingError(extra="demo", module="pyspark with its jars", needed_for="downloading JVM parts")
    return jar


def _select_jars(jars: list[Jar], ivy_xml: str) -> str:
    """The Ivy list with nothing in it but `jars`."""
    root = _parse(ivy_xml)
    wanted = {(jar.jar_set, jar.name) for jar in jars}
    for parent in root.iter("dependencies"):
        for dependency in list(parent):
            if (dependency.attrib["conf"].partition("->")[0], dependency.attrib["name"]) not in wanted:
                parent.remove(dependency)
    return ET.tostring(root, encoding="unicode")


def _make_settings(ivysettings_xml: str, repository: str | None) -> str:
    """Ivy's settings, for another repository than Maven Central if there is one."""
    root = _parse(ivysettings_xml)
    if repository is not None:
        for resolver in root.iter("ibiblio"):
            resolver.set("root", repository)
    return ET.tostring(root, encoding="unicode")


def _make_unavailable_error(modules: list[str], log: Path) -> JarsUnavailableError:
    said = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    reason = next((line for line in said if line and not line.startswith(("::", "...", "Picked up"))), "no reason")
    named = ", ".join(modules[:_NAMED])
    if len(modules) > _NAMED:
        named += f" and {len(modules) - _NAMED} more"
    return JarsUnavailableError(
        "JVM parts cannot be downloaded",
        subject=str(log),
        found=f"{named}: {reason}",
        expected=f"{'an artifact' if len(modules) == 1 else f'{len(modules)} artifacts'} in the repository",
        effect="nothing has been kept of this download",
        next="check the network and run the same command again; behind a proxy set "
        f"JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=… -Dhttps.proxyPort=…', for a mirror {REPOSITORY_VARIABLE}",
    )
