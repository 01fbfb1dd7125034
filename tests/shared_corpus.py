"""Where the corpus lies that is not in this repository, and what its tests are without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
CORPUS, SAMPLES = SHARED / "corpus", SHARED / "sink-samples"
ABSENT = "no corpus beside the repository"


def list_or_skip(cases: Sequence[Any]) -> Sequence[Any]:
    """Cases of the corpus, for `parametrize`; one that is skipped where there is no corpus."""
    return (
        cases if CORPUS.is_dir() else [*cases, pytest.param(None, id="absent", marks=pytest.mark.skip(reason=ABSENT))]
    )
