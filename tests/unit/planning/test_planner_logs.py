"""Damaged, missing and misplaced log files, and what `resume` makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from planning import (
    broker,
    carried_out,
    changes,
    delta,
    drafted,
    fence,
    files,
    known,
    mirror_of,
    query,
    recreated,
    written,
)

from lastgood.checkpoint.contents import Checkpoint
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import FreshGoal, ReplanGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import SinkEvidence
from lastgood.testing.checkpoints import FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


@dataclass(frozen=True)
class Damaged:
    """A file of a query of four batches, of which the last is an orphan; and what is done about it."""

    name: str
    path: str
    content: bytes | None
    word: Guarantee | None
    changes: dict[str, str]
    sinks: tuple[SinkEvidence, ...] = ()
    mirrored: bool = False
    orphan: bool = True


CASES = [
    Damaged("empty orphan, sink lacks it", "offsets/3", b"", EXACT, {"offsets/3": "set aside"}, (delta(2),)),
    Damaged("empty orphan, sink has it", "offsets/3", b"", None, {}, (delta(3),)),
    Damaged("empty orphan, sink unknown", "offsets/3", b"", TWICE, {"offsets/3": "written"}),
    Damaged("cut orphan, mirrored", "offsets/3", b"v1\n{", EXACT, {"offsets/3": "written"}, (delta(3),), mirrored=True),
    Damaged("committed plan damaged", "offsets/3", b"", None, {}, (delta(3),), orphan=False),
    Damaged(
        "committed plan damaged, mirrored",
        "offsets/3",
        b"",
        EXACT,
        {"offsets/3": "written"},
        (delta(3),),
        mirrored=True,
        orphan=False,
    ),
    Damaged("committed plan gone", "offsets/3", None, None, {}, (delta(3),), orphan=False),
    Damaged(
        "committed plan gone, mirrored",
        "offsets/3",
        None,
        EXACT,
        {"offsets/3": "written"},
        (delta(3),),
        mirrored=True,
        orphan=False,
    ),
    Damaged("plan before a committed one", "offsets/2", None, TWICE, {"offsets/2": "written"}, (), orphan=False),
    Damaged(
        "plan before a committed one that the sink has",
        "offsets/2",
        None,
        EXACT,
        {"offsets/2": "written"},
        (delta(3),),
        orphan=False,
    ),
    Damaged("plan before a committed one that the sink lacks", "offsets/2", None, None, {}, (delta(2),), orphan=False),
    Damaged("plan before a committed one that a fence lacks", "offsets/2", None, None, {}, (fence(2),), orphan=False),
    Damaged("plan before an orphan", "offsets/2", None, None, {}, (delta(2),)),
    Damaged(
        "plan before an orphan, mirrored",
        "offsets/2",
        b"v1",
        EXACT,
        {"offsets/2": "written"},
        (delta(2),),
        mirrored=True,
    ),
    Damaged(
        "newest commit damaged, sink has it",
        "commits/3",
        b"",
        EXACT,
        {"commits/3": "set aside"},
        (delta(3),),
        orphan=False,
    ),
    Damaged(
        "newest commit damaged, sink unknown", "commits/3", b"", TWICE, {"commits/3": "set aside"}, (), orphan=False
    ),
    Damaged(
        "newest commit damaged, mirrored",
        "commits/3",
        b"",
        EXACT,
        {"commits/3": "written"},
        (delta(3),),
        mirrored=True,
        orphan=False,
    ),
    Damaged("commit below an orphan", "commits/2", b"v1\n{", EXACT, {"commits/2": "written"}, (delta(2),)),
    Damaged("newest commit gone, sink has it", "commits/3", None, EXACT, {}, (files(3),), orphan=False),
    Damaged("older plan gone", "offsets/1", None, EXACT, {}, (delta(2),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damaged_log_is_put_right_only_where_something_can_be_promised(tmp_path: Path, case: Damaged) -> None:
    query(tmp_path, 3 if case.orphan else 4, orphan=case.orphan)
    mirror = mirror_of(tmp_path) if case.mirrored else None
    if case.content is None:
        (tmp_path / case.path).unlink()
    else:
        (tmp_path / case.path).write_bytes(case.content)
    what = known(tmp_path, *case.sinks, mirror=mirror)
    if case.word is None:
        with pytest.raises(RepairRefusedError):
            drafted(what, ResumeGoal())
        return
    found = drafted(what, ResumeGoal())
    assert (found.guarantee, changes(found)) == (case.word, case.changes)
    assert_runs(carried_out(tmp_path, found), *case.sinks)


def assert_runs(checkpoint: Checkpoint, *sinks: SinkEvidence) -> None:
    restart = predict(Observation(checkpoint, sinks=sinks), SPARK_4_2)
    assert restart.stop is None, restart


def test_plan_that_is_renamed_is_restored_under_its_name(tmp_path: Path) -> None:
    query(tmp_path, 4)
    mirror = mirror_of(tmp_path)
    (tmp_path / "offsets/3").rename(tmp_path / "offsets/003")
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert changes(found) == {"offsets/003": "set aside", "offsets/3": "written"}
    assert_runs(carried_out(tmp_path, found))


def test_left_over_checksum_is_set_aside(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (tmp_path / "offsets/.3.crc").write_bytes(b"crc")
    found = drafted(known(tmp_path, delta(2)), ResumeGoal())
    assert (changes(found), found.guarantee) == ({"offsets/.3.crc": "set aside"}, EXACT)


def test_checksum_goes_with_its_file(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "offsets/3").write_bytes(b"")
    (tmp_path / "offsets/.3.crc").write_bytes(b"crc")
    found = drafted(known(tmp_path, delta(2)), ResumeGoal())
    assert changes(found) == {"offsets/3": "set aside", "offsets/.3.crc": "set aside"}


def test_folder_where_an_entry_belongs_is_left_to_a_person(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (tmp_path / "offsets/3").mkdir()
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path), ResumeGoal())
    assert refused.value.subject == "offsets/3"


def test_log_of_a_file_source_is_completed_from_the_mirror(tmp_path: Path) -> None:
    query(tmp_path, 4, source=FileInput())
    mirror = mirror_of(tmp_path)
    (tmp_path / "sources/0/3").unlink()
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert changes(found) == {"sources/0/3": "written"}
    assert written(found, "sources/0/3") == mirror["sources/0/3"]


def test_log_of_a_file_source_with_a_hole_is_refused_without_a_mirror(tmp_path: Path) -> None:
    query(tmp_path, 4, source=FileInput())
    (tmp_path / "sources/0/3").unlink()
    with pytest.raises(RepairRefusedError, match="would not run"):
        drafted(known(tmp_path), ResumeGoal())


def test_lost_checkpoint_comes_back_from_the_mirror(tmp_path: Path) -> None:
    query(tmp_path / "before", 3, orphan=True)
    mirror = mirror_of(tmp_path / "before")
    found = drafted(known(tmp_path / "lost", delta(2), mirror=mirror), ResumeGoal())
    assert (found.guarantee, set(changes(found))) == (EXACT, set(mirror))
    assert found.rests_on[0] == "the mirror's copy of offsets/3, its newest plan"
    assert predict(Observation(carried_out(tmp_path / "lost", found)), SPARK_4_2).batch == 3


def test_mirror_of_a_lost_checkpoint_may_be_behind_what_an_unknown_sink_has(tmp_path: Path) -> None:
    query(tmp_path / "before", 3)
    found = drafted(known(tmp_path / "lost", mirror=mirror_of(tmp_path / "before")), ResumeGoal())
    assert found.guarantee is TWICE


def test_mirror_of_another_query_is_not_used(tmp_path: Path) -> None:
    query(tmp_path, 4)
    mirror = mirror_of(tmp_path)
    (tmp_path / "offsets/3").unlink()
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, mirror=mirror, mirrored_id="0b7e60a2-1111-4222-8333-944445555666"), ResumeGoal())


def test_first_start_is_plain_and_not_certain_while_nobody_knows_the_sink(tmp_path: Path) -> None:
    found = drafted(known(tmp_path / "new"), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, TWICE)
    found = drafted(known(tmp_path / "new", files(None)), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, EXACT)


def test_lost_checkpoint_is_not_taken_for_a_first_start_where_the_sink_holds_batches(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError, match="a sink holds batches"):
        drafted(known(tmp_path / "lost", files(7)), ResumeGoal())


def test_topic_that_was_created_again_is_never_resumed(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError, match="created again") as refused:
        drafted(known(tmp_path, delta(2), kafka=recreated(broker((0, 99), (0, 99), topic_id="new"))), ResumeGoal())
    best = refused.value.alternatives[0]
    assert (best.command, best.guarantee) == ("lastgood plan /chk --goal reposition --stable-lag 0", LOSSY)


def test_topic_that_was_created_again_is_not_resumed_from_the_mirror_either(tmp_path: Path) -> None:
    query(tmp_path, 3)
    mirror = mirror_of(tmp_path)
    facts = recreated(broker((0, 99), (0, 99), topic_id="new"))
    lost = known(tmp_path / "lost", delta(2), mirror=mirror, kafka=facts)
    for goal in (ResumeGoal(), FreshGoal()):
        with pytest.raises(RepairRefusedError, match="created again"):
            drafted(lost, goal)


def test_expired_records_that_spark_would_skip_without_an_error_are_called_lost(tmp_path: Path) -> None:
    query(tmp_path, 3)
    facts = broker((18, 40), (15, 40))
    found = drafted(known(tmp_path, delta(2), kafka=facts, fail_on_data_loss=False), ResumeGoal())
    assert (found.is_plain, found.guarantee, found.sources[0].lost) == (True, LOSSY, {"orders": {0: ((15, 18),)}})


def test_subscription_that_was_put_back_gets_its_orphan_dropped(tmp_path: Path) -> None:
    """The plan that a changed subscription left behind lacks a partition, and fails for ever."""
    query(tmp_path, 3, orphan=True)
    plan = tmp_path / "offsets/3"
    plan.write_bytes(plan.read_bytes().replace(b'{"orders":{"0":20,"1":20}}', b'{"orders":{"0":20}}'))
    found = drafted(known(tmp_path, delta(2), kafka=broker((0, 40), (0, 40))), ResumeGoal())
    assert (changes(found), found.guarantee) == ({"offsets/3": "set aside"}, EXACT)


def test_asynchronous_progress_is_started_again_and_never_repaired(tmp_path: Path) -> None:
    query(tmp_path, 40)
    for log in ("offsets", "commits"):
        for number in {*range(39)} - {0, 12, 25}:
            (tmp_path / log / str(number)).unlink()
    found = drafted(known(tmp_path), ResumeGoal())
    assert (found.is_plain, found.edits, found.guarantee) == (True, (), Guarantee.AT_LEAST_ONCE)
    with pytest.raises(RepairRefusedError, match="every micro-batch"):
        drafted(known(tmp_path), ReplanGoal())
