"""A batch that its sink has already: Spark commits it unrun, and the next one meets what is gone behind it."""

from __future__ import annotations

import pytest
from conformance.cases import Case
from conformance.edits import Edit
from conformance.edits_of_kafka import committed_ends
from conformance.flavours import FLAVOURS
from conformance.folders import ids
from conformance.judging import compare, prediction
from plugin_laboratory import OpenLaboratory

from lastgood.query.prediction.restart import Outcome

pytestmark = pytest.mark.proof

VERSION = "4.2.0"
MISSING = "Error reading delta file"


@pytest.mark.parametrize("name", ["dedup-file-sink", "dedup-delta"])
def test_next_batch_begins_with_the_state_that_was_made_before(name: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(VERSION, name)
    newest = max(ids(laboratory.healthy(FLAVOURS[name]), "commits"))
    orphan = Edit("remove_entries", {"logs": ["commits"], "batches": [newest], "crc": "none"})
    for partitions, error in ((None, None), ("all", MISSING), ("first", MISSING)):
        gone = {"partitions": partitions, "versions": [newest + 1], "kind": "any"}
        edits = (orphan,) if partitions is None else (orphan, Edit("remove_state_versions", gone))
        case = Case(VERSION, name, edits)
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            seen = laboratory.restart(case, folder)
        assert compare(seen, restart) == []
        assert (restart.outcome, restart.batch, restart.next_error) == (Outcome.RERUNS, newest, error)
        assert seen.ended == ("finished" if error is None else "failed")
        assert seen.committed[newest] == 0
        assert seen.executed[1] == newest + 1


def test_batch_that_makes_no_state_has_none_to_name(open_laboratory: OpenLaboratory) -> None:
    name = "dedup-delta-v2"
    laboratory = open_laboratory(VERSION, name)
    newest = max(ids(laboratory.healthy(FLAVOURS[name]), "commits"))
    orphan = Edit("remove_entries", {"logs": ["commits"], "batches": [newest], "crc": "none"})
    case = Case(VERSION, name, (orphan,))
    with laboratory.damaged(case) as folder:
        restart = prediction(case, folder)
        seen = laboratory.restart(case, folder)
        again = laboratory.restart(case, folder)
    assert compare(seen, restart) == compare(again, restart) == []
    assert (restart.outcome, restart.error) == (Outcome.FAILS_AFTER_SINK, "CheckpointInfo length: 0")


def test_next_batch_meets_what_expired_behind_the_one_that_its_sink_has(open_laboratory: OpenLaboratory) -> None:
    name = "kafka-delta"
    laboratory = open_laboratory(VERSION, name)
    healthy = laboratory.healthy(FLAVOURS[name])
    newest = max(ids(healthy, "commits"))
    orphan = Edit("remove_entries", {"logs": ["commits"], "batches": [newest], "crc": "none"})
    for by, error in ((-1, None), (0, None), (3, "Could not read records in offset [")):
        gone = {name: end + by for name, end in committed_ends(healthy).items()}
        case = Case(VERSION, name, (orphan, Edit("expire_records", {"partitions": gone})))
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            seen = laboratory.restart(case, folder)
        assert compare(seen, restart) == []
        assert (restart.outcome, restart.batch, restart.next_error) == (Outcome.RERUNS, newest, error)
        assert seen.ended == ("finished" if error is None else "failed")
