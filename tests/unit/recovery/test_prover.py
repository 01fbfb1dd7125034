from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import ExtraMissingError
from lastgood.process.java import JavaMissingError
from lastgood.recovery import prover as prove
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.recovery.prover import Prover
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder


def test_missing_pyspark_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError) as caught:
        Prover.here()
    assert caught.value.next == "pip install 'lastgood[spark]'"


def test_missing_java_is_told_before_anything_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError):
        make_plan(resolve_target(str(tmp_path / "nothing")), PlanOptions(prove=True))


def test_plan_that_nobody_wants_proven_says_nothing_of_a_proof(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(2)
    assert make_plan(resolve_target(str(tmp_path / "chk")), PlanOptions()).to_json()["proof"] is None
