"""How a person goes on from what `recover` came to."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.asked import DEAD
from lastgood.errors import UsageError
from lastgood.planning.price import Waiver
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder

FILE = Path("plan.json")


@pytest.mark.parametrize(("check", "words"), [("", f" {DEAD}"), ('driver_check = ["true"]', "")])
def test_a_saved_plan_is_carried_out_with_what_nobody_else_proves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(2)
    query.plan()
    Path("lastgood.toml").write_text(f'[pipeline.q]\ncommand = ["true"]\ncheckpoint = "{tmp_path}/chk"\n{check}\n')
    plan = make_plan(resolve_target(str(tmp_path / "chk")), PlanOptions("replan", accept=tuple(Waiver)))
    assert (
        Decision(Verdict.PERSON, "somebody holds it", plan, FILE).way_on(Config()) == f"lastgood apply plan.json{words}"
    )


def test_what_is_said_first_goes_first() -> None:
    error = UsageError("no", next="lastgood diagnose chk")
    assert Decision(Verdict.PERSON, "no", error=error).way_on(Config()) == "lastgood diagnose chk"
    assert (
        Decision(Verdict.PERSON, "no", error=error, next="lastgood status chk").way_on(Config())
        == "lastgood status chk"
    )
    assert Decision(Verdict.START, "Spark's own restart does it").way_on(Config()) is None
