"""What reads and writes in a lake goes by the tree that follows no link; who opens files by himself is named here."""

from __future__ import annotations

import ast
import functools
import os
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.ledger.opening import open_ledger
from lastgood.observe.ledger import fill_from_records
from lastgood.observe.recorded import read_tail
from lastgood.records.record import Progress
from lastgood.spark.agent.files import RecordFileWriter
from lastgood.spark.record_sinks import BesideCheckpoints, locate_records, open_record_taker
from lastgood.storage.local_tree import LinkNotFollowedError
from lastgood.storage.reading import LocalStorage, Location, open_storage, parse_location
from lastgood.testing.checkpoints import QUERY_ID

SOURCE = Path(lastgood.__file__).parent
CALLS = frozenset(
    {
        "open",
        "read_bytes",
        "read_text",
        "write_bytes",
        "write_text",
        "iterdir",
        "glob",
        "rglob",
        "is_file",
        "is_dir",
        "is_symlink",
        "exists",
        "lstat",
        "unlink",
        "touch",
        "mkdir",
        "rmdir",
        "rename",
        "replace",
        "listdir",
        "scandir",
        "copyfile",
        "copytree",
        "rmtree",
    }
)
"""Calls that reach a file by its path, as far as their names tell."""
OTHERS = ("lab/", "testing/", "demo/", "spark/agent/site/")
"""Folders of programs that work in what they have made themselves."""
THEIR_OWN = {
    "bundle/archive.py": "the bundle that was named",
    "cli/repair.py": "the file of `-o`",
    "cli/report.py": "the file of `-o`",
    "cli/streams.py": "/dev/null",
    "ledger/store.py": "the ledger that was named",
    "load/packing.py": "indexes of packed files, in this user's cache",
    "load/unpacking.py": "indexes of packed files, in this user's cache",
    "spark/piece_files.py": "new files of the table that was named",
    "spark/load_direct.py": "whether those are there",
    "storage/local_tree.py": "this is the tree",
    "delta_log/own_files.py": "entries of a folder that the tree has opened",
    "storage/own_disks.py": "/proc",
    "observe/broker.py": "the file of `--kafka`",
    "observe/bundle.py": "the file of `--save`, or the bundle that was named",
    "operations/diagnose.py": "the bundle that was named",
    "observe/logged.py": "the file of `--log`",
    "supervise/filling.py": "folders of the agents, in this user's state folder",
    "settings/keys.py": "the file of the keys",
    "observe/positions.py": "the file of `--at`",
    "recovery/event_times.py": "a folder of its own, for one scan",
    "recovery/prover.py": "a folder of its own, for one proof",
    "recovery/deciding.py": "the file of `-o`, or this user's state folder",
    "spark/session_agent.py": "a folder of the agent, in this user's state folder",
    "supervise/class_archives.py": "a folder of its own, in this user's cache",
    "supervise/driver_java.py": "what the driver that runs was started with",
    "supervise/agent_folder.py": "folders of the agents, in this user's state folder",
    "recovery/start_file.py": "whether the file that was named is a link",
    "recovery/warrant.py": "whether a plan that was named lies among the logs of a query",
    "settings/target.py": "whether the configuration is there, or what was named",
    "audit/spark_job.py": "a folder of its own, for one comparison",
    "supervise/load_driver.py": "a folder of its own, for one load",
    "recovery/whereabouts.py": "this user's state folder",
    "process/driver.py": "the program of the driver",
    "process/guard.py": "/proc",
    "process/java.py": "the program of Java",
    "process/told.py": "what a job of ours tells, and its log",
    "journal/lease.py": "/proc",
    "storage/rights.py": "folders that are open, or are made where no root is named",
    "sources/kafka/config.py": "the file of `--kafka-config`, and those that it names",
    "spark/agent/driver.py": "/proc, and the folder that the supervisor has named",
    "spark/agent/files.py": "a folder that it is given open",
    "spark/agent/guarding.py": "the folder that the supervisor has named",
    "spark/agent/restarts.py": "the folder that the supervisor has named",
    "spark/agent/silent.py": "the folder that the supervisor has named",
    "spark/agent/standby.py": "the folder that the supervisor has named",
    "spark/agent/read_files.py": "what the application has opened itself, and the class path: looked at, never opened",
    "spark/audit_job.py": "the question of `verify`",
    "spark/load_job.py": "a footer of Parquet that it writes for Spark",
    "spark/load_main.py": "the question of `load`",
    "spark/event_time_job.py": "the question of `plan --event-time`",
    "spark/kafka.py": "the file that says where to start, which the application has named",
    "spark/proof_job.py": "the question of `prove`",
    "storage/reading.py": "whether /dbfs is there",
    "storage/hdfs.py": "HADOOP_CONF_DIR",
    "supervise/agents.py": "the folder of this run's agents",
    "settings/config.py": "the configuration",
    "supervise/silent_driver.py": "the folder of this run's agent",
    "supervise/standby.py": "the folder of this run's standby; what it has read is looked at, never opened",
    "supervise/output.py": "the log of the application that this user has named",
    "settings/ownership.py": "whose the configuration is",
    "storage/writing.py": "places that the tree has told",
}
"""Who opens files by their path, and whose they are: of no checkpoint, and of nothing beside one."""
PATHS_OF_LOCATIONS = {
    "ledger/url.py": "the ledger that was named",
    "observe/bundle.py": "compared with the place of the new bundle",
    "recovery/warrant.py": "compared: whether a file lies in a lake",
    "storage/own_disks.py": "compared with the mounts",
    "spark/kafka.py": "the file that says where to start, which the application has named",
    "spark/record_sinks.py": "opened by the tree",
    "journal/holding.py": "opened by the tree",
    "recovery/start_file.py": "whether the file that was named is a link",
}
"""Who makes a path of a location: nothing is opened by it, but what was named itself."""


@functools.cache
def modules() -> list[tuple[str, ast.Module]]:
    named = ((str(file.relative_to(SOURCE)), file) for file in sorted(SOURCE.rglob("*.py")))
    return [(name, ast.parse(file.read_text())) for name, file in named if not name.startswith(OTHERS)]


def is_of_files(call: ast.Call) -> bool:
    named = call.func
    if isinstance(named, ast.Name):
        return named.id == "open"
    if not isinstance(named, ast.Attribute) or named.attr not in CALLS:
        return False
    owner = ast.unparse(named.value)
    if named.attr == "replace":
        return owner == "os"
    # Storages have none of these; `exists` is also a question to Kafka's facts, `open` to a tree and an archive.
    return not owner.endswith(("facts", "kafka", "tree", "archive"))


def takes_a_path_of_a_location(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("Path", "os.open", "open") and any(
        isinstance(each, ast.Attribute) and each.attr in ("path", "mount")
        for arg in call.args
        for each in ast.walk(arg)
    )


def test_nobody_else_opens_files_by_their_path() -> None:
    calls = {
        name: [f"{name}:{each.lineno}" for each in ast.walk(tree) if isinstance(each, ast.Call) and is_of_files(each)]
        for name, tree in modules()
    }
    found = {name for name, lines in calls.items() if lines}
    assert found - THEIR_OWN.keys() == set(), [calls[name] for name in found - THEIR_OWN.keys()]
    assert THEIR_OWN.keys() - found == set()


def test_nobody_else_makes_a_path_of_a_location() -> None:
    found = {
        name
        for name, tree in modules()
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and takes_a_path_of_a_location(each)
    }
    assert found == PATHS_OF_LOCATIONS.keys()


@pytest.fixture
def lake(tmp_path: Path) -> Location:
    """A checkpoint with records beside it, and a victim with records of his own."""
    for folder in ("lake/chk", "lake/chk.lastgood/records", "victim"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(10):
        (tmp_path / f"victim/179522051628{number}-77.000001.jsonl").write_text("the victim's\n")
    return parse_location(str(tmp_path / "lake/chk"))


def told() -> dict[str, Any]:
    return Progress(recorded_at_ms=1, query_id=QUERY_ID, run_id="r", batch_id=1).to_json()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize("place", ["lake/chk.lastgood", "lake/chk.lastgood/records"])
def test_a_recorder_writes_and_removes_nothing_through_a_link(lake: Location, tmp_path: Path, place: str) -> None:
    """He would have old records removed where it leads, and new ones put there."""
    (tmp_path / "victim/records").mkdir()
    (tmp_path / "lake/chk.lastgood/records").rmdir()
    if place.endswith("lastgood"):
        (tmp_path / place).rmdir()
    (tmp_path / place).symlink_to(tmp_path / "victim")
    (tmp_path / "victim/records").rmdir()
    before = snapshot(tmp_path / "victim")
    sink = BesideCheckpoints(tmp_path / "elsewhere")
    with pytest.raises(LinkNotFollowedError):
        sink.write([{**told(), "checkpoint": str(lake)}])
    assert snapshot(tmp_path / "victim") == before


def test_records_beside_a_checkpoint_are_for_their_owner_alone(lake: Location, tmp_path: Path) -> None:
    (tmp_path / "lake/chk.lastgood/records").rmdir()
    (tmp_path / "lake/chk.lastgood").rmdir()
    before = os.umask(0)
    try:
        open_record_taker(locate_records(lake), root=lake).write([told()])
    finally:
        os.umask(before)
    folder = tmp_path / "lake/chk.lastgood/records"
    (file,) = folder.iterdir()
    assert [oct(each.stat().st_mode & 0o777) for each in (folder.parent, folder, file)] == ["0o700", "0o700", "0o600"]


def test_a_folder_for_records_that_was_named_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "named").symlink_to(tmp_path / "disk")
    open_record_taker(parse_location(str(tmp_path / "named"))).write([told()])
    assert len(list((tmp_path / "disk").iterdir())) == 1


def test_records_are_not_read_through_a_link_that_takes_their_place(lake: Location, tmp_path: Path) -> None:
    """He puts it there between the listing and the reading."""
    folder = locate_records(lake)
    RecordFileWriter(Path(folder.path)).write([told()])
    storage = open_storage(lake)
    assert isinstance(storage, LocalStorage)
    (name,) = (entry.name for entry in storage.scan(folder) or ())
    (tmp_path / "victim/secret").write_text("{}\n")
    listed = list(storage.scan(folder) or ())
    (Path(folder.path) / name).unlink()
    (Path(folder.path) / name).symlink_to(tmp_path / "victim/secret")
    with pytest.raises(LinkNotFollowedError):
        read_tail(storage, folder / name)
    assert read_tail(storage.leave_links_out(), folder / name) == b""

    class Listed(LocalStorage):
        def scan(self, folder: Location, *, facts: bool = True) -> Any:
            return iter(listed)

    with open_ledger(str(tmp_path / "ledger.db")) as ledger, pytest.raises(LinkNotFollowedError):
        fill_from_records(folder, ledger, Listed(root=lake))
