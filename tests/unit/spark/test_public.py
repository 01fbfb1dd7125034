"""What applications import from `lastgood.spark`, and what that costs those who do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lastgood.spark
from lastgood.errors import ExtraMissingError


def test_every_public_name_can_be_imported() -> None:
    assert [getattr(lastgood.spark, name).__name__ for name in lastgood.spark.__all__] == lastgood.spark.__all__
    assert not hasattr(lastgood.spark, "nothing")


def test_package_does_not_load_pyspark() -> None:
    code = "import sys, lastgood.spark.agent.driver; print('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_missing_pyspark_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastgood.spark, "find_spec", lambda _: None)
    with pytest.raises(ExtraMissingError, match="the extra 'spark'"):
        _ = lastgood.spark.Recorder
