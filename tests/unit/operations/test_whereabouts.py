from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.operations.whereabouts import note_whereabouts, whereabouts

ID = "20261121-002156-0001"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_what_was_noted_is_found_again() -> None:
    assert whereabouts(ID) is None
    note_whereabouts(ID, "s3a://lake/chk")
    assert str(whereabouts(ID)) == "s3a://lake/chk"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"checkpoint": 7}', '{"checkpoint": "xyz://a"}', "7"])
def test_damaged_note_is_none(state: Path, content: str) -> None:
    note_whereabouts(ID, "/chk")
    next(state.rglob(f"{ID}.json")).write_text(content)
    assert whereabouts(ID) is None


def test_note_never_leaves_its_folder_and_stands_in_nobodys_way(state: Path) -> None:
    note_whereabouts("../../evil", "/chk")
    assert [file.name for file in state.rglob("*.json")] == ["evil.json"]
    (state / "lastgood/recoveries/evil.json").unlink()
    (state / "lastgood/recoveries").rmdir()
    (state / "lastgood/recoveries").write_text("in the way")
    note_whereabouts(ID, "/chk")
    assert whereabouts(ID) is None
