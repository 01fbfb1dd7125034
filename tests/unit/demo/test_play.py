from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.demo.play import demo
from lastgood.demo.script import Script
from lastgood.errors import UsageError
from lastgood.supervise.events import Event


def test_a_work_folder_that_holds_anything_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the scenes deletes the checkpoint in it: it may be that of somebody's query."""
    theirs = tmp_path / "checkpoint/offsets/0"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("v1")
    monkeypatch.setattr("lastgood.demo.play.set_up", lambda tell: None)
    events: list[Event] = []
    with pytest.raises(UsageError) as refused:
        demo(Script(), tell=events.append, folder=tmp_path)
    assert (refused.value.subject, refused.value.found) == (str(tmp_path), "checkpoint")
    assert theirs.read_text() == "v1"
    assert events == []
