"""A bundle of any checkpoint that a real Spark wrote tells what the checkpoint itself tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shared_corpus import CORPUS

from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.rules_advice import find_advice
from lastgood.observe.advice_facts import find_advice_facts
from lastgood.observe.bundle import open_bundle, save_bundle
from lastgood.observe.open_query import gather
from lastgood.query.observation import Observation
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import STARTED_MS

BATCHES = 20
ROOT = Path(__file__).parents[2]
CORPORA = (ROOT / "tests/corpus/cases", CORPUS)
CASES = [path for corpus in CORPORA for path in sorted(corpus.glob("*/checkpoint"))]


def report(about: Observation) -> str:
    return json.dumps([diagnose(about).to_json(), [finding.to_json() for finding in find_advice(about)]])


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parents[1].name}-{path.parent.name}")
def test_a_bundle_gives_the_same_report_as_the_checkpoint(case: Path, tmp_path: Path) -> None:
    evidence = gather(resolve_target(str(case)), batches=BATCHES)
    about = replace(evidence.seen, now_ms=STARTED_MS, advice=find_advice_facts(evidence))
    save_bundle(tmp_path / "bundle.zip", replace(evidence, seen=about))
    with open_bundle(tmp_path / "bundle.zip") as bundle:
        again = bundle.query(batches=BATCHES).seen
    assert report(again) == report(about)
    assert replace(again, checkpoint=about.checkpoint, copies=about.copies) == about
