"""A repair of state that cannot be loaded: what was made anew beside the checkpoint takes its place. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.state import State
from lastgood.planning.draft import Edit
from lastgood.planning.price import Guarantee
from lastgood.planning.repairs.repair import Renewal, Repair, Work
from lastgood.planning.steps import BringStep, MoveStep
from lastgood.query.observation import RebuiltState
from lastgood.query.windows import list_value_names

_WITHIN = "dedupeWithinWatermark"
_EXPIRY = "expiresAtMicros"
_WHY = "made anew by the query's own batches, without a sink"


def bring_rebuilt_state(work: Work) -> Work:
    """The query with the state that was made anew for it, if any was; else as it is."""
    rebuilt = work.facts.rebuilt
    if rebuilt is None:
        return work
    edits = tuple(Edit(path, raw, "it names the versions that were made anew") for path, raw in rebuilt.commits.items())
    against = (*_list_by_order(rebuilt.state), *rebuilt.against)
    word = Guarantee.LOSSY if against else Guarantee.EXACTLY_ONCE
    repair = Repair(edits, word, (*against, *rebuilt.rests_on), renewal=_make_renewal(work, rebuilt))
    return work.with_repair(repair)


def _list_by_order(state: State) -> Iterator[str]:
    """Operators whose state goes by the order of rows within a batch, which no plan tells; one line each.

    `dropDuplicatesWithinWatermark` keeps, for each key, until when it counts: from the time of the row that came first.
    """
    for operator in state.operators:
        if operator.name == _WITHIN or (operator.name is None and _EXPIRY in list_value_names(operator)):
            yield (
                f"state/{operator.operator} drops duplicates within a watermark: which of several rows of one key was"
                " the first of a batch is not written down, and until when the key counts goes by the time of that row"
            )


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
