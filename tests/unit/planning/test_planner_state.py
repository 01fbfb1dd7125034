"""Queries that keep state: what of it a repair sets aside, what it keeps, and when a sink gives a batch back."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import broker, changes, delta, drafted, fence, files, known, query, serve, stateful

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.planning.steps import MoveStep
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS

EXACT = Guarantee.EXACTLY_ONCE
SERVED = serve((0, 60), (0, 60))


def test_dropped_orphan_takes_the_state_it_made_along(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 3, orphan=True)
    (tmp_path / "offsets/3").write_bytes(b"")
    found = drafted(known(tmp_path, delta(2), state_files=sizes), ResumeGoal())
    assert changes(found) == {"offsets/3": "set aside"}
    assert [step.path for step in found.moves] == [
        "state/0/0/.4.delta.crc", "state/0/0/4.delta", "state/0/1/.4.delta.crc", "state/0/1/4.delta",
    ]  # fmt: skip
    assert all(isinstance(step, MoveStep) and step.size == 28 for step in found.moves)


def test_batch_that_runs_again_keeps_the_state_that_it_begins_with(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 4, orphan=False)
    (tmp_path / "commits/3").write_bytes(b"")
    found = drafted(known(tmp_path, delta(2), state_files=sizes), ResumeGoal())
    assert {step.path.rpartition("/")[2] for step in found.moves} == {"4.delta", ".4.delta.crc"}


def by_function(last: int) -> SinkEvidence:
    return replace(delta(last), dedupe_key=DedupeKey.APP_ID, app_id="orders-etl")


@pytest.mark.parametrize("sink", [delta(3), files(3), by_function(3), fence(3)])
def test_batch_that_a_sink_skips_keeps_the_state_that_it_made(tmp_path: Path, sink: SinkEvidence) -> None:
    """Spark does not make it again, and batch 4 begins with it."""
    sizes = stateful(tmp_path, 4, orphan=False)
    for partition in (0, 1):
        sizes[f"state/0/{partition}/5.delta"] = 28
    (tmp_path / "commits/3").write_bytes(b"")
    (tmp_path / "commits/2").unlink()
    found = drafted(known(tmp_path, sink, state_files=sizes), ResumeGoal())
    assert (changes(found), found.guarantee) == ({"commits/3": "set aside"}, EXACT)
    assert [step.path for step in found.moves] == ["state/0/0/5.delta", "state/0/1/5.delta"]


def test_stale_snapshot_above_a_batch_that_a_sink_skips_goes_alone(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 3, orphan=True)
    (tmp_path / "state/0/1/6.snapshot").write_bytes(b"LZ4Block" + bytes(20))
    sizes["state/0/1/6.snapshot"] = 28
    found = drafted(known(tmp_path, delta(3), state_files=sizes), ResumeGoal())
    assert [step.path for step in found.moves] == ["state/0/1/6.snapshot"]


def test_row_11_is_refused_for_a_query_with_state(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 4, orphan=False)
    with pytest.raises(RepairRefusedError, match="keeps state"):
        drafted(known(tmp_path, delta(1), state_files=sizes), ResumeGoal())


def test_snapshot_of_a_time_that_the_logs_do_not_know_is_set_aside(tmp_path: Path) -> None:
    """Whoever rolls the logs back by hand and leaves it gets wrong totals without a message."""
    sizes = stateful(tmp_path, 3, orphan=False)
    (tmp_path / "state/0/1/6.snapshot").write_bytes(b"LZ4Block" + bytes(20))
    sizes["state/0/1/6.snapshot"] = 28
    found = drafted(known(tmp_path, delta(2), state_files=sizes), ResumeGoal())
    assert ([step.path for step in found.moves], found.edits) == (["state/0/1/6.snapshot"], ())
    assert (found.guarantee, found.is_plain) == (EXACT, False)


def test_nothing_is_promised_where_a_plan_pins_fewer_partitions_than_the_state_has(tmp_path: Path) -> None:
    """Spark loads those alone: what the others have counted is gone, and nothing fails."""
    sizes = stateful(tmp_path, 3, orphan=False)
    plan = tmp_path / "offsets/2"
    pinned = plan.read_bytes().replace(b'"spark.sql.shuffle.partitions":"2"', b'"spark.sql.shuffle.partitions":"1"')
    assert pinned != plan.read_bytes()
    plan.write_bytes(pinned)
    found = drafted(known(tmp_path, delta(2), state_files=sizes), ResumeGoal())
    assert found.guarantee is Guarantee.LOSSY
    assert any(line.startswith("STATE_PARTITIONS_CHANGED offsets/2") for line in found.rests_on)


def test_row_4_refuses_to_commit_a_batch_whose_state_was_never_made(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 3, orphan=True)
    facts = broker((18, 40), (18, 40))
    by_function = delta(3, skips_up_to=None)
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path, by_function, state_files=sizes, kafka=facts), ResumeGoal())


def test_plain_restart_of_a_stateful_query_is_plain(tmp_path: Path) -> None:
    sizes = stateful(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, delta(3), state_files=sizes), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, EXACT)


# --- a batch that the sink skips, and whose state is not there ------------------------------------------------------


def table(last: int, **others: Any) -> SinkEvidence:
    """A table that can be taken back to its first batch."""
    return delta(last, **{"app_id": QUERY_ID, "back_to": 0, **others})


def without(folder: Path, sizes: dict[str, int], *names: str) -> dict[str, int]:
    for name in names:
        (folder / "state/0" / name).unlink()
    return {path: size for path, size in sizes.items() if path.removeprefix("state/0/") not in names}


def test_sink_gives_a_batch_back_whose_state_is_gone(tmp_path: Path) -> None:
    """Spark would commit batch 3 without running it, and batch 4 could not load version 4."""
    sizes = without(tmp_path, stateful(tmp_path, 3, orphan=True), "1/4.delta")
    found = drafted(known(tmp_path, table(3), kafka=SERVED, state_files=sizes), ResumeGoal())
    assert ([(edit.location, edit.batch) for edit in found.sinks], changes(found)) == ([("/lake/out", 2)], {})
    assert {step.path.rpartition("/")[2] for step in found.moves} == {"4.delta", ".4.delta.crc"}
    assert (found.guarantee, found.is_plain) == (EXACT, False)


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        (table(3, back_to=None, back_because="delta.appendOnly"), "cannot be taken back"),
        (by_function(3), "cannot be taken back"),
        (fence(3), "cannot be taken back"),
    ],
)
def test_plain_restart_is_refused_where_the_batch_after_it_would_fail(
    tmp_path: Path, sink: SinkEvidence, sentence: str
) -> None:
    sizes = without(tmp_path, stateful(tmp_path, 3, orphan=True), "0/4.delta", "1/4.delta")
    with pytest.raises(RepairRefusedError, match=sentence):
        drafted(known(tmp_path, sink, kafka=SERVED, state_files=sizes), ResumeGoal())


def test_sink_gives_nothing_back_where_the_state_before_is_gone_too(tmp_path: Path) -> None:
    sizes = without(tmp_path, stateful(tmp_path, 3, orphan=True), "0/3.delta", "0/4.delta")
    with pytest.raises(RepairRefusedError, match="would not run"):
        drafted(known(tmp_path, table(3), kafka=SERVED, state_files=sizes), ResumeGoal())


def test_mark_is_not_renewed_where_the_batch_has_to_run(tmp_path: Path) -> None:
    sizes = without(tmp_path, stateful(tmp_path, 3, orphan=True), "0/4.delta")
    expired = table(3, skips_up_to=None, mark_lasts_ms=7 * 86_400_000)
    found = drafted(known(tmp_path, expired, kafka=SERVED, state_files=sizes), ResumeGoal())
    assert (found.sinks, found.guarantee) == ((), Guarantee.AT_LEAST_ONCE)


def named_by_id(folder: Path) -> dict[str, int]:
    """State in checkpoint format v2, in which a commit names the files that its batch has made."""
    query(folder, 3, orphan=True)
    sizes = {}
    for number in range(3):
        ids = [[_unique_id(partition, number + 1)] for partition in (0, 1)]
        content = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": ids}})
        (folder / f"commits/{number}").write_text(f"v2\n{content}")
    for partition in (0, 1):
        place = folder / f"state/0/{partition}"
        place.mkdir(parents=True)
        for version in range(1, 5):
            name = f"{version}_{_unique_id(partition, version)}.changelog"
            (place / name).write_bytes(b"LZ4Block" + bytes(20))
            sizes[f"state/0/{partition}/{name}"] = 28
    return sizes


def _unique_id(partition: int, version: int) -> str:
    return str(uuid.UUID(int=partition * 100 + version))


def test_sink_gives_a_batch_back_that_could_not_name_its_state(tmp_path: Path) -> None:
    """Spark would stop at the commit of batch 3, at every start."""
    sizes = named_by_id(tmp_path)
    found = drafted(known(tmp_path, table(3), kafka=SERVED, state_files=sizes), ResumeGoal())
    assert ([edit.batch for edit in found.sinks], found.guarantee) == ([2], EXACT)
    assert [step.path.rpartition("/")[2].partition("_")[0] for step in found.moves] == ["4", "4"]


def test_function_is_assumed_to_run_a_batch_that_has_to_name_its_state(tmp_path: Path) -> None:
    found = drafted(known(tmp_path, fence(3), kafka=SERVED, state_files=named_by_id(tmp_path)), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, EXACT)
    assert "the assumption that the function runs batch 3" in found.rests_on[-1]


def test_sink_that_cannot_give_back_a_batch_without_a_name_is_refused(tmp_path: Path) -> None:
    sizes = named_by_id(tmp_path)
    with pytest.raises(RepairRefusedError, match="cannot be taken back"):
        drafted(known(tmp_path, files(3), kafka=SERVED, state_files=sizes), ResumeGoal())


def planned_anew(folder: Path, *, is_committed: bool) -> dict[str, int]:
    """Somebody dropped batch 3 after it had made its state, of which a snapshot was taken; it was planned anew."""
    sizes = stateful(folder, 4 if is_committed else 3, orphan=not is_committed)
    for partition in (0, 1):
        (folder / f"state/0/{partition}/4.snapshot").write_bytes(b"LZ4Block" + bytes(20))
        sizes[f"state/0/{partition}/4.snapshot"] = 28
        before_s = STARTED_MS // 1000 - 60
        os.utime(folder / f"state/0/{partition}/4.snapshot", (before_s, before_s))
    return sizes


def test_snapshot_of_an_older_plan_of_the_orphan_is_set_aside(tmp_path: Path) -> None:
    """The batch makes its changes anew and no new snapshot: a later start would go on from the dropped plan's."""
    sizes = planned_anew(tmp_path, is_committed=False)
    found = drafted(known(tmp_path, delta(2), state_files=sizes), ResumeGoal())
    moved = {step.path for step in found.moves}
    assert {"state/0/0/4.snapshot", "state/0/1/4.snapshot"} <= moved
    assert not any(path.endswith("3.delta") for path in moved)


def test_snapshot_of_an_older_plan_of_a_batch_that_is_done_makes_totals_wrong(tmp_path: Path) -> None:
    sizes = planned_anew(tmp_path, is_committed=True)
    found = drafted(known(tmp_path, delta(3), state_files=sizes), ResumeGoal())
    assert found.guarantee is Guarantee.LOSSY
    assert any(line.startswith("STALE_STATE_SNAPSHOT state/0/0/4.snapshot") for line in found.rests_on)


@pytest.mark.parametrize("is_committed", [False, True])
def test_snapshot_that_is_younger_than_its_plan_is_its_own(is_committed: bool, tmp_path: Path) -> None:
    sizes = planned_anew(tmp_path, is_committed=is_committed)
    for file in tmp_path.glob("state/0/*/4.snapshot"):
        os.utime(file)
    found = drafted(known(tmp_path, delta(3 if is_committed else 2), state_files=sizes), ResumeGoal())
    assert (found.guarantee, found.moves) == (EXACT, ())


@pytest.mark.parametrize("is_committed", [False, True])
def test_clock_of_the_storage_that_is_behind_makes_no_snapshot_stale(is_committed: bool, tmp_path: Path) -> None:
    """What was written before it by the same clock is older still."""
    sizes = planned_anew(tmp_path, is_committed=is_committed)
    earlier_s = STARTED_MS // 1000 - 120
    for file in (*tmp_path.glob("offsets/*"), *tmp_path.glob("state/0/*/*.delta")):
        os.utime(file, (earlier_s, earlier_s))
    found = drafted(known(tmp_path, delta(3 if is_committed else 2), state_files=sizes), ResumeGoal())
    assert (found.guarantee, found.moves) == (EXACT, ())
