from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from status_facts import NOW, file_sink, kafka

from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade
from lastgood.errors import StorageError
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.below import Reach, find_checkpoints_below, is_root
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import CheckpointMissingError
from lastgood.operations import status as operation
from lastgood.operations.diagnose import diagnose
from lastgood.operations.status import list_statuses_below, status
from lastgood.query.kafka import Losing
from lastgood.query.sinks import Agreement
from lastgood.recovery.plans import make_plan
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput
from lastgood.testing.storage import RefusingStorage

CASES = Path(__file__).parents[2] / "corpus" / "cases"
HOUR_MS = 3_600_000
UNASKED = (
    "source 0: what Kafka still serves was not asked, nor whether its topics are those that were read, nor whether it"
    " is Event Hubs, which looks the same (--kafka)"
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def test_a_query_between_two_batches_is_healthy(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    found = status(resolve_target(str(checkpoint)))
    assert (found.grade, found.last_good, found.problems) == (Grade.HEALTHY, 2, ())
    assert found.next_offsets() == {"0": {"orders": {0: 15, 1: 15}}}
    assert found.to_json() == {
        "checkpoint": str(checkpoint),
        "grade": "healthy",
        "query_id": QUERY_ID,
        "mode": "micro_batch",
        "stateful": False,
        "last_planned": 2,
        "last_committed": 2,
        "last_loadable_state": None,
        "last_good": 2,
        "time_ms": STARTED_MS + 2000,
        "restart": "resumes",
        "unknowns": [
            UNASKED,
            "whether the sink holds what is committed, and no more: none was asked (--sink)",
        ],
        "problems": [],
        "warnings": [],
        "findings": [],
        "mirrored": None,
        "left_behind": None,
        "kafka": None,
        "sinks": [],
        "last_incident": None,
        "failed": None,
        "outage": None,
        "next": f"lastgood inspect {checkpoint}",
        "undo": None,
    }


def test_a_planned_batch_is_in_flight(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.plan()
    first = status(resolve_target(str(checkpoint)))
    assert (first.grade, first.last_good) == (Grade.IN_FLIGHT, None)
    query.commit()
    query.plan()
    assert (status(resolve_target(str(checkpoint))).grade, status(resolve_target(str(checkpoint))).last_good) == (
        Grade.IN_FLIGHT,
        0,
    )


def test_a_query_that_has_planned_nothing_is_empty(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint)
    assert status(resolve_target(str(checkpoint))).grade is Grade.EMPTY
    for name in ("offsets", "commits", "sources/0", "sources"):
        (checkpoint / name).rmdir()
    assert status(resolve_target(str(checkpoint))).grade is Grade.EMPTY


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda root: (root / "offsets/2").write_bytes(b""), "OFFSET_LOG_DAMAGED offsets/2"),
        (lambda root: (root / "offsets/1").unlink(), "OFFSET_LOG_GAP offsets/1"),
        (lambda root: (root / "offsets/2").unlink(), "COMMITS_AHEAD commits/2"),
        (lambda root: (root / "metadata").unlink(), "QUERY_ID_LOST metadata"),
        (lambda root: (root / "metadata").write_bytes(b"x"), "QUERY_ID_LOST metadata"),
        (lambda root: (root / "commits/2").write_bytes(b""), "COMMIT_LOG_DAMAGED commits/2"),
        (lambda root: (root / "sources/0/2").unlink(), "SOURCE_LOG_DAMAGED sources/0/2"),
    ],
)
def test_what_a_restart_reads_and_is_not_whole_is_damage(damage: object, problem: str, checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, files(checkpoint.parent, 3)).run(3)
    assert callable(damage)
    damage(checkpoint)
    found = status(resolve_target(str(checkpoint)))
    assert found.grade is Grade.DAMAGED
    assert [each.partition(": ")[0] for each in found.problems] == [problem]
    (finding,) = (
        each for each in diagnose(resolve_target(str(checkpoint))).findings if each.severity is Severity.ERROR
    )
    assert found.problems == (f"{problem}: {finding.effect}",)
    assert found.to_json()["findings"][0] == finding.to_json()


def test_file_that_came_again_is_told_as_diagnose_tells_it(checkpoint: Path) -> None:
    """No batch reads it, or one reads it once more: a plan is not exact then."""
    CheckpointBuilder(checkpoint, files(checkpoint.parent, 2)).run(2)
    (checkpoint.parent / "f001.json").write_text("{}")
    target = resolve_target(str(checkpoint))
    found, report = status(target), diagnose(target)
    assert found.grade is Grade.DOUBTFUL  # what is new in it is read by no batch, and the plan to go on is lossy
    (finding,) = (each for each in report.findings if each.condition.name == "SOURCE_FILE_IGNORED")
    assert found.to_json()["findings"] == [finding.to_json()]
    assert found.to_json()["unknowns"] == list(report.restart.unknowns)
    assert [each.split()[0] for each in found.to_json()["warnings"]] == ["SOURCE_FILE_IGNORED"]


def test_file_that_came_too_late_is_among_what_is_not_known(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, files(checkpoint.parent, 2)).run(2)
    late = checkpoint.parent / "late.json"
    late.touch()
    os.utime(late, (1_780_000_000, 1_780_000_000))
    target = resolve_target(str(checkpoint))
    told = [each for each in status(target).to_json()["unknowns"] if "late.json" in each]
    assert len(told) == 1
    assert "is not for source 0, whose log does not name what lies there" in told[0]
    assert told[0] in diagnose(target).restart.unknowns
    assert told[0].replace("whether", "the assumption that", 1) in make_plan(target).rests_on


def files(folder: Path, count: int) -> FileInput:
    """Input files that are there, as they were when they were read."""
    for number in range(count):
        file, at = folder / f"f{number:03d}.json", 1_790_000_000 + number
        file.write_text("{}")
        os.utime(file, (at, at))
    return FileInput(folder.as_uri())


def test_files_that_no_batch_has_read_and_that_are_gone_are_lost(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, files(checkpoint.parent, 1)).plan()
    assert status(resolve_target(str(checkpoint))).grade is Grade.IN_FLIGHT
    (checkpoint.parent / "f000.json").unlink()
    found = status(resolve_target(str(checkpoint)))
    assert (found.grade, found.problems[0].split()[0]) == (Grade.LOSING, "SOURCE_FILES_GONE")


@pytest.mark.parametrize(
    ("damage", "good"),
    [
        (lambda root: (root / "offsets/5").write_bytes(b""), 4),
        (lambda root: (root / "offsets/5").unlink(), 4),
        (lambda root: (root / "commits/5").write_bytes(b""), 4),
        (lambda root: (root / "commits/6").write_bytes(b"v1\n{}"), 5),
        (lambda root: shutil.rmtree(root / "offsets"), None),
        (lambda root: shutil.rmtree(root / "commits"), None),
    ],
)
def test_only_a_batch_that_both_logs_still_tell_of_is_good(damage: object, good: int | None, checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(6)
    assert callable(damage)
    damage(checkpoint)
    assert status(resolve_target(str(checkpoint))).last_good == good


def test_what_no_restart_reads_is_no_damage(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(9)
    (checkpoint / "offsets/3").write_bytes(b"")
    (checkpoint / "commits/4").unlink()
    assert status(resolve_target(str(checkpoint))).grade is Grade.HEALTHY


def test_a_batch_whose_state_cannot_be_loaded_is_not_good(tmp_path: Path) -> None:
    case = Path(shutil.copytree(CASES / "3.5-agg-hdfs-healthy" / "checkpoint", tmp_path / "case"))
    healthy = status(resolve_target(str(case)))
    assert (healthy.grade, healthy.last_good) == (Grade.HEALTHY, 7)
    (case / "state/0/0/8.delta").unlink()
    broken = status(resolve_target(str(case)))
    assert (broken.grade, broken.last_good) == (Grade.DAMAGED, 6)
    assert broken.problems[0].startswith("STATE_FILE_MISSING state/0/0/8.delta: ")
    for file in (case / "state/0/0").glob("*.delta"):
        file.unlink()
    for file in (case / "state/0/0").glob("*.snapshot"):
        file.unlink()
    assert status(resolve_target(str(case))).last_good is None


@pytest.mark.parametrize(
    ("prepare", "found"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), "an empty folder"),
        (lambda folder: (folder / "x").mkdir(parents=True), "a folder without offsets and commits"),
    ],
)
def test_a_place_without_a_checkpoint_is_told(prepare: object, found: str, checkpoint: Path) -> None:
    assert callable(prepare)
    prepare(checkpoint)
    with pytest.raises(CheckpointMissingError) as missing:
        status(resolve_target(str(checkpoint)))
    assert missing.value.found == found


def test_a_storage_that_does_not_answer_is_an_error(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointBuilder(checkpoint).run(1)
    refuse(monkeypatch, checkpoint / "commits")
    with pytest.raises(StorageError):
        status(resolve_target(str(checkpoint)))


def refuse(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    storage = RefusingStorage(parse_location(str(folder)))

    def open_storage(location: Location) -> RefusingStorage:
        return storage

    monkeypatch.setattr(operation, "open_storage", open_storage)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A session-wide checkpoint root, with everything that may lie about in one."""
    root = tmp_path / "chk"
    CheckpointBuilder(root / "orders").run(3)
    CheckpointBuilder(root / "team/a/clicks").plan()
    CheckpointBuilder(root / "team/new")
    CheckpointBuilder(root / "team/broken").run(2)
    (root / "team/broken/offsets/1").write_bytes(b"")
    CheckpointBuilder(root / "orders.lastgood/copy").run(1)
    CheckpointBuilder(root / ".Trash/query").run(1)
    CheckpointBuilder(root / ".snapshot/query").run(1)
    CheckpointBuilder(root / "table/_delta_log/query").run(1)
    CheckpointBuilder(root / "orders/nested").run(1)
    (root / "notes.txt").write_text("x")
    (root / "a b [c]").mkdir()
    return root


def test_every_checkpoint_below_a_folder_is_found_worst_first(root: Path) -> None:
    seen: list[int] = []
    found = list_statuses_below(resolve_target(str(root)), progress=seen.append)
    assert [(str(each.location)[len(str(root)) + 1 :], each.grade) for each in found] == [
        ("team/broken", Grade.DAMAGED),
        ("team/new", Grade.EMPTY),
        ("team/a/clicks", Grade.IN_FLIGHT),
        ("orders", Grade.HEALTHY),
    ]
    assert seen == [1, 2, 3, 4]


def test_a_checkpoint_that_cannot_be_read_is_one_line_of_many(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, root / "orders/commits")
    found = {each.location.name: each for each in list_statuses_below(resolve_target(str(root)))}
    assert len(found) == 4
    assert (found["orders"].grade, found["orders"].last_good) == (Grade.UNREADABLE, None)
    assert found["orders"].problems == ("the storage does not answer",)
    assert found["orders"].to_json()["last_planned"] is None
    assert found["orders"].next_offsets() == {}


def test_a_folder_that_cannot_be_listed_does_not_hide_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, root / "team/a")
    found = {
        str(each.location)[len(str(root)) + 1 :]: each.grade for each in list_statuses_below(resolve_target(str(root)))
    }
    assert found == {
        "team/a": Grade.UNREADABLE,
        "team/broken": Grade.DAMAGED,
        "team/new": Grade.EMPTY,
        "orders": Grade.HEALTHY,
    }


def test_a_root_that_cannot_be_listed_is_an_error(root: Path) -> None:
    location = parse_location(str(root))
    with pytest.raises(StorageError):
        list(find_checkpoints_below(RefusingStorage(location), location))


def below(root: Path) -> list[str]:
    return [
        str(each)[len(str(root)) + 1 :] for each in find_checkpoints_below(LocalStorage(), parse_location(str(root)))
    ]


@pytest.mark.parametrize(
    "lost",
    [
        ("metadata",),
        ("offsets",),
        ("commits",),
        ("metadata", "commits"),
        ("metadata", "offsets"),
        ("metadata", "offsets", "commits"),
    ],
    ids=" ".join,
)
def test_a_query_that_lost_a_part_is_found_and_is_no_root(lost: tuple[str, ...], tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "team/orders").run(3)
    for part in lost:
        shutil.rmtree(tmp_path / "team/orders" / part, ignore_errors=True)
        (tmp_path / "team/orders" / part).unlink(missing_ok=True)
    assert below(tmp_path) == ["team/orders"]
    assert is_root(resolve_target(str(tmp_path)))
    assert not is_root(resolve_target(str(tmp_path / "team/orders")))
    assert status(resolve_target(str(tmp_path / "team/orders"))).grade > Grade.EMPTY or "offsets" in lost


def test_a_first_batch_that_failed_is_found_on_a_store_without_empty_folders(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "orders").plan()
    (tmp_path / "orders/commits").rmdir()
    (tmp_path / "orders/metadata").unlink()
    assert below(tmp_path) == ["orders"]
    (found,) = list_statuses_below(resolve_target(str(tmp_path)))
    assert [each.split()[0] for each in found.problems] == ["QUERY_ID_LOST"]


@pytest.mark.parametrize("name", ["offsets", "commits", "sources", "state", "metadata"])
def test_a_query_may_bear_the_name_of_a_part(name: str, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / name).run(2)
    CheckpointBuilder(tmp_path / "orders").run(2)
    assert sorted(below(tmp_path)) == sorted([name, "orders"])
    assert is_root(resolve_target(str(tmp_path)))


def test_a_table_by_the_name_of_a_part_hides_no_query(tmp_path: Path) -> None:
    for folder in ("state/2026/1", "sources/eu/raw", "offsets/old"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part-0.csv").write_text("x")
    CheckpointBuilder(tmp_path / "orders").run(2)
    assert below(tmp_path) == ["orders"]
    with pytest.raises(CheckpointMissingError):
        status(resolve_target(str(tmp_path)))


def test_what_else_lies_in_a_lost_checkpoint_does_not_hide_its_mirror(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(4)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    (checkpoint / "nested").mkdir(parents=True)
    (checkpoint / ".metadata.crc").write_bytes(b"x")
    CheckpointBuilder(checkpoint / "nested/other").run(2)
    assert not is_root(resolve_target(str(checkpoint)))
    assert below(checkpoint.parent) == ["checkpoint", "checkpoint/nested/other"]
    lost, healthy = list_statuses_below(resolve_target(str(checkpoint.parent)))
    assert (lost.grade, lost.next) == (Grade.DAMAGED, f"lastgood backup restore {checkpoint}")
    assert healthy.grade is Grade.HEALTHY


@pytest.mark.parametrize(
    "place", ["1/2/3/4/5", "sql/core/src/test/resources/structured/9/10", "table/.checkpoints/etl"]
)
def test_a_query_is_found_however_deep_and_in_folders_that_are_hidden(place: str, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / place).run(1)
    reach = Reach()
    assert [str(found.location) for found in list_statuses_below(resolve_target(str(tmp_path)), reach=reach)] == [
        str(tmp_path / place)
    ]
    assert reach.is_whole


def test_a_root_is_told_from_a_checkpoint(root: Path, tmp_path: Path) -> None:
    assert is_root(resolve_target(str(root)))
    assert is_root(resolve_target(str(root / "team")))
    assert not is_root(resolve_target(str(root / "orders")))
    assert not is_root(resolve_target(str(root / "a b [c]")))  # an empty folder: more likely a lost checkpoint
    assert not is_root(resolve_target(str(tmp_path / "none")))
    (root / "orders/metadata").unlink()
    assert not is_root(resolve_target(str(root / "orders")))


def test_a_query_is_found_by_its_name_below_a_root_or_a_pipelines_checkpoint(root: Path, tmp_path: Path) -> None:
    assert str(status(resolve_target(str(root)), query="orders").location) == str(root / "orders")
    config = tmp_path / "lastgood.toml"
    config.write_text(f'[pipeline.all]\ncommand = ["x"]\ncheckpoint = "{root}"\n')
    assert status(resolve_target("all", Config(config)), query="orders").grade is Grade.HEALTHY
    with pytest.raises(CheckpointMissingError):
        status(resolve_target(str(root)), query="none")


def test_a_pipelines_name_may_mean_a_root(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lastgood.toml").write_text(f'[pipeline.all]\ncommand = ["x"]\ncheckpoint = "{root}"\n')
    monkeypatch.chdir(tmp_path)
    assert is_root(resolve_target("all"))
    assert len(list_statuses_below(resolve_target("all"))) == 4


# --- lost logs ----------------------------------------------------------------------------------------------------


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    storage, folder = LocalStorage(), locate_mirror(location)
    MirrorWriter(
        location, storage=storage, folder=folder, target=LocalWriter(), writer="w", now_ms=lambda: STARTED_MS
    ).look()


@pytest.mark.parametrize("left", ["metadata", "an empty folder", "nothing"])
def test_lost_logs_that_the_mirror_knows_are_damage_and_not_an_empty_query(left: str, checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(4)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    if left != "nothing":
        checkpoint.mkdir()
    if left == "metadata":
        CheckpointBuilder(checkpoint)
    found = status(resolve_target(str(checkpoint)))
    assert (found.grade, found.last_good) == (Grade.DAMAGED, None)
    assert found.problems[0].startswith("CHECKPOINT_LOST offsets, commits: ")
    assert found.problems[0].endswith("; the mirror holds batches 0 to 3.")
    assert diagnose(resolve_target(str(checkpoint))).findings[0].next == found.next
    assert found.next == f"lastgood backup restore {checkpoint}"
    assert found.to_json()["mirrored"] == [0, 3]
    below = list_statuses_below(resolve_target(str(checkpoint.parent)))
    assert [(each.location, each.grade) for each in below] == [(found.location, Grade.DAMAGED)]
    assert below[0].next == found.next


def test_a_work_folder_without_a_mirror_is_no_checkpoint(checkpoint: Path) -> None:
    (checkpoint.parent / "checkpoint.lastgood" / "backups").mkdir(parents=True)
    assert list_statuses_below(resolve_target(str(checkpoint.parent))) == []
    with pytest.raises(CheckpointMissingError):
        status(resolve_target(str(checkpoint)))


# --- Kafka and sinks ----------------------------------------------------------------------------------------------


def test_kafka_tells_whether_data_is_being_lost_and_how_long_it_keeps_the_rest(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    options = EvidenceOptions(kafka=kafka(checkpoint.parent, {"0": (0, 30), "1": (0, 15)}))
    found = status(resolve_target(str(checkpoint)), options=options, clock_ms=lambda: NOW)
    assert found.grade is Grade.HEALTHY
    assert found.exposure is not None
    assert (found.exposure.losing, found.exposure.problems) == (Losing.NO, ())
    told = found.to_json()["kafka"]
    assert (told["unread_offsets"], told["headroom"]["ms"]) == (15, 23 * HOUR_MS)


def test_what_kafka_has_deleted_unread_is_the_worst_grade(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    facts = kafka(checkpoint.parent, {"0": (20, 30), "1": (0, 15)})
    found = status(resolve_target(str(checkpoint)), options=EvidenceOptions(kafka=facts), clock_ms=lambda: NOW)
    assert found.grade is Grade.LOSING
    (problem,) = found.problems
    assert problem.startswith("SOURCE_RANGE_EXPIRED orders-0: [15, 20) of orders-0 can no longer be read: ")
    assert found.next == f"lastgood diagnose {checkpoint} --kafka '{facts}'"


@pytest.mark.parametrize(
    ("shown", "agreement", "grade", "good"),
    [
        (3, Agreement.AGREES, Grade.HEALTHY, 2),
        (5, Agreement.AHEAD, Grade.LOSING, 2),
        (2, Agreement.BEHIND, Grade.LOSING, 1),
        (0, Agreement.NONE, Grade.LOSING, None),
    ],
)
def test_a_sink_is_held_against_the_checkpoint(
    shown: int, agreement: Agreement, grade: Grade, good: int | None, checkpoint: Path
) -> None:
    CheckpointBuilder(checkpoint).run(3)
    sink = file_sink(checkpoint.parent / "table", shown)
    found = status(resolve_target(str(checkpoint)), options=EvidenceOptions(sinks=(sink,)))
    assert [each.agreement for each in found.sinks] == [agreement]
    assert (found.grade, found.last_good) == (grade, good)
    assert any("table" in problem for problem in found.problems) == (grade is Grade.LOSING)


def test_a_pipeline_knows_its_sink_and_its_broker(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointBuilder(checkpoint).run(3)
    sink, facts = file_sink(tmp_path / "table", 5), kafka(tmp_path, {"0": (0, 30), "1": (0, 30)})
    config = tmp_path / "lastgood.toml"
    pipeline = f'command = ["x"]\ncheckpoint = "{checkpoint}"\nsink = "{sink}"\nkafka = {{ bootstrap = "{facts}" }}\n'
    config.write_text(f"[pipeline.orders]\n{pipeline}")
    found = status(resolve_target("orders", Config(config)), clock_ms=lambda: NOW)
    assert [each.agreement for each in found.sinks] == [Agreement.AHEAD]
    assert found.exposure is not None
    assert found.next == diagnose(resolve_target("orders", Config(config))).findings[0].next


def test_a_retention_below_the_pipelines_downtime_is_a_warning_that_diagnose_gives_too(
    checkpoint: Path, tmp_path: Path
) -> None:
    CheckpointBuilder(checkpoint).run(3)
    topic = {
        "partitions": {"0": {"earliest": 0, "latest": 15}, "1": {"earliest": 0, "latest": 15}},
        "config": {"retention.ms": str(48 * HOUR_MS), "cleanup.policy": "delete"},
    }
    facts = tmp_path / "kafka.json"
    facts.write_text(json.dumps({"bootstrap": "broker:9092", "topics": {"orders": topic}}))
    config = tmp_path / "lastgood.toml"
    pipeline = f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\nkafka.bootstrap = "{facts}"\n'
    config.write_text(f'{pipeline}max_downtime = "3d"\n')
    found = status(resolve_target("orders", Config(config)))
    assert (found.grade, [each.condition.name for each in found.findings]) == (
        Grade.HEALTHY,
        ["TOPIC_RETENTION_SHORT"],
    )
    assert "Kafka keeps records of orders for 2.0 days: after a downtime of 3.0 days" in found.warnings[0]
    told = diagnose(resolve_target("orders", Config(config))).findings
    assert [each for each in told if each.severity is Severity.WARNING] == list(found.findings)
    assert status(resolve_target("orders", Config(config)), max_downtime_ms=24 * HOUR_MS).warnings == ()
    config.write_text(pipeline)
    assert status(resolve_target("orders", Config(config))).warnings == ()
    asked = status(resolve_target("orders", Config(config)), max_downtime_ms=72 * HOUR_MS)
    assert len(asked.warnings) == 1
    assert "--max-downtime 3d" in asked.asked.command("diagnose")
    below = list_statuses_below(
        resolve_target(str(tmp_path)),
        options=EvidenceOptions(kafka=str(facts)),
        max_downtime_ms=72 * HOUR_MS,
        clock_ms=lambda: NOW,
    )
    assert [len(each.warnings) for each in below] == [1]


def test_of_a_folder_every_query_is_held_against_what_is_named(tmp_path: Path) -> None:
    root = tmp_path / "chk"
    CheckpointBuilder(root / "late").run(3)
    CheckpointBuilder(root / "early").run(6)
    CheckpointBuilder(root / "files", files(tmp_path, 2)).run(2)
    facts = kafka(tmp_path, {"0": (20, 40), "1": (0, 40)}, last=5)
    found = list_statuses_below(resolve_target(str(root)), options=EvidenceOptions(kafka=facts), clock_ms=lambda: NOW)
    assert [(each.location.name, each.grade) for each in found] == [
        ("late", Grade.LOSING),
        ("early", Grade.HEALTHY),
        ("files", Grade.HEALTHY),
    ]
    assert [each.exposure and each.exposure.losing for each in found] == [Losing.YES, Losing.NO, None]


def test_sink_that_is_gone_is_no_healthy_query(checkpoint: Path, tmp_path: Path) -> None:
    CheckpointBuilder(checkpoint).run(2)
    found = status(resolve_target(str(checkpoint)), options=EvidenceOptions(sinks=(str(tmp_path / "nothing"),)))
    assert (found.grade, found.last_good) == (Grade.LOSING, None)
    assert found.next == f"lastgood diagnose {checkpoint} --sink {tmp_path / 'nothing'}"
