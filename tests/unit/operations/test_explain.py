from __future__ import annotations

import pytest

from lastgood.diagnosis.catalogue import list_names
from lastgood.errors import UsageError
from lastgood.operations.explain import explain, list_conditions_by_theme


@pytest.mark.parametrize("name", ["ORPHAN_BATCH", "orphan_batch", "Orphan-Batch", " orphan_batch "])
def test_a_name_is_found_however_it_is_written(name: str) -> None:
    assert explain(name).name == "ORPHAN_BATCH"


def test_an_error_is_explained_too() -> None:
    assert explain("checkpoint_missing").exit_code == 20


def test_an_unknown_name_brings_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        explain("orphan_batches")
    assert caught.value.subject == "orphan_batches"
    assert "ORPHAN_BATCH" in (caught.value.expected or "")
    assert caught.value.next == "lastgood explain ORPHAN_BATCH"
    with pytest.raises(UsageError) as caught:
        explain("zzzz")
    assert caught.value.next == "lastgood explain"


def test_the_list_holds_every_condition_once() -> None:
    listed = [topic.name for found in list_conditions_by_theme().values() for topic in found]
    assert sorted(listed) == sorted(list_names())
