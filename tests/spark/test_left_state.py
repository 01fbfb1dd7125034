"""What a run leaves in its Java, with real Spark: a next one is started only where none of its state may still come."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.sparks import LIBRARIES, Sparks

from lastgood.lab.spark import SPARK_VERSIONS

pytestmark = [pytest.mark.spark, pytest.mark.proof]
APP = Path(__file__).with_name("left_state_app.py")


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
@pytest.mark.parametrize("kind", ["none", "counts", "join"])
@pytest.mark.parametrize("version", SPARK_VERSIONS)
def test_state_of_a_batch_that_is_not_committed_is_seen(
    sparks: Sparks, tmp_path: Path, version: str, kind: str, provider: str, where: str
) -> None:
    told = {"folder": str(tmp_path), "kind": kind, "provider": provider, "where": where, "libraries": LIBRARIES}
    found = sparks.of(version).call(APP, "look", **told)
    assert f"ValueError: {where}" in found["error"]
    has_changelog = kind != "none" and provider == "rocksdb" and version.startswith("3.")
    if has_changelog:
        assert "Spark 3" in found["found"]
    elif kind == "none" or where == "before":
        assert found["found"] is None
    else:
        assert f"batch {found['failed']}, which is not committed" in found["found"]
