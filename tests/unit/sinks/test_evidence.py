from __future__ import annotations

import json

from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_unknown_evidence


def shown(*batches: CommittedBatch, last: int | None = 3) -> SinkEvidence:
    return SinkEvidence("delta", "/t", DedupeKey.QUERY_ID, last, known=True, because="x", batches=batches)


def test_sink_of_which_nothing_is_known_may_skip_anything() -> None:
    found = make_unknown_evidence("delta", "/t", DedupeKey.QUERY_ID, "no answer")
    assert (found.last_batch, found.known, found.would_skip(0)) == (None, False, None)


def test_hole_is_a_batch_below_the_newest_that_nobody_wrote_again() -> None:
    batches = [CommittedBatch(n, n, is_live=n != 1) for n in range(3)]
    assert shown(*batches).holes == (1,)
    assert shown(*batches, CommittedBatch(1, 9)).holes == ()
    assert shown(CommittedBatch(5, 1, is_live=False)).holes == ()
    assert shown(CommittedBatch(1, 1, is_live=None)).holes == ()


def test_live_version_is_the_newest_of_a_batch() -> None:
    found = shown(CommittedBatch(1, 1), CommittedBatch(1, 4), CommittedBatch(1, 7, is_live=False))
    assert (found.live_version(1), found.versions(1), found.live_version(2)) == (4, (1, 4, 7), None)


def test_json_has_every_field_by_its_name() -> None:
    fields = json.loads(json.dumps(shown(CommittedBatch(1, 4)).to_json()))
    assert set(fields) == set(SinkEvidence.__dataclass_fields__)
    assert set(fields["batches"][0]) == set(CommittedBatch.__dataclass_fields__)
    assert fields["dedupe_key"] == "query_id"
