"""What no plan is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import query

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Waiver
from lastgood.recovery import plans
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target


def test_file_of_the_logs_that_would_be_held_in_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query(tmp_path / "chk", 3, orphan=True)
    size = (tmp_path / "chk/offsets/3").stat().st_size
    target, options = resolve_target(str(tmp_path / "chk")), PlanOptions("replan", accept=tuple(Waiver))
    monkeypatch.setattr(plans, "LOG_BYTES_MAX", size + 1)
    assert make_plan(target, options).steps
    monkeypatch.setattr(plans, "LOG_BYTES_MAX", size)
    with pytest.raises(RepairRefusedError, match="too long") as refused:
        make_plan(target, options)
    assert refused.value.subject == str(tmp_path / "chk/offsets/3")
