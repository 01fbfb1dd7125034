from __future__ import annotations

import re
from pathlib import Path

from lastgood.ledger import tables

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "ledger.md"


def test_every_table_and_column_is_documented_and_none_that_is_not_there() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    documented = {
        name: set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE))))
        for section in sections
        for name in [section.split()[0].rstrip(",")]
    }
    kept = documented.pop("lastgood_filled")
    assert kept == set()
    there = {table.name: {column.name for column in table.columns} for table in tables.metadata.sorted_tables}
    filled = there.pop("lastgood_filled")
    assert all(f"`{column}`" in sections[-1] for column in filled)
    assert documented == there
