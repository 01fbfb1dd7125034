"""Pages about the house name files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs/why").glob("*.md"), ROOT / "CONTRIBUTING.md"])
_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`|\[\"((?:[a-z_]+/)+[a-z_]+\.py)<br>")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = {one or other for one, other in _FILE.findall(page.read_text())}
    places = (ROOT, ROOT / "src/lastgood", ROOT / "tests")
    assert [name for name in sorted(named) if not any((place / name).is_file() for place in places)] == []


def test_the_way_of_a_recover_names_its_rooms() -> None:
    named = _FILE.findall((ROOT / "docs/why/recover.md").read_text())
    assert len(named) > 20
