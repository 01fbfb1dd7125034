"""How bad it looks at a glance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planning import LATER_MS, broker, delta, known, query

from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.planning.goals.resume import draft_resume
from lastgood.planning.price import Guarantee
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sources.kafka.facts import FoundRecord


def test_topic_that_looks_created_again_is_not_called_healthy(tmp_path: Path) -> None:
    """A plan is lossy then, so that `status` says no other thing."""
    query(tmp_path, 3)
    facts = replace(broker((0, 40), (0, 40)), first_after_batch={2: {"orders": {0: FoundRecord(0), 1: FoundRecord(0)}}})
    observed = known(tmp_path, delta(2), kafka=facts, now_ms=LATER_MS)
    assert draft_resume(observed, SPARK_4_2).guarantee is Guarantee.LOSSY
    assert choose_grade(diagnose(observed, SPARK_4_2)) is Grade.DOUBTFUL
