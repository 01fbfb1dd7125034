from __future__ import annotations

from dataclasses import replace

import pytest

from lastgood.checkpoint.contents import Checkpoint, Mode, Presence
from lastgood.checkpoint.logs import BatchIds, BatchLog, LogListing
from lastgood.query.agreement import SinkStanding, judge_sink_standing
from lastgood.query.sinks import Agreement, make_sink_views
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_unknown_evidence


def standing(sink: SinkEvidence, planned: int | None, committed: int | None) -> SinkStanding:
    """What is said of it, of a query without state whose batches read who knows what."""
    (view,) = make_sink_views(logs(planned, committed), [sink], is_stateful=False)
    return judge_sink_standing(view)


def logs(planned: int | None, committed: int | None) -> Checkpoint:
    """Of these the newest batches are known, and nothing else."""
    newest = {"offsets": planned, "commits": committed}
    ids = {name: BatchIds.of(() if last is None else range(last + 1)) for name, last in newest.items()}
    offsets, commits = (BatchLog(name, LogListing(exists=True, ids=each), {}) for name, each in ids.items())
    return Checkpoint(
        location="/chk",
        presence=Presence.PRESENT,
        mode=Mode.MICRO_BATCH,
        query=None,
        offsets=offsets,
        commits=commits,
        sources=(),
        state=None,
    )


def sink(last: int | None, *, skips: int | None = None, key: DedupeKey = DedupeKey.QUERY_ID) -> SinkEvidence:
    batches = tuple(CommittedBatch(each, each) for each in range(-1 if last is None else last + 1))
    return SinkEvidence("delta", "/t", key, last, known=True, because="seen", skips_up_to=skips, batches=batches)


@pytest.mark.parametrize(
    ("last", "skips", "planned", "committed", "agreement", "drops"),
    [
        (5, 5, 5, 5, Agreement.AGREES, None),
        (5, 5, 6, 5, Agreement.AGREES, None),  # the orphan is not in it yet
        (6, 6, 6, 5, Agreement.AGREES, None),  # it is: run again with the same ranges, nothing is added
        (None, None, None, None, Agreement.AGREES, None),
        (None, None, 0, None, Agreement.AGREES, None),
        (0, 0, 0, None, Agreement.AGREES, None),
        (7, 7, 5, 5, Agreement.AHEAD, (6, 7)),  # an older checkpoint was put back
        (7, 7, 6, 5, Agreement.AHEAD, (7, 7)),
        (3, 3, 5, 5, Agreement.BEHIND, None),  # taken back with its marker
        (3, 5, 5, 5, Agreement.BEHIND, None),
        (3, 9, 5, 5, Agreement.BEHIND, (6, 9)),  # RESTOREd, and the marker left high
        (5, 6, 6, 5, Agreement.AGREES, (6, 6)),  # the orphan would be dropped, and is not shown
        (None, None, 5, 5, Agreement.NONE, None),
        (None, 8, 5, 5, Agreement.NONE, (6, 8)),
        (5, 5, None, 5, Agreement.AGREES, None),  # the offset log is lost
    ],
)
def test_a_sink_is_held_against_what_is_planned_and_committed(
    last: int | None,
    skips: int | None,
    planned: int | None,
    committed: int | None,
    agreement: Agreement,
    drops: tuple[int, int] | None,
) -> None:
    found = standing(sink(last, skips=skips), planned, committed)
    assert (found.agreement, found.would_drop) == (agreement, drops)


def test_a_sink_that_did_not_answer_is_unknown() -> None:
    found = standing(make_unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "denied"), 1, 1)
    assert (found.agreement, found.sentence) == (Agreement.UNKNOWN, "unknown, because denied")


@pytest.mark.parametrize(
    ("mark", "planned", "drops"),
    [(7, 5, (6, 7)), (7, 6, (7, 7)), (6, 6, None), (5, 5, None), (4, 5, None), (None, 5, None)],
)
def test_a_mark_that_may_not_be_the_last_counts_as_far_as_it_is_seen(
    mark: int | None, planned: int, drops: tuple[int, int] | None
) -> None:
    untold = make_unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "a catalog")
    found = standing(replace(untold, skips_up_to=mark), planned, 5)
    assert (found.agreement, found.would_drop) == (Agreement.UNKNOWN, drops)
    assert ("may be dropped without a word" in found.sentence) is (drops is not None)


def test_what_is_so_is_said_in_one_line() -> None:
    def said(last: int | None, skips: int | None, planned: int, committed: int) -> str:
        return standing(sink(last, skips=skips), planned, committed).sentence

    assert said(5, 5, 5, 5) == "agrees: its newest is batch 5"
    assert (
        said(6, 6, 6, 5)
        == "agrees: its newest is batch 6, which is planned and not committed: run again, it adds nothing"
    )
    assert (
        said(6, 5, 6, 5) == "agrees: its newest is batch 6, which is planned and not committed:"
        " run again, its rows are written a second time"
    )
    assert said(7, 7, 5, 5) == (
        "ahead: holds batches 6 to 7, which the checkpoint does not know;"
        " batches 6 to 7 of the query would be dropped without a word"
    )
    assert said(4, 4, 5, 5) == "behind: batch 5 committed, and not in it"
    assert said(None, None, 5, 5) == "shows no batch of this query: seen"


def test_a_batch_that_spark_takes_for_done_is_not_said_to_run_again() -> None:
    assert standing(sink(6, skips=6), 7, 5).sentence == (
        "agrees: its newest is batch 6, which is planned and not committed"
    )


def test_whether_a_batch_comes_twice_may_not_be_known() -> None:
    found = standing(replace(sink(6), skips_known=False), 6, 5)
    assert found.sentence.endswith("whether it is written a second time when it runs again is not known")


def test_the_json_of_a_sink_says_all_of_it() -> None:
    told = standing(sink(7, skips=7), 5, 5).to_json()
    assert told["agreement"] == "ahead"
    assert (told["location"], told["kind"], told["last_batch"], told["would_drop"]) == ("/t", "delta", 7, [6, 7])
    assert (told["known"], told["skips_up_to"], told["holes"], told["notes"]) == (True, 7, [], [])
