"""Before anything is begun: whether every storage can do what the plan needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lastgood.journal.room import Room
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.price import Guarantee
from lastgood.recovery.engine import Engine, Surveyor
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import ExclusiveCreateUnsupportedError, open_writable

Q = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def engine(folder: Path, location: str, fence: str | None) -> Engine:
    sink = PlannedSink(0, "delta", location, 3, known=True, skips_up_to=3, identity="t", fence=fence)
    plan = Plan(
        recovery="20261121-160058-7f3a",
        goal="replan",
        checkpoint=str(folder / "chk"),
        query_id=Q,
        guarantee=Guarantee.EXACTLY_ONCE,
        rests_on=(),
        promise=Promise("4.2", "resumes", 4, ""),
        sinks=(sink,),
        made_at_ms=0,
        made_by="test",
    )
    checkpoint = parse_location(plan.checkpoint)
    room = Room(checkpoint, plan.recovery, open_writable(checkpoint))
    surveyor = Surveyor(sinks=lambda: plan.sinks, promise=lambda _: plan.promise)
    lease: Any = None  # before anything is begun nobody needs one
    return Engine(room, plan, lease, surveyor, lambda _: None, lambda: 0)


def test_table_that_is_committed_to_lies_where_only_one_can_make_a_version(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_deltalake(folder, pa.table({"batch": [0]}))
    before = sorted((folder / "_delta_log").iterdir())
    engine(tmp_path, str(folder), Q).require_means()
    assert sorted((folder / "_delta_log").iterdir()) == before
    engine(tmp_path, "/Volumes/lake/t", None).require_means()
    with pytest.raises(ExclusiveCreateUnsupportedError):
        engine(tmp_path, "/Volumes/lake/t", Q).require_means()
