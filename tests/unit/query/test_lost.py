"""Logs that are older than what recorder, mirror or ledger know of their query, as every verb is told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import silent
from typed import call

from lastgood.checkpoint.reader import ALL_BATCHES, read_checkpoint
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.rules_lost import find_older
from lastgood.errors import StorageError
from lastgood.ledger.opening import open_ledger
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.ledger import fill_ledger
from lastgood.observe.open_query import gather
from lastgood.observe.recalled import add_memory
from lastgood.query.advice_facts import AdviceFacts, RecordedBatch
from lastgood.query.observation import Observation
from lastgood.records.record import Progress
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput

CONDITION = "LOGS_OLDER_THAN_RECORDS"


def put_older_copy(folder: Path, *, at: int, committed: int, recorded_at_ms: int = STARTED_MS) -> Path:
    """A checkpoint whose folder was replaced by a copy from after batch `at`; the recorder saw `committed`."""
    checkpoint, copy = folder / "orders", folder / "copy"
    query = CheckpointBuilder(checkpoint)
    query.run(at + 1)
    shutil.copytree(checkpoint, copy)
    query.run(committed - at)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    records = folder / "orders.lastgood/records"
    records.mkdir(parents=True)
    told = [
        Progress(batch_id=n, recorded_at_ms=recorded_at_ms + n, query_id=QUERY_ID, run_id="r")
        for n in range(committed + 1)
    ]
    lines = "".join(json.dumps(each.to_json()) + "\n" for each in told)
    (records / "1795220516284-77.000001.jsonl").write_text(lines)
    return checkpoint


def answers(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*words, "--format", "json").stdout)
    return found


def test_older_copy_is_told_by_every_verb_and_promises_nothing_to_a_sink_that_nobody_named(tmp_path: Path) -> None:
    """A Delta table drops what comes under the numbers that it has, also records that no batch has read."""
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    plan = answers("plan", checkpoint, "--output", tmp_path / "plan.json")
    assert plan["guarantee"] == "lossy"
    assert any(str(line).startswith(CONDITION) for line in plan["rests_on"])
    assert CONDITION in call("diagnose", checkpoint).stdout
    status = call("status", checkpoint)
    assert (status.returncode, CONDITION in status.stdout) == (1, True)
    assert call("recover", checkpoint, "--output", tmp_path / "plan.json").returncode == 3


@pytest.mark.parametrize("committed", [3, 2])
def test_logs_that_have_all_that_was_recorded_are_no_older_copy(committed: int, tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=3)
    records = tmp_path / "orders.lastgood/records/1795220516284-77.000001.jsonl"
    records.write_text("".join(records.read_text().splitlines(keepends=True)[: committed + 1]))
    assert CONDITION not in call("diagnose", checkpoint).stdout


def test_query_that_goes_on_while_it_is_looked_at_has_no_older_logs(tmp_path: Path) -> None:
    later_ms = 4_000_000_000_000
    checkpoint = put_older_copy(tmp_path, at=3, committed=4, recorded_at_ms=later_ms)
    assert CONDITION not in call("status", checkpoint).stdout


def test_logs_that_a_recovery_has_changed_since_are_no_older_copy(tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    (tmp_path / "orders.lastgood/recoveries/20261122-160058-7f3a").mkdir(parents=True)
    assert CONDITION not in call("status", checkpoint).stdout


def test_sink_that_tells_how_far_it_is_speaks_for_itself(tmp_path: Path) -> None:
    checkpoint = put_older_copy(tmp_path, at=3, committed=6)
    sink = tmp_path / "out/_spark_metadata"
    sink.mkdir(parents=True)
    for n in range(4):
        (sink / str(n)).write_text("v1\n")
    told = call("diagnose", checkpoint, "--sink", f"file:{tmp_path}/out").stdout
    assert CONDITION not in told


def mirror_now(checkpoint: Path, *, seen_ms: int = STARTED_MS + 60_000) -> None:
    """One look of a mirror at the checkpoint as it stands, put together in its file of the day."""
    location = parse_location(str(checkpoint))
    writer = MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=lambda: seen_ms,
    )
    writer.look()
    writer.settle()


def put_older_copy_of(checkpoint: Path, *, at: int, committed: int) -> None:
    """The checkpoint replaced by a copy from after batch `at`; the mirror has seen it up to `committed`."""
    query, copy = CheckpointBuilder(checkpoint), checkpoint.parent / "copy"
    query.run(at + 1)
    shutil.copytree(checkpoint, copy)
    query.run(committed - at)
    mirror_now(checkpoint)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)


def is_told(*words: object) -> tuple[bool, bool]:
    """Whether `status` and `diagnose` tell it as an error."""
    status, found = answers("status", *words), answers("diagnose", *words)
    errors = [each["condition"] for each in found["findings"] if each["severity"] == "error"]
    return any(line.startswith(CONDITION) for line in status["problems"]), CONDITION in errors


@pytest.mark.parametrize("batches", [6, 30])
def test_older_copy_is_told_by_the_mirror_whether_the_logs_are_short_or_long(batches: int, tmp_path: Path) -> None:
    """Of a short log the mirror is read anyway."""
    checkpoint = tmp_path / "orders"
    put_older_copy_of(checkpoint, at=batches, committed=batches + 3)
    assert is_told(checkpoint) == (True, True)
    assert answers("status", checkpoint)["grade"] == "damaged"
    assert str(answers("status", checkpoint)["next"]).startswith("lastgood plan")
    plan = answers("plan", checkpoint, "--output", tmp_path / "plan.json")  # it puts back what the mirror has
    assert (plan["guarantee"], len(plan["steps"])) == ("at_least_once", 6)


def test_every_verb_says_the_same_where_the_mirror_cannot_put_back_what_it_knows(tmp_path: Path) -> None:
    """As of a query with state, of which the older copy has that of its time."""
    checkpoint = tmp_path / "orders"
    put_older_copy_of(checkpoint, at=25, committed=28)
    for partition in (0, 1):
        place = checkpoint / f"state/0/{partition}"
        place.mkdir(parents=True)
        for version in range(1, 27):
            (place / f"{version}.delta").write_bytes(b"LZ4Block" + bytes(20))
    assert is_told(checkpoint) == (True, True)
    plan = answers("plan", checkpoint, "--output", tmp_path / "plan.json")
    assert (plan["guarantee"], plan["steps"]) == ("lossy", [])
    assert call("recover", checkpoint, "--output", tmp_path / "recover.json").returncode == 3


def test_what_a_recovery_has_taken_back_on_purpose_is_no_older_copy(tmp_path: Path) -> None:
    checkpoint, plan = tmp_path / "orders", tmp_path / "plan.json"
    put_older_copy_of(checkpoint, at=25, committed=28)
    before = call(
        "plan", checkpoint, "--goal", "reposition", "--batch", 20, "--accept", "loss,duplicates", "--output", plan
    )
    assert before.returncode == 0, before
    assert call("apply", plan, "--driver-is-dead").returncode == 0
    assert is_told(checkpoint) == (False, False)


def test_mirror_of_a_query_that_goes_on_while_it_is_looked_at_is_only_newer(tmp_path: Path) -> None:
    checkpoint = tmp_path / "orders"
    query = CheckpointBuilder(checkpoint)
    query.run(25)
    seen_before = gather(resolve_target(str(checkpoint)), batches=20)
    query.run(3)
    mirror_now(checkpoint)
    assert add_memory(seen_before).seen.committed_elsewhere == ()


def test_mirror_is_looked_through_from_the_day_of_the_newest_plan_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status looks at many checkpoints: years of a mirror are not unpacked for it."""
    checkpoint = tmp_path / "orders"
    query = CheckpointBuilder(checkpoint)
    query.run(25)
    mirror_now(checkpoint)
    folder = tmp_path / "orders.lastgood/mirror"
    long_ago = folder / "2025-01-01-w.jsonl.gz"
    shutil.copy(next(folder.glob("*.gz")), long_ago)
    opened: list[str] = []
    read = LocalStorage.read

    def note(storage: LocalStorage, file: object, **others: int) -> bytes | None:
        opened.append(str(file))
        return read(storage, file, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStorage, "read", note)
    assert call("status", checkpoint).returncode == 0
    files = {Path(name).name for name in opened if "/mirror/" in name}
    assert files == {each.name for each in folder.glob("2026*.gz")}


def test_mirror_that_cannot_be_read_is_named_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "orders"
    put_older_copy_of(checkpoint, at=25, committed=28)

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("it may not be read", subject="mirror")

    monkeypatch.setattr("lastgood.observe.recalled.read_mirror", refuse)
    status = answers("status", checkpoint)
    assert status["grade"] == "healthy"
    assert "whether the mirror knows later batches than the logs: it may not be read" in status["unknowns"]


def test_ledger_is_asked_for_what_was_committed_after_the_logs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, url = tmp_path / "lake/orders", f"sqlite:///{tmp_path}/ledger.db"
    query, copy = CheckpointBuilder(checkpoint), tmp_path / "copy"
    query.run(25)
    shutil.copytree(checkpoint, copy)
    query.run(3)
    with open_ledger(url) as ledger:
        fill_ledger(resolve_target(str(checkpoint)), ledger)
    monkeypatch.setenv("LASTGOOD_LEDGER", url)
    assert is_told(checkpoint) == (False, False)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    assert is_told(checkpoint) == (True, True)
    assert call("status", tmp_path / "lake").returncode == 1  # of many as of one
    assert answers("plan", checkpoint, "--output", tmp_path / "plan.json")["guarantee"] == "lossy"
    # What a recovery takes back on purpose is none, though a ledger forgets nothing.
    plan = tmp_path / "back.json"
    call("plan", checkpoint, "--goal", "reposition", "--batch", 20, "--accept", "loss,duplicates", "--output", plan)
    assert call("apply", plan, "--driver-is-dead").returncode == 0
    assert is_told(checkpoint) == (False, False)


def test_ledger_that_does_not_answer_is_named(tmp_path: Path) -> None:
    checkpoint = tmp_path / "orders"
    CheckpointBuilder(checkpoint).run(25)
    (tmp_path / "ledger.db").write_text("no database")
    env = {"LASTGOOD_LEDGER": f"sqlite:///{tmp_path}/ledger.db", "PATH": "/usr/bin"}
    status = json.loads(call("status", checkpoint, "--format", "json", env=env).stdout)
    assert status["grade"] == "healthy"
    assert any(line.startswith("whether the ledger ") for line in status["unknowns"])


def test_sinks_that_take_every_number_only_get_twice_what_was_read_in_between(tmp_path: Path) -> None:
    advice = AdviceFacts(batches=(RecordedBatch(batch_id=6, recorded_at_ms=1),))
    CheckpointBuilder(tmp_path / "orders").run(4)
    location = parse_location(str(tmp_path / "orders"))
    checkpoint = read_checkpoint(LocalStorage(), location, batches=ALL_BATCHES)
    takes_all = replace(silent(), skips_known=True)
    found = list(find_older(Observation(checkpoint, sinks=(takes_all,), advice=advice, now_ms=STARTED_MS)))
    assert [each.severity for each in found] == [Severity.WARNING]
    assert found[0].effect.endswith("what was read in between comes twice.")


def test_source_that_has_noted_down_several_batches_tells_that_the_plans_are_lost(tmp_path: Path) -> None:
    """Somebody emptied `offsets` and `commits`: a sink that goes by the numbers drops what a start reads again."""
    checkpoint, files = tmp_path / "orders", tmp_path / "in"
    files.mkdir()
    CheckpointBuilder(checkpoint, FileInput(f"file://{files}")).run(3)
    for number in range(3):
        (files / f"f{number:03d}.json").write_text("{}")
    for log in ("offsets", "commits"):
        for entry in (checkpoint / log).iterdir():
            entry.unlink()
    plan = answers("plan", checkpoint, "--output", tmp_path / "plan.json")
    assert (plan["guarantee"], plan["needs"]) == ("lossy", ["loss"])
    assert plan["rests_on"][0].startswith("sources/0/2 tells of earlier batches")
    assert "PLANS_LOST" in call("diagnose", checkpoint).stdout
    assert call("status", checkpoint).returncode == 1
    assert call("recover", checkpoint, "--output", tmp_path / "plan.json").returncode == 3


def test_source_that_has_noted_down_one_batch_died_before_its_first_plan(tmp_path: Path) -> None:
    checkpoint, files = tmp_path / "orders", tmp_path / "in"
    files.mkdir()
    CheckpointBuilder(checkpoint, FileInput(f"file://{files}")).run(1)
    (files / "f000.json").write_text("{}")
    (checkpoint / "offsets/0").unlink()
    (checkpoint / "commits/0").unlink()
    assert answers("plan", checkpoint, "--output", tmp_path / "plan.json")["guarantee"] == "at_least_once"
    assert "PLANS_LOST" not in call("diagnose", checkpoint).stdout
