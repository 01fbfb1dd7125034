"""Logs that have lost their newest batches are lifted by the mirror alone, where no sink tells and nothing speaks
against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from planning import broker, carried_out, changes, delta, drafted, known, mirror_of, query, silent, written, written_ms

from lastgood.planning.draft import Draft
from lastgood.planning.goals.kind import Goal
from lastgood.planning.goals.values import ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.testing.checkpoints import FileInput

OTHER_ID = "0b7e60a2-1111-4222-8333-944445555666"


def lose(folder: Path, *batches: int, logs: Iterable[str] = ("offsets", "commits")) -> None:
    for log in logs:
        for batch_id in batches:
            (folder / log / str(batch_id)).unlink(missing_ok=True)


def presumed(last: int) -> SinkEvidence:
    """A table that shows only batches under a name that a user chose."""
    return replace(delta(last), dedupe_key=DedupeKey.APP_ID, presumed_app_id="etl")


def then(folder: Path, found: Draft) -> tuple[Outcome, int | None]:
    restart = predict(Observation(carried_out(folder, found)), SPARK_4_2)
    return restart.outcome, restart.batch


@pytest.mark.parametrize("sinks", [(), (silent(),), (delta(None),), (presumed(5),)], ids=lambda sinks: str(len(sinks)))
def test_batches_that_only_the_mirror_has_are_put_back_where_no_sink_tells(
    tmp_path: Path, sinks: tuple[SinkEvidence, ...]
) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    found = drafted(known(tmp_path, *sinks, mirror=mirror, kafka=broker((0, 40), (0, 40))), ResumeGoal())
    assert changes(found) == dict.fromkeys(("offsets/4", "offsets/5", "commits/4", "commits/5"), "written")
    assert (found.guarantee, found.sources, found.is_plain) == (Guarantee.AT_LEAST_ONCE, (), False)
    assert found.rests_on[0].startswith("the mirror's copy of offsets/5, its newest; what was planned after it")
    assert written(found, "commits/5") == mirror["commits/5"]
    assert then(tmp_path, found) == (Outcome.RESUMES, 6)


def test_plain_restart_is_told_as_the_other_way(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal()).alternatives
    plain = next(each for each in found if each.goal == "resume")
    assert (plain.guarantee, plain.command) == (Guarantee.LOSSY, None)  # no sink is named: it may have the numbers
    assert plain.because.startswith("Spark's own restart")
    assert "batch 4 anew, and the mirror knows that batch 5 was committed: a sink that has" in plain.because


def test_plan_that_the_mirror_knows_not_to_be_committed_runs_again_with_its_own_range(tmp_path: Path) -> None:
    query(tmp_path, 5, orphan=True)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert changes(found) == dict.fromkeys(("offsets/4", "offsets/5", "commits/4"), "written")
    assert found.sources[0].duplicated == {"orders": {0: ((25, 30),), 1: ((25, 30),)}}
    assert then(tmp_path, found) == (Outcome.RERUNS, 5)


@pytest.mark.parametrize("lost", [(5,), (4, 5), (0, 1, 2, 3, 4, 5)], ids=len)
def test_commits_that_are_lost_alone_are_put_back_too(tmp_path: Path, lost: tuple[int, ...]) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, *lost, logs=["commits"])
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert changes(found) == {f"commits/{n}": "written" for n in lost}
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert then(tmp_path, found) == (Outcome.RESUMES, 6)


def test_log_of_a_file_source_comes_back_with_the_batches(tmp_path: Path) -> None:
    query(tmp_path, 6, source=FileInput())
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5, logs=["offsets", "commits", "sources/0"])
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert {"sources/0/4", "sources/0/5", "offsets/5", "commits/5"} <= changes(found).keys()
    assert then(tmp_path, found) == (Outcome.RESUMES, 6)


def plain(tmp_path: Path, *sinks: SinkEvidence, mirror: dict[str, bytes], **others: object) -> bool:
    return drafted(known(tmp_path, *sinks, mirror=mirror, **others), ResumeGoal()).is_plain


Change = Callable[[dict[str, bytes]], dict[str, bytes]]


@pytest.mark.parametrize(
    "change",
    [
        lambda mirror: {**mirror, "offsets/3": mirror["offsets/2"]},
        lambda mirror: {**mirror, "offsets/2": mirror["offsets/1"]},
        lambda mirror: {**mirror, "commits/3": mirror["commits/3"].replace(b"0", b"1")},
        lambda mirror: {path: raw for path, raw in mirror.items() if path != "offsets/3"},
        lambda mirror: {path: raw for path, raw in mirror.items() if path != "offsets/4"},
        lambda mirror: {**mirror, "offsets/4": b""},
        lambda mirror: {path: raw for path, raw in mirror.items() if path[-1] not in "45"},
        lambda mirror: {**mirror, "offsets/4": mirror["offsets/4"] + b"\n{}"},
    ],
    ids=[
        *("another newest plan", "another plan", "another commit", "without the newest plan"),
        *("a hole", "an empty plan", "nothing newer", "another source"),
    ],
)
def test_mirror_that_does_not_go_on_from_the_logs_changes_nothing(tmp_path: Path, change: Change) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    assert plain(tmp_path, mirror=change(mirror))


def test_mirror_of_another_query_lifts_nothing(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    assert plain(tmp_path, mirror=mirror, mirrored_id=OTHER_ID)


@pytest.mark.parametrize("sinks", [(delta(3),), (delta(3), silent()), (presumed(3),)])
def test_nothing_is_lifted_where_a_sink_tells_that_it_lacks_the_batches(
    tmp_path: Path, sinks: tuple[SinkEvidence, ...]
) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    assert plain(tmp_path, *sinks, mirror=mirror)


def test_what_spark_would_not_go_on_from_is_not_lifted(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    assert plain(tmp_path, mirror=mirror, kafka=broker((0, 25), (0, 25)))  # the topic ends before batch 5 does


def keeping_state(folder: Path, versions: int) -> dict[str, int]:
    """Let a query have state up to a version; gives its files."""
    sizes = {}
    for partition in (0, 1):
        place = folder / f"state/0/{partition}"
        place.mkdir(parents=True)
        for version in range(1, versions + 1):
            (place / f"{version}.delta").write_bytes(b"LZ4Block" + bytes(20))
            sizes[f"state/0/{partition}/{version}.delta"] = 28
    return sizes


@pytest.mark.parametrize(("versions", "is_lifted"), [(6, True), (4, False)])
def test_query_with_state_is_lifted_only_if_state_of_the_next_version_loads(
    tmp_path: Path, versions: int, is_lifted: bool
) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    sizes = keeping_state(tmp_path, versions)
    found = drafted(known(tmp_path, mirror=mirror, state_files=sizes), ResumeGoal())
    assert ("offsets/5" in changes(found), found.moves) == (is_lifted, ())


def test_seal_that_the_mirror_has_seen_is_no_batch_that_was_committed(tmp_path: Path) -> None:
    query(tmp_path, 4, orphan=True)
    mirror = {**mirror_of(tmp_path), "offsets/5": b"", "commits/4": b"", "commits/7": b""}
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal())
    assert (found.is_plain, found.alternatives[0].goal) == (True, "replan")
    assert not any("mirror" in line for line in found.rests_on)


def test_replan_says_what_the_mirror_remembers_and_lifts_nothing(tmp_path: Path) -> None:
    query(tmp_path, 4)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 2, 3)
    found = drafted(known(tmp_path, mirror=mirror, kafka=broker((0, 40), (0, 40))), ReplanGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.LOSSY)  # no sink is named: it may go by numbers
    assert found.sources[0].duplicated == {"orders": {0: ((10, 20),), 1: ((10, 20),)}}


def test_what_comes_under_numbers_that_the_mirror_knows_may_be_dropped_by_a_sink_that_nobody_named(
    tmp_path: Path,
) -> None:
    """As after an older copy of checkpoint and state: a table that has batch 4 drops whatever comes under it."""
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    sizes = keeping_state(tmp_path, 4)
    found = drafted(known(tmp_path, mirror=mirror, state_files=sizes), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, Guarantee.LOSSY)
    assert any(
        "batch 5 was committed: a sink that has these numbers drops what comes under" in x for x in found.rests_on
    )


def test_sinks_that_drop_no_number_have_what_the_mirror_knows_at_least_once(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, 4, 5)
    sizes = keeping_state(tmp_path, 4)
    found = drafted(
        known(tmp_path, replace(silent(), skips_known=True), mirror=mirror, state_files=sizes), ResumeGoal()
    )
    assert (found.is_plain, found.guarantee) == (True, Guarantee.AT_LEAST_ONCE)


@pytest.mark.parametrize(
    ("goal", "lost"), [(ResumeGoal(), ("offsets", "commits")), (RepositionGoal({}, "it stands"), ("offsets",))]
)
def test_copy_of_a_plan_tells_that_a_sink_had_its_number_before(
    tmp_path: Path, goal: Goal, lost: tuple[str, ...]
) -> None:
    """Somebody dropped a plan after the sink had its batch, and the next driver's plan of the number was mirrored."""
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    lose(tmp_path, *range(6), logs=lost)
    facts = {"mirror": mirror, "kafka": broker((0, 40), (0, 40))}
    assert drafted(known(tmp_path, delta(5), **facts), goal).guarantee is Guarantee.EXACTLY_ONCE
    before = replace(delta(5).batches[3], committed_at_ms=written_ms(3) - 1000)
    older = tuple(before if each.batch_id == 3 else each for each in delta(5).batches)
    found = drafted(known(tmp_path, delta(5, batches=older), **facts), goal)
    assert found.guarantee is Guarantee.LOSSY
    assert any("may lack what batch 3 read: it had batch 3 already 0.5 seconds" in line for line in found.rests_on)
