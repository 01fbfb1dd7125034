"""Verbs that read change nothing: on a read-only mount they do all they do elsewhere, and no byte or stamp differs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow
import pytest
from plugin_services import require_service
from typed import call

pytestmark = pytest.mark.services

LASTGOOD = Path(sys.executable).parent / "lastgood"
CASES = Path(__file__).parents[1] / "corpus" / "cases"
MOUNTED = ["unshare", "--mount", "sh", "-ec"]
WITHOUT_OVERRIDE = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"]
"""Makes permissions hold for root too."""

VERBS = [
    ["status", "{checkpoint}"],
    ["status", "{root}"],
    ["status", "{root}", "--query", "checkpoint"],
    ["inspect", "{checkpoint}"],
    ["inspect", "{checkpoint}", "--limit", "2"],
    ["inspect", "{checkpoint}", "--all"],
    ["inspect", "{checkpoint}", "--all", "--format", "json"],
    ["inspect", "{checkpoint}", "--batch", "1"],
    ["inspect", "{checkpoint}", "--state"],
    ["inspect", "{checkpoint}", "--offset", "t1/0/0"],
    ["inspect", "{checkpoint}", "--offset", "m.a/0/13"],
    ["inspect", "{checkpoint}", "--file", "f001.json"],
    ["inspect", "{checkpoint}", "--time", "2026-11-21T12:00Z"],
    ["offsets", "{checkpoint}"],
    ["offsets", "{checkpoint}", "--bare"],
    ["offsets", "{checkpoint}", "--batch", "1"],
    ["offsets", "{checkpoint}", "--stable-lag", "0"],
    ["offsets", "{checkpoint}", "--time", "2026-11-21T12:00Z"],
    ["verify", "{checkpoint}"],
    ["diagnose", "{checkpoint}"],
    ["diagnose", "{checkpoint}", "--kafka", "{root}/kafka.json", "--sink", "file:{root}/written"],
    ["diagnose", "{checkpoint}", "--sink", "delta:{root}/table", "--log", "{root}/driver.log"],
    ["status", "{checkpoint}", "--kafka", "{root}/kafka.json", "--sink", "{root}/written"],
    ["inspect", "{checkpoint}", "--all", "--sink", "delta:{root}/table", "--sink", "file:{root}/written"],
    ["backup", "list", "{checkpoint}"],
]
KAFKA = {
    "bootstrap": "broker:9092",
    "captured_at_ms": 1795220800000,
    "topics": {
        "m.a": {"partitions": {"0": {"earliest": 0, "latest": 30}, "1": {"earliest": 0, "latest": 30}}},
        "m.b": {"partitions": {"0": {"earliest": 0, "latest": 30}}},
    },
}
QUIET = ("--bare", "json")
"""What follows one of these is for programs, and ends without a sentence for people."""


def contents(root: Path) -> dict[str, object]:
    """What is in each file and folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else sorted(map(str, path.iterdir()))
        for path in [root, *root.rglob("*")]
    }


def stamps(root: Path) -> dict[str, tuple[int, ...]]:
    """Of each file and folder every stamp but the time of the last access."""
    told = {str(path): path.stat() for path in [root, *root.rglob("*")]}
    return {
        path: (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_mode, each.st_ino)
        for path, each in told.items()
    }


def accesses(root: Path) -> dict[str, int]:
    """When each file was read last; of folders our own looking changes it."""
    return {str(path): path.stat().st_atime_ns for path in root.rglob("*") if path.is_file()}


STATEFUL = pytest.param("3.5-agg-hdfs-healthy", marks=pytest.mark.proof)


@pytest.fixture(
    params=["4.2-kafka-multi-topic", pytest.param("4.3-file-sink-healthy", marks=pytest.mark.proof), STATEFUL]
)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a real checkpoint, its mirror and a backup, sinks of both kinds, broker facts and a log."""
    root = tmp_path / "chk"
    shutil.copytree(CASES / request.param / "checkpoint", root / "checkpoint")
    shutil.copytree(CASES / "4.3-file-sink-healthy" / "spark_metadata", root / "written" / "_spark_metadata")
    deltalake.write_deltalake(root / "table", pyarrow.table({"id": [1, 2, 3]}))
    (root / "kafka.json").write_text(json.dumps(KAFKA))
    (root / "driver.log").write_text("26/11/21 12:00:00 ERROR MicroBatchExecution: Query terminated with error\n")
    subprocess.run([LASTGOOD, "backup", "create", root / "checkpoint"], check=True, capture_output=True, timeout=60)
    return root


@pytest.fixture(scope="module")
def can_mount() -> bool:
    """Whether this user may make mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*MOUNTED, "mount --bind /tmp /tmp"], capture_output=True, timeout=60).returncode == 0


def read_only(root: Path, command: list[str], *, can_mount: bool) -> list[str]:
    """The command that runs `command` where nothing below `root` can be written."""
    if not can_mount:  # the fixture below has taken the permission away
        return [*WITHOUT_OVERRIDE, *command] if os.geteuid() == 0 else command
    place = shlex.quote(str(root))
    mount = f"mount --bind {place} {place} && mount -o remount,ro,bind {place}"
    proof = f"if touch {place}/x 2>/dev/null; then exit 99; fi"
    return [*MOUNTED, f"{mount} && {proof} && exec {shlex.join(command)}"]


@pytest.fixture
def locked(root: Path, can_mount: bool) -> Path:
    """The same folder, unwritable also by its permissions where it cannot be mounted."""
    if not can_mount:
        if os.geteuid() == 0 and shutil.which(WITHOUT_OVERRIDE[0]) is None:
            require_service("root may write whatever the permissions say; here it can neither mount nor setpriv")
        for path in [root, *root.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
    return root


def environment(root: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(root), "TZ": "UTC"}


def run(command: list[str], root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment(root), cwd=root, capture_output=True, text=True, timeout=60)


def test_reading_verbs_work_where_nothing_can_be_written_and_change_nothing(locked: Path, can_mount: bool) -> None:
    places = {"root": str(locked), "checkpoint": str(locked / "checkpoint")}
    typed = [[word.format(**places) for word in verb] for verb in VERBS]
    elsewhere = [call(*words, env=environment(locked), cwd=locked) for words in typed]
    held, stamped, read = contents(locked), stamps(locked), accesses(locked)
    here = [run(read_only(locked, [str(LASTGOOD), *words], can_mount=can_mount), locked) for words in typed]
    if can_mount:  # else the mount itself writes down who reads
        assert accesses(locked) == read
    assert stamps(locked) == stamped
    assert contents(locked) == held
    for verb, done, expected in zip(VERBS, here, elsewhere, strict=True):
        assert (done.returncode, steady(done.stdout), done.stderr) == (
            expected.returncode,
            steady(expected.stdout),
            expected.stderr,
        ), verb
        assert done.returncode in (0, 1, 40, 64), (verb, done.stderr)
        if done.returncode < 2 and not set(QUIET) & set(verb):
            assert done.stdout.endswith("Nothing has been changed.\n"), verb


def steady(text: str) -> str:
    """Without how long ago something was."""
    return re.sub(r"[\d.,]+ \w+(?= ago)", "some time", text).rstrip("\n")


def test_a_verb_that_writes_is_refused_there_and_changes_nothing(locked: Path, can_mount: bool) -> None:
    before = contents(locked), stamps(locked)
    command = [str(LASTGOOD), "backup", "create", str(locked / "checkpoint")]
    refused = subprocess.run(
        read_only(locked, command, can_mount=can_mount), capture_output=True, text=True, timeout=60
    )
    assert (refused.returncode, refused.stdout) in ((10, ""), (12, ""))
    assert refused.stderr.startswith("error [STORAGE_")
    assert (contents(locked), stamps(locked)) == before
