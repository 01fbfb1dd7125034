"""Every damage with every sink and goal, on real Spark; `make docs` makes a page (repairs.md) of what was seen."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conformance.flavours import FLAVOURS
from plugin_laboratory import OpenLaboratory
from repair.matrix import SINKS, TOPIC_SINKS, VERSION, Damage, Seen, damages, reason, record, recorded, repairs
from repair.repairs import NO, tried

FLAVOURS_TRIED = (*SINKS, *TOPIC_SINKS)
CELLS = [
    pytest.param(flavour, damage, id=f"{damage.name}-{flavour}")
    for of_all in zip(*(damages(FLAVOURS[flavour].batches - 1) for flavour in FLAVOURS_TRIED), strict=True)
    for flavour, damage in zip(FLAVOURS_TRIED, of_all, strict=True)
    if flavour in TOPIC_SINKS or not damage.of_topic
]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lastgood remembers of recoveries on this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def place(flavour: str) -> tuple[str, str]:
    """Source and sink, as the page calls them."""
    return "Kafka" if flavour in TOPIC_SINKS else "files", {**SINKS, **TOPIC_SINKS}[flavour]


def test_nothing_is_told_of_what_is_not_tried_any_more() -> None:
    tried_now = {
        (*place(flavour), damage.name, repair.goal, repair.mirror != NO)
        for flavour, damage in (cell.values for cell in CELLS)
        for repair in repairs(flavour, damage)
    }
    assert {each.cell for each in recorded()} <= tried_now


@pytest.mark.proof
@pytest.mark.parametrize(("flavour", "damage"), CELLS)
def test_damage_is_repaired_as_the_plan_says(flavour: str, damage: Damage, open_laboratory: OpenLaboratory) -> None:
    laboratory, found, wrong = open_laboratory(VERSION, flavour), [], []
    for repair in repairs(flavour, damage):
        outcome = tried(laboratory, repair)
        if outcome.wrong:
            wrong.append("\n".join([str(repair), *outcome.wrong, json.dumps(repair.to_json())]))
            continue
        source, sink = place(flavour)
        found.append(
            Seen(
                damage=damage.name,
                source=source,
                sink=sink,
                goal=repair.goal,
                mirror=repair.mirror != NO,
                word=outcome.word,
                is_plain=outcome.is_plain,
                because=reason(outcome.because) if outcome.word == "refused" else "",
                lost=outcome.lost,
                twice=outcome.twice,
                spark=VERSION,
                date=datetime.now(UTC).date().isoformat(),
            )
        )
    record(found)
    if wrong:
        pytest.fail("\n\n".join(wrong), pytrace=False)
