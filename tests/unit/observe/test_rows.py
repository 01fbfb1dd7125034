from __future__ import annotations

from pathlib import Path

from lastgood.observe.open_query import MirrorUse, gather
from lastgood.observe.rows import AllRows, make_rows
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder


def test_rows_come_newest_first_and_are_those_of_a_look_at_everything(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(150)
    query.plan()
    (tmp_path / "offsets/70").write_bytes(b"")
    (tmp_path / "offsets/90").unlink()
    rows = AllRows(gather(resolve_target(str(tmp_path)), batches=2, mirror=MirrorUse.ALWAYS))
    met = list(rows)
    assert met == list(make_rows(gather(resolve_target(str(tmp_path)))))[::-1]
    assert (met[0].batch, met[0].committed, met[-1].batch) == (150, False, 0)
    assert met[-1].reads[0].count == 10
    assert (met[150 - 91].reads[0].ranges, met[150 - 92].reads[0].count) == (None, 10)
    assert met[150 - 70].notes == ("plan damaged: empty",)
    assert list(rows.query.checkpoint.damage) == ["offsets/70"]
    assert len(rows) == 151


def test_a_checkpoint_without_a_batch_has_no_row(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path)
    assert list(AllRows(gather(resolve_target(str(tmp_path)), batches=2, mirror=MirrorUse.ALWAYS))) == []
