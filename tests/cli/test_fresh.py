"""`plan --goal fresh`, as it is typed: what a lost checkpoint is seeded from, and what is said where nobody knows."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typed import call

from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
COLUMNS = "topic,partition,offset"
FRESH = ("--goal", "fresh", "--sink", "table")
TOPIC = ("--topic", "orders", "--kafka", "kafka.json")
PER_BATCH, BATCHES, LATEST = 5, 3, 40
TIME_MS = 1_795_290_600_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    partitions = {str(number): {"earliest": 0, "latest": LATEST} for number in range(2)}
    facts = {"bootstrap": "broker:9092", "captured_at_ms": TIME_MS, "topics": {"orders": {"partitions": partitions}}}
    Path("kafka.json").write_text(json.dumps(facts))


def write(batch: int, rows: Iterable[tuple[int, int]]) -> None:
    """One batch of the query, as a table shows it."""
    partitions, offsets = zip(*rows, strict=True)
    data = {
        "topic": ["orders"] * len(offsets),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }
    mark = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch, TIME_MS)])
    write_deltalake("table", pa.table(data), mode="append", commit_properties=mark)


def batch_rows(batch: int) -> list[tuple[int, int]]:
    return [(p, at) for p in (0, 1) for at in range(batch * PER_BATCH, (batch + 1) * PER_BATCH)]


def file_time(table: Path, version: int) -> int:
    """When the newest file was written that the table has had at a version."""
    times: list[int] = pa.table(DeltaTable(table, version=version).get_add_actions())["modification_time"].to_pylist()
    return max(times)


@pytest.fixture
def table() -> Path:
    """Three batches of the query, whose checkpoint is lost."""
    for batch in range(BATCHES):
        write(batch, batch_rows(batch))
    return Path("table")


@pytest.fixture
def torn() -> Path:
    """The same without offset 7 of partition 0."""
    for batch in range(BATCHES):
        write(batch, [row for row in batch_rows(batch) if row != (0, 7)])
    return Path("table")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return call(*words)


def answer(*words: object, code: int = 0) -> dict[str, Any]:
    done = run(*words, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def error(*words: object, code: int = 2) -> dict[str, Any]:
    told: dict[str, Any] = answer("plan", "chk", *words, code=code)["error"]
    return told


def test_rows_of_a_table_are_enough_to_seed_a_lost_checkpoint(table: Path) -> None:
    del table
    plan = answer("plan", "chk", *FRESH, "--offset-columns", COLUMNS, "-o", "plan.json")
    assert (plan["guarantee"], plan["needs"], plan["from_batch"]) == ("exactly_once", [], 0)
    assert plan["options"]["offsets"] == {"0": {"orders": {"0": 15, "1": 15}}}
    assert not Path("chk").exists()
    assert answer("apply", "plan.json", "--driver-is-dead")["state"] == "applied"
    assert Path("chk/sources/0/0").read_bytes() == b'\0v1\n{"orders":{"0":15,"1":15}}'
    assert answer("undo", plan["recovery"], "--driver-is-dead")["state"] == "undone"
    assert not [each for each in Path("chk").rglob("*") if each.is_file()]


def test_hole_is_told_with_its_price_and_the_other_ways(torn: Path) -> None:
    del torn
    done = run("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)
    assert done.returncode == 0, done.stderr
    assert "Guarantee at least once" in done.stdout
    assert "offsets are missing in orders-0 (from 7 on)" in done.stdout
    assert "written twice at most 8 offsets: orders/0 [7, 15)" in done.stdout
    assert "Needs     --accept duplicates" in done.stdout
    others = [line for line in done.stdout.splitlines() if line.startswith("Or ")]
    assert [line.split()[2] for line in others] == ["at", "lossy,"]
    assert "--earliest" in done.stdout
    assert """--at '{"orders": {"0": 15, "1": 15}}'""" in done.stdout


def test_rows_that_came_meanwhile_make_a_plan_stale(table: Path) -> None:
    del table
    answer("plan", "chk", *FRESH, "--offset-columns", COLUMNS, "-o", "plan.json")
    write(BATCHES, batch_rows(BATCHES))
    refused = answer("apply", "plan.json", "--driver-is-dead", code=52)["error"]
    assert (refused["condition"], refused["found"]) == ("PLAN_STALE", "version 3")
    assert not [each for each in Path("chk").rglob("*") if each.is_file()]


def test_another_query_that_writes_to_the_table_takes_the_exact_word_away(table: Path) -> None:
    del table
    other = CommitProperties(app_transactions=[Transaction("0b7e60a2-1111-4222-8333-944445555666", 4, TIME_MS)])
    data = {"topic": ["more"], "partition": pa.array([0], pa.int32()), "offset": pa.array([0], pa.int64())}
    write_deltalake("table", pa.table(data), mode="append", commit_properties=other)
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)
    assert plan["guarantee"] == "at_least_once"
    assert any("others write to" in line for line in plan["rests_on"])


def test_rows_of_one_topic_need_its_name_where_no_log_tells_it(table: Path) -> None:
    del table
    asked = error(*FRESH, "--offset-columns", "partition,offset")
    assert (asked["condition"], asked["expected"]) == (
        "OFFSET_COLUMNS_INVALID",
        "--topic NAME, or TOPIC,PARTITION,OFFSET",
    )
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", "partition,offset")
    assert plan["guarantee"] == "exactly_once"


def test_mirror_comes_first_and_what_follows_is_named_where_there_is_none(table: Path) -> None:
    del table
    refused = error(*FRESH, *TOPIC, code=57)
    assert refused["condition"] == "REPAIR_REFUSED"
    assert "--offset-columns" in refused["expected"]
    CheckpointBuilder(Path("chk")).run(BATCHES)
    assert run("backup", "create", "chk").returncode == 0
    shutil.rmtree("chk")
    plan = answer("plan", "chk", *FRESH)
    assert (plan["options"]["chosen"], plan["guarantee"]) == ("the mirror", "exactly_once")


def test_ledger_knows_where_the_batch_ended_that_the_sink_shows(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del table
    CheckpointBuilder(Path("chk")).run(BATCHES)
    assert run("backup", "create", "chk", "--ledger", "sqlite:///ledger.db").returncode == 0
    shutil.rmtree("chk")
    shutil.rmtree("chk.lastgood")
    monkeypatch.setenv("LASTGOOD_LEDGER", "sqlite:///ledger.db")
    for words in ((), ("--at-sink",)):
        plan = answer("plan", "chk", *FRESH, *words)
        assert plan["guarantee"] == "exactly_once"
        assert plan["options"]["offsets"] == {"0": {"orders": {"0": 15, "1": 15}}}
        assert plan["options"]["chosen"] == "the end of batch 2, the newest that the sink shows"


def test_earliest_is_lossless_only_while_kafka_has_everything(table: Path) -> None:
    del table
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--earliest")
    assert (plan["guarantee"], plan["needs"]) == ("at_least_once", ["duplicates"])
    assert plan["sources"][0]["duplicated"] == {"orders": {"0": [[0, LATEST]], "1": [[0, LATEST]]}}
    Path("kafka.json").write_text(Path("kafka.json").read_text().replace('"earliest": 0', '"earliest": 9', 1))
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--earliest")
    assert (plan["guarantee"], plan["needs"]) == ("lossy", ["loss", "duplicates"])
    assert plan["sources"][0]["lost"] == {"orders": {"0": [[0, 9]]}}


def test_time_of_the_last_batch_but_one_is_where_kafka_is_asked(table: Path) -> None:
    written_ms = DeltaTable(table).history()[1]["timestamp"]
    facts = json.loads(Path("kafka.json").read_text())
    facts["first_at"] = {str(written_ms - 60_000): {"orders": {"0": {"offset": 6}, "1": {}}}}
    Path("kafka.json").write_text(json.dumps(facts))
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--at-last-commit", "--margin", "1m")
    assert (plan["guarantee"], plan["options"]["offsets"]) == (
        "at_least_once",
        {"0": {"orders": {"0": 6, "1": LATEST}}},
    )
    assert plan["sources"][0]["duplicated"] == {"orders": {"0": [[6, LATEST]]}}
    assert plan["sources"][0]["bound"]
    assert plan["rests_on"][0].startswith(f"the time of version 1 of {table.resolve()}, {written_ms} ms")


def test_topic_that_is_younger_than_the_rows_is_not_trusted(table: Path) -> None:
    after_ms = DeltaTable(table).history()[0]["timestamp"] + 300_000
    facts = json.loads(Path("kafka.json").read_text())
    facts["first_at"] = {str(after_ms): {"orders": {"0": {"offset": 14}, "1": {"offset": 15}}}}
    Path("kafka.json").write_text(json.dumps(facts))
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)
    assert (plan["guarantee"], plan["needs"]) == ("lossy", ["loss", "duplicates"])
    assert plan["options"]["offsets"] == {"0": {"orders": {"0": 0, "1": 0}}}
    assert any("orders looks as if it was created again" in line for line in plan["rests_on"])


@pytest.mark.parametrize(
    ("file", "later_ms", "aged_ms", "told"),
    [
        (2, 1, 0, "looks as if it was created again"),
        (0, 1, 0, "looks as if it was created again"),
        (0, 1, 300_001, "was created again earlier"),
        (0, 0, 0, None),
    ],
    ids=["younger than all rows", "younger than some", "younger than some of long ago", "as old as the first"],
)
def test_rows_that_are_older_than_the_oldest_record_are_of_another_topic(
    file: int, later_ms: int, aged_ms: int, told: str | None, table: Path
) -> None:
    times = [file_time(table, version) for version in range(BATCHES)]
    log = table / f"_delta_log/{BATCHES - 1:020d}.json"
    log.write_text(
        log.read_text().replace(f'"modificationTime":{times[-1]}', f'"modificationTime":{times[-1] + aged_ms}')
    )
    facts = json.loads(Path("kafka.json").read_text())
    facts["first_at"] = {"0": {"orders": {"1": {"offset": 0, "timestamp_ms": times[file] + later_ms}}}}
    Path("kafka.json").write_text(json.dumps(facts))
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)
    assert plan["guarantee"] == ("exactly_once" if told is None else "lossy")
    lines = [line for line in plan["rests_on"] if "was created again" in line]
    assert [told in line for line in lines if told is not None] == [True] * (told is not None)
    is_anew = told is not None and not aged_ms
    assert plan["options"]["offsets"] == {"0": {"orders": dict.fromkeys("01", 0 if is_anew else 15)}}


def test_broker_that_does_not_answer_leaves_nothing_exact(table: Path) -> None:
    del table
    words = ("--topic", "orders", "--kafka", "127.0.0.1:1", "--offset-columns", COLUMNS)
    plan = answer("plan", "chk", *FRESH, *words)
    assert (plan["guarantee"], plan["needs"]) == ("lossy", ["loss"])
    assert any(
        "Kafka does not tell whether the topics are still those of the rows" in each for each in plan["rests_on"]
    )


def test_records_that_came_after_all_rows_are_unread(table: Path) -> None:
    facts = json.loads(Path("kafka.json").read_text())
    facts["first_at"] = {"0": {"orders": {"1": {"offset": 15, "timestamp_ms": file_time(table, 2) + 1}}}}
    Path("kafka.json").write_text(json.dumps(facts))
    assert answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)["guarantee"] == "exactly_once"


def test_topic_that_ends_below_its_rows_is_read_from_its_beginning(table: Path) -> None:
    del table
    Path("kafka.json").write_text(Path("kafka.json").read_text().replace(f'"latest": {LATEST}', '"latest": 9', 1))
    plan = answer("plan", "chk", *FRESH, *TOPIC, "--offset-columns", COLUMNS)
    assert (plan["guarantee"], plan["needs"]) == ("lossy", ["loss", "duplicates"])
    assert plan["options"]["offsets"] == {"0": {"orders": {"0": 0, "1": 0}}}
    assert any("partition 0 ends below rows of it" in line for line in plan["rests_on"])
    assert not any("never deleted and created again" in line for line in plan["rests_on"])


def test_time_of_the_only_batch_tells_nothing() -> None:
    write(0, batch_rows(0))
    told = error(*FRESH, *TOPIC, "--at-last-commit")
    assert told["found"] == "1 versions that wrote rows, by 1 writers"
    assert "--earliest" in told["expected"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--goal", "fresh", "--offset-columns", COLUMNS), "--sink LOCATION of one Delta table"),
        (("--goal", "fresh", "--at-last-commit"), "--topic NAME and --kafka SERVERS"),
        (("--goal", "fresh", "--earliest"), "--topic NAME and --kafka SERVERS"),
        ((*FRESH, "--offset-columns", COLUMNS, "--earliest"), None),
        ((*FRESH, "--offset-columns", "a,b,c,d"), "TOPIC,PARTITION,OFFSET, or PARTITION,OFFSET where all rows"),
        ((*FRESH, "--offset-columns", "topic,part,offset"), "part of the type"),
        ((*FRESH, "--kafka", "kafka.json", "--at-last-commit"), "a broker that can be asked"),
        ((*FRESH, "--at-sink"), "--sink LOCATION, one that shows batches of this query"),
        ((*FRESH, "--margin", "5m", "--earliest"), "--at-last-commit"),
        (("--goal", "reposition", "--at-sink"), None),
    ],
)
def test_what_is_missing_is_said(table: Path, words: tuple[str, ...], expected: str | None) -> None:
    del table
    if "reposition" in words:
        CheckpointBuilder(Path("chk")).run(BATCHES)
    told = error(*words)
    assert told["found"] or told["expected"]
    if expected is not None:
        assert expected in told["expected"]


def test_help_teaches_where_a_fresh_start_begins() -> None:
    done = run("plan", "--help")
    for option in ("--at-sink", "--offset-columns", "--at-last-commit", "--earliest"):
        assert option in done.stdout
    assert "in the order in which it can be trusted" in done.stdout


VIA = ("--via", "app-config", "--start-file", "start.json")


@pytest.fixture
def checkpoint(table: Path) -> Path:
    """The same query, whose checkpoint is there and is to be left behind."""
    del table
    CheckpointBuilder(Path("chk")).run(BATCHES)
    return Path("chk")


def test_application_is_told_where_to_start_and_the_checkpoint_is_emptied(checkpoint: Path) -> None:
    before = {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()}
    plan = answer("plan", "chk", *FRESH, *VIA, "-o", "plan.json")
    assert (plan["guarantee"], plan["from_batch"], plan["promise"]["outcome"]) == ("exactly_once", 0, "starts")
    assert any(f"takes its startingOffsets from {Path.cwd()}/start.json" in line for line in plan["rests_on"])
    assert plan["steps"][-1]["do"].startswith(f"write {Path.cwd()}/start.json: it starts at the end of batch 2")
    assert answer("apply", "plan.json", "--driver-is-dead")["state"] == "applied"
    assert Path("start.json").read_text() == '{"orders":{"0":15,"1":15}}\n'
    assert not [each for each in checkpoint.rglob("*") if each.is_file()]
    assert answer("undo", plan["recovery"], "--driver-is-dead")["state"] == "undone"
    assert {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()} == before
    assert not Path("start.json").exists()


@pytest.mark.parametrize(
    "chosen",
    [(), ("--at-sink",), ("--stable-lag", "1", "--accept", "duplicates")],
    ids=["nothing", "sink", "stable lag"],
)
def test_start_that_is_asked_for_once_more_before_a_batch_is_planned_is_told_as_it_was(
    checkpoint: Path, chosen: tuple[str, ...]
) -> None:
    """As cron would; no log, and no mirror, is left that could tell where CURRENT-1 was."""
    words = (*FRESH, *VIA, *chosen, "--driver-is-dead")
    first = answer("recover", "chk", *words)
    said = Path("start.json").read_bytes()
    assert (first["decision"], bool(first["steps"]), any(checkpoint.glob("offsets/*"))) == ("start", True, False)
    for _ in range(2):
        again = answer("recover", "chk", *words)
        assert (again["decision"], again["steps"], again["guarantee"]) == ("start", [], first["guarantee"])
        assert Path("start.json").read_bytes() == said
    Path("start.json").write_text('{"orders":{"0":1,"1":1}}')
    assert run("recover", "chk", *words).returncode != 0
    assert Path("start.json").read_text() == '{"orders":{"0":1,"1":1}}'


@pytest.mark.parametrize(
    ("form", "key", "line"),
    [
        ("properties", "orders.start", 'orders.start={"orders":{"0":15,"1":15}}\n'),
        ("spark-defaults", "spark.orders.start", 'spark.orders.start {"orders":{"0":15,"1":15}}\n'),
    ],
)
def test_one_line_of_a_file_says_where_to_start_and_the_others_stay(
    checkpoint: Path, form: str, key: str, line: str
) -> None:
    del checkpoint
    was = f"# mine\nother = 1\n{key} : \\\n   {{old}}\nlast=\\u00e9"
    Path("app.conf").write_text(was)
    words = ("--via", "app-config", "--start-file", "app.conf", "--start-form", form, "--start-key", key)
    plan = answer("plan", "chk", *FRESH, *words, "-o", "plan.json")
    assert answer("apply", "plan.json", "--driver-is-dead")["state"] == "applied"
    assert Path("app.conf").read_text() == f"# mine\nother = 1\nlast=\\u00e9\n{line}"
    assert answer("undo", plan["recovery"], "--driver-is-dead")["state"] == "undone"
    assert Path("app.conf").read_text() == was


def test_plan_is_stale_once_what_the_application_is_told_to_read_has_expired(checkpoint: Path) -> None:
    del checkpoint
    facts = ("--kafka", serving(0))
    plan = answer("plan", "chk", *FRESH, *VIA, *facts, "-o", "plan.json")
    assert (plan["options"]["left_out"], plan["options"]["starts_at"]["orders"]["0"]) == ([], 15)
    serving(16)
    stale = answer("apply", "plan.json", "--driver-is-dead", code=52)["error"]
    assert (stale["condition"], stale["found"]) == ("PLAN_STALE", "orders-0 15..16 expired, orders-1 15..16 expired")


def serving(earliest: int) -> str:
    """A file of facts: from where on Kafka has the topic."""
    parts = {str(n): {"earliest": earliest, "latest": 99} for n in range(2)}
    told = {"bootstrap": "broker:9092", "captured_at_ms": 1, "topics": {"orders": {"partitions": parts}}}
    Path("kafka.json").write_text(json.dumps(told))
    return "kafka.json"


def test_file_that_was_changed_since_makes_a_plan_stale(checkpoint: Path) -> None:
    before = {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()}
    answer("plan", "chk", *FRESH, *VIA, "-o", "plan.json")
    Path("start.json").write_text("{}")
    assert answer("apply", "plan.json", "--driver-is-dead", code=52)["error"]["condition"] == "PLAN_STALE"
    assert {each: each.read_bytes() for each in checkpoint.rglob("*") if each.is_file()} == before
    assert Path("start.json").read_text() == "{}"


def test_file_sink_goes_by_numbers_and_is_refused(checkpoint: Path) -> None:
    log = Path("files/_spark_metadata")
    log.mkdir(parents=True)
    for batch in range(BATCHES):
        (log / str(batch)).write_text("v1")
    told = error("--goal", "fresh", "--sink", "files", "--batch", "2", *VIA, code=57)
    assert "goes by numbers" in told["sentence"]
    assert told["next"] == f"lastgood plan {checkpoint.resolve()} --goal fresh --batch 2 --sink files"
    assert answer(*shlex.split(told["next"])[1:])["goal"] == "fresh"


def test_sink_that_nobody_can_ask_needs_a_word_of_a_person(checkpoint: Path) -> None:
    del checkpoint
    told = error("--goal", "fresh", "--batch", "2", *VIA, code=57)
    assert "--takes-any-number" in told["expected"]
    plan = answer("plan", "chk", "--goal", "fresh", "--batch", "2", *VIA, "--takes-any-number")
    assert (plan["guarantee"], plan["needs"], plan["from_batch"]) == ("at_least_once", ["duplicates"], 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--start-file", "start.json"), "--via app-config"),
        (("--via", "app-config"), "--start-file FILE"),
        ((*VIA, "--start-key", "k"), "no key"),
        ((*VIA, "--start-form", "properties"), "the key under which it stands"),
        ((*VIA, "--start-form", "spark-defaults", "--start-key", "k"), "begins with spark."),
        (("--via", "app-config", "--start-file", "chk/start.json"), "a file of the application's configuration"),
        (("--via", "app-config", "--start-file", "app.py"), "--start-form properties"),
        (("--via", "app-config", "--start-file", "table"), "a file"),
    ],
)
def test_start_file_that_cannot_be_meant_gets_a_clear_error(
    checkpoint: Path, words: tuple[str, ...], expected: str
) -> None:
    del checkpoint
    Path("app.py").write_text("print('mine')\n")
    assert expected in error(*FRESH, *words)["expected"]
    assert Path("app.py").read_text() == "print('mine')\n"


@pytest.fixture
def left(checkpoint: Path) -> str:
    """The checkpoint with its mirror, left behind; gives the id of the recovery."""
    assert run("backup", "create", "chk").returncode == 0
    plan = answer("plan", "chk", *FRESH, *VIA, "-o", "plan.json")
    assert answer("apply", "plan.json", "--driver-is-dead")["state"] == "applied"
    recovery: str = plan["recovery"]
    assert not [each for each in checkpoint.rglob("*") if each.is_file()]
    return recovery


@pytest.mark.parametrize("is_gone", [False, True], ids=["empty-folder", "no-folder"])
@pytest.mark.parametrize("words", [(), ("--sink", "table"), ("--sink", "table", "--kafka", "kafka.json")])
def test_checkpoint_that_was_left_behind_is_known_as_that(left: str, words: tuple[str, ...], *, is_gone: bool) -> None:
    if is_gone:  # as in an object store, which has no empty folders
        shutil.rmtree("chk")
    told = answer("recover", "chk", *words)
    assert (told["decision"], told["steps"], told["options"]["left_by"]) == ("start", [], left)
    assert f"recovery {left} left the checkpoint behind on purpose" in told["because"]
    assert told["guarantee"] == ("exactly_once" if words else "at_least_once")
    assert (told["warning"] is None, told["options"]["has_begun"]) == (bool(words), False if words else None)
    assert told["options"]["starts_at"] == told["options"]["offsets"]["0"] == {"orders": {"0": 15, "1": 15}}
    status = answer("status", "chk", *words)
    assert (status["grade"], status["problems"], status["left_behind"]["recovery"]) == ("empty", [], left)
    report = answer("diagnose", "chk", *words)
    assert report["restart"]["outcome"] == "starts"
    found = {each["condition"]: each for each in report["findings"]}
    assert found["CHECKPOINT_LEFT_BEHIND"]["evidence"]["recovery"] == left
    assert status["next"].startswith(f"lastgood recover {Path.cwd() / 'chk'}")
    assert status["next"] == found["CHECKPOINT_LEFT_BEHIND"]["next"]
    assert not found.keys() & {"SINK_WOULD_SKIP", "SINK_KNOWS_OTHER_QUERY", "SINK_UNKNOWN"}


def test_who_stands_in_another_folder_knows_it_too(left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert answer("recover", tmp_path / "chk", "--sink", tmp_path / "table")["options"]["left_by"] == left


def test_undo_of_what_was_left_behind_gives_it_back_as_it_was(left: str) -> None:
    assert answer("undo", left, "--driver-is-dead")["state"] == "undone"
    told = answer("recover", "chk", "--sink", "table")
    assert (told["decision"], told["promise"]["batch"]) == ("start", BATCHES)
    assert answer("status", "chk")["left_behind"] is None


def test_start_that_failed_before_its_first_batch_leaves_it_as_it_is(left: str) -> None:
    CheckpointBuilder(Path("chk"), query_id="4f0e60a2-1111-4222-8333-944445555666")  # Spark writes `metadata` first
    told = answer("recover", "chk", "--sink", "table")
    assert (told["decision"], told["guarantee"], told["options"]["left_by"]) == ("start", "exactly_once", left)


def test_what_takes_it_back_is_printed_with_the_file_that_it_wrote(left: str) -> None:
    told = {each["condition"]: each for each in answer("diagnose", "chk")["findings"]}
    printed = [answer("status", "chk")["left_behind"]["undo"], told["CHECKPOINT_LEFT_BEHIND"]["evidence"]["undo"]]
    begin = f"lastgood undo {left} --start-file {Path.cwd() / 'start.json'} --driver-is-dead --checkpoint "
    assert [each.startswith(begin) for each in printed] == [True, True]


def test_query_that_has_begun_since_and_is_lost_is_no_first_start(left: str) -> None:
    other = CommitProperties(app_transactions=[Transaction("4f0e60a2-1111-4222-8333-944445555666", 3, TIME_MS)])
    data = {"topic": ["orders"], "partition": pa.array([0], pa.int32()), "offset": pa.array([15], pa.int64())}
    write_deltalake("table", pa.table(data), mode="append", commit_properties=other)
    told = answer("recover", "chk", "--sink", "table", code=3)
    assert "a query has begun since" in told["because"]
    found = answer("diagnose", "chk", "--sink", "table", code=1)["findings"][0]
    assert (found["condition"], found["severity"]) == ("CHECKPOINT_LEFT_BEHIND", "error")
    assert left == found["evidence"]["recovery"]


def test_new_query_that_is_lost_comes_back_from_the_mirror(left: str) -> None:
    del left
    CheckpointBuilder(Path("chk"), query_id="4f0e60a2-1111-4222-8333-944445555666", started_ms=TIME_MS).run(2)
    assert run("backup", "create", "chk").returncode == 0
    shutil.rmtree("chk")
    told = answer("recover", "chk", "--driver-is-dead", "--accept", "duplicates")
    assert (told["decision"], told["promise"]["batch"]) == ("start", 2)
    assert answer("status", "chk")["left_behind"] is None


def test_plan_that_is_not_understood_is_no_traceback(left: str) -> None:
    file = Path(f"chk.lastgood/recoveries/{left}/plan.json")
    told = json.loads(file.read_text())
    told["options"]["start_file"]["form"] = "yaml"
    del told["checksum"]
    whole = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    file.write_text(json.dumps({**told, "checksum": hashlib.sha256(whole).hexdigest()}))
    assert answer("recover", "chk", code=50)["error"]["condition"] == "PLAN_INVALID"
    assert answer("status", "chk", "--sink", "table", code=1)["left_behind"] is None


def test_what_kafka_has_deleted_since_is_not_started_at(left: str) -> None:
    del left
    told = answer("recover", "chk", "--sink", "table", "--kafka", serving(16), code=3)
    assert "records have expired since the checkpoint was left behind" in told["because"]


@pytest.fixture
def interrupted(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody who may write beside the checkpoint has put a recovery there, as if it was interrupted: its folder."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(Path.cwd() / "other-machine"))
        plan = answer("plan", "chk", *FRESH, *VIA, "-o", "plan.json")
    folder = Path(f"{checkpoint}.lastgood/recoveries/{plan['recovery']}")
    folder.mkdir(parents=True)
    Path("plan.json").rename(folder / "plan.json")
    (folder / "begun.json").write_text('{"at_ms": 1, "lease": 1, "proof": "somebody says so"}')
    return folder


def test_recovery_out_of_the_lake_writes_no_file_that_nobody_has_named(interrupted: Path) -> None:
    told = answer("recover", "chk", "--driver-is-dead", code=3)
    assert told["error"]["condition"] == "START_FILE_NOT_NAMED"
    assert told["error"]["subject"] == str(Path.cwd() / "start.json")
    assert error_of("apply", interrupted / "plan.json", "--driver-is-dead")["condition"] == "START_FILE_NOT_NAMED"
    words = ("undo", interrupted.name, "--checkpoint", "chk", "--driver-is-dead")
    assert error_of(*words)["condition"] == "START_FILE_NOT_NAMED"
    assert not Path("start.json").exists()
    assert Path("chk/offsets/0").exists()


def error_of(*words: object) -> dict[str, Any]:
    told: dict[str, Any] = answer(*words, code=2)["error"]
    return told


@pytest.mark.parametrize("by", ["option", "configuration", "apply"])
def test_recovery_out_of_the_lake_is_finished_where_its_file_is_named_here(interrupted: Path, by: str) -> None:
    words: tuple[object, ...] = ("recover", "chk", "--driver-is-dead")
    if by == "configuration":
        policy = 'via = "app-config"\nstart_file = "start.json"'
        pipeline = f'command = ["x"]\ncheckpoint = "{Path.cwd()}/chk"\nsink = "delta:{Path.cwd()}/table"'
        Path("lastgood.toml").write_text(f"[pipeline.orders]\n{pipeline}\n[pipeline.orders.policy]\n{policy}\n")
    elif by == "option":
        words = (*words, *FRESH, *VIA)
    else:
        words = ("apply", interrupted / "plan.json", "--driver-is-dead", "--start-file", "start.json")
        words = (*words, "--sink", "table")
    assert answer(*words)["state"] == "applied"
    assert json.loads(Path("start.json").read_text()) == {"orders": {"0": 15, "1": 15}}


def test_who_takes_it_back_on_another_machine_names_the_file(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "other-machine"))
    words = ("undo", left, "--checkpoint", "chk", "--driver-is-dead")
    assert error_of(*words)["condition"] == "START_FILE_NOT_NAMED"
    assert error_of(*words, "--start-file", "other.json")["condition"] == "START_FILE_NOT_NAMED"
    assert error_of(*words, "--start-file", "start.json")["condition"] == "SINK_NOT_NAMED"
    assert answer(*words, "--start-file", "start.json", "--sink", "table")["state"] == "undone"
    assert not Path("start.json").exists()


CONFIG = """
[pipeline.orders]
command    = ["true"]
checkpoint = "chk"
sink       = "delta:table"
[pipeline.orders.policy]
via        = "app-config"
start_file = "app.properties"
start_form = "properties"
start_key  = "orders.start"
"""


def test_policy_names_the_file_for_recover_and_for_plan(checkpoint: Path) -> None:
    Path("lastgood.toml").write_text(CONFIG)
    Path("app.properties").write_text("mine = 1\n")
    plan = answer("plan", "orders", "--goal", "fresh", "--via", "app-config")
    assert plan["options"]["start_file"]["location"] == str(Path.cwd() / "app.properties")
    told = answer("recover", "orders", "--goal", "fresh", "--driver-is-dead")
    assert (told["decision"], told["guarantee"]) == ("start", "exactly_once")
    line = 'orders.start={"orders":{"0":15,"1":15}}\n'
    assert Path("app.properties").read_text() == f"mine = 1\n{line}"
    assert not [each for each in checkpoint.rglob("*") if each.is_file()]
    told = answer("recover", "orders")
    assert "left the checkpoint behind on purpose" in told["because"]
    assert not any("was not named" in each for each in told["rests_on"])
    Path("app.properties").write_text("mine = 1\n")
    told = answer("recover", "orders", code=3)
    assert "the file does not say any more" in told["because"]
    assert "--start-key orders.start" in told["error"]["next"]
