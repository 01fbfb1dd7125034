"""A repair of state that cannot be loaded: what was made anew beside the checkpoint takes its place. Pure."""

from __future__ import annotations

from lastgood.planning.draft import Edit
from lastgood.planning.repairs.repair import Renewal, Repair, Work
from lastgood.planning.steps import BringStep, MoveStep
from lastgood.query.observation import RebuiltState

_WHY = "made anew by the query's own batches, without a sink"


def bring_rebuilt_state(work: Work) -> Work:
    """The query with the state that was made anew for it, if any was; else as it is."""
    rebuilt = work.facts.rebuilt
    if rebuilt is None:
        return work
    edits = tuple(Edit(path, raw, "it names the versions that were made anew") for path, raw in rebuilt.commits.items())
    return work.with_repair(Repair(edits, rests_on=rebuilt.rests_on, renewal=_make_renewal(work, rebuilt)))


def _make_renewal(work: Work, rebuilt: RebuiltState) -> Renewal:
    sizes = work.facts.state_files
    beside: dict[str, list[str]] = {}
    for path in sorted({*rebuilt.files, *rebuilt.gone}):
        folder, _, name = path.rpartition("/")
        beside.setdefault(folder, []).append(name)
    steps = tuple(
        BringStep(
            path,
            sizes.get(path),
            f"{rebuilt.folder}/{path}",
            size,
            _WHY,
            found_beside=tuple(beside[path.rpartition("/")[0]]),
        )
        for path, size in sorted(rebuilt.files.items())
    )
    moves = tuple(
        MoveStep(path, sizes[path], "the state was made anew") for path in sorted(rebuilt.gone - rebuilt.files.keys())
    )
    return Renewal(steps, moves, rebuilt.state)
