from __future__ import annotations

import pytest

from lastgood.planning.steps import FileStep, MoveStep, compute_digest, sort_steps
from lastgood.steps.kinds import parse_step

STEPS = [
    FileStep("offsets/7", compute_digest(b"old"), b"new", "edited"),
    FileStep("offsets/8", compute_digest(b"old"), None, "it is dropped"),
    FileStep("commits/9", None, b"", "it is missing"),
    FileStep("sources/0/8", compute_digest(b"\x00v1"), None, "it goes with the plan"),
    FileStep("offsets/.8.crc", compute_digest(b"crc"), None, "it is left over"),
    FileStep(
        "commits/..4.e929f9cb-622a-4e30-8bb2-584633b2bec5.tmp.crc", compute_digest(b"crc"), None, "its file is gone"
    ),
    FileStep("offsets/007", compute_digest(b"x"), None, "no start can open it"),
    FileStep("metadata", None, b'{"id":"q"}', "it is lost"),
    MoveStep("state/0/1/9.delta", 12, "it is newer"),
    MoveStep("state/0/1/left/9_f5a9e4f0-0b0a-4f3e-8d0e-1234567890ab.zip", 0, "it is newer"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.path)
def test_step_is_read_as_it_was_written(step: FileStep | MoveStep) -> None:
    assert parse_step(step.to_json()) == step


@pytest.mark.parametrize(
    "path",
    [
        "../offsets/7",
        "offsets/../../etc/passwd",
        "/etc/passwd",
        "offsets//7",
        "offsets/./7",
        "passwd",
        "data/part-0.parquet",
        "offsets",
        "offsets/7/x",
        "sources/0/1/2",
        "offsets/" + "7" * 2000,
        "offsets/7\0",
        "state/../offsets/7",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["file", "move"])
def test_step_cannot_touch_what_is_no_file_of_a_checkpoint(path: str, kind: str) -> None:
    told = {"kind": kind, "path": path, "before": None, "after": None, "size": 1, "why": "x"}
    with pytest.raises(ValueError, match=r"no file of a checkpoint|not understood"):
        parse_step(told)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"kind": "file", "path": "offsets/7"},
        {"kind": "file", "path": "offsets/7", "before": 1, "after": None, "why": "x"},
        {"kind": "file", "path": "offsets/7", "before": None, "after": "no base64!", "why": "x"},
        {"kind": "file", "path": "state/0/0/1.delta", "before": None, "after": "", "why": "x"},
        {"kind": "move", "path": "offsets/7", "size": 1, "why": "x"},
        {"kind": "exec", "path": "offsets/7", "why": "x"},
    ],
)
def test_what_is_no_step_is_refused(told: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_step(told)


def test_commits_are_removed_before_plans_and_written_after_them() -> None:
    steps = [
        FileStep("commits/9", None, b"c", ""),
        FileStep("offsets/9", None, b"o", ""),
        FileStep("offsets/8", None, b"o", ""),
        FileStep("metadata", None, b"m", ""),
        FileStep("sources/0/9", None, b"s", ""),
        FileStep("offsets/7", compute_digest(b"o"), None, ""),
        FileStep("commits/6", compute_digest(b"c"), None, ""),
        FileStep("commits/7", compute_digest(b"c"), None, ""),
        FileStep("offsets/.7.crc", compute_digest(b"c"), None, ""),
    ]
    assert [step.path for step in sort_steps(steps)] == [
        "commits/7",
        "commits/6",
        "offsets/7",
        "offsets/.7.crc",
        "metadata",
        "sources/0/9",
        "offsets/8",
        "offsets/9",
        "commits/9",
    ]


def test_step_says_what_it_does_and_what_takes_it_back() -> None:
    edited, dropped, made = STEPS[:3]
    assert (edited.do, edited.undo) == ("rewrite offsets/7: edited", "put offsets/7 back as it was")
    assert (dropped.do, dropped.undo) == ("set aside offsets/8: it is dropped", "put offsets/8 back as it was")
    assert (made.do, made.undo) == ("write commits/9: it is missing", "remove commits/9")
