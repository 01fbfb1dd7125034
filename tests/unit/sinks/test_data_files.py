from __future__ import annotations

from collections.abc import Mapping

import pytest

from lastgood.sinks.data_files import DataFile, add_broken_files
from lastgood.sinks.evidence import DedupeKey, SinkEvidence

FILES = [DataFile("a", 10, 4), DataFile("day=1/b", 20, 5), DataFile("c", None, 6)]


@pytest.mark.parametrize(
    ("sizes", "gone", "damaged", "broken_from"),
    [
        ({"a": 10, "day=1/b": 20, "c": 0}, (), (), None),
        ({"a": 10, "c": 7}, ("day=1/b",), (), 5),
        ({"a": 0, "day=1/b": 20}, ("c",), ("a",), 4),
        ({"a": 10, "day=1/b": 21, "c": 7}, (), ("day=1/b",), 5),
        ({"a": 26, "day=1/b": 36, "c": 7}, (), (), None),
        ({"a": 4, "day=1/b": 14, "c": 7}, (), ("a", "day=1/b"), 4),
        ({"a": None, "day=1/b": None, "c": None}, (), (), None),
    ],
    ids=["whole", "one gone", "one gone and one empty", "one longer", "counted otherwise", "all shorter", "not told"],
)
def test_files_are_held_against_what_the_log_says(
    sizes: Mapping[str, int | None], gone: tuple[str, ...], damaged: tuple[str, ...], broken_from: int | None
) -> None:
    told = SinkEvidence("file", "/lake/out", DedupeKey.DIRECTORY, 6, known=True, because="its log")
    found = add_broken_files(told, FILES, sizes)
    assert (found.files_gone, found.files_damaged, found.broken_from) == (gone, damaged, broken_from)


def test_file_of_no_known_batch_leaves_open_from_which_batch_on() -> None:
    told = SinkEvidence("delta", "/lake/out", DedupeKey.QUERY_ID, 6, known=True, because="its log")
    found = add_broken_files(told, [*FILES, DataFile("d", 1, None)], {"a": 10, "c": 1})
    assert (found.files_gone, found.broken_from) == (("d", "day=1/b"), None)
