"""Which recovery has left a checkpoint behind on purpose, as its own plan tells that lies beside it.

A checkpoint without a batch is a first start, a lost one, or this: the three are told apart by what lies beside it.
"""

from __future__ import annotations

from lastgood.errors import UsageError
from lastgood.journal.plan_file import PLAN_BYTES_MAX, parse_plan
from lastgood.journal.room import (
    RecoveryStage,
    find_latest_stage,
    list_newest_first,
    locate_recoveries,
    read_settled_ms,
)
from lastgood.planning.plan import ASKED, Plan, PlanInvalidError
from lastgood.query.observation import LeftBehind
from lastgood.settings.config import Config
from lastgood.settings.target import list_words_of_death
from lastgood.signing import NO_KEYS, KeyRing, Signer
from lastgood.sources.kafka.start_files import StartFile, StartForm
from lastgood.sources.kafka.starting_offsets import read_offsets
from lastgood.storage.reading import Location, Storage

MARKS = "marks"
"""Which option of a plan holds the names that sinks knew when it was made."""


def find_left_behind(
    storage: Storage, checkpoint: Location, config: Config, keys: KeyRing = NO_KEYS
) -> LeftBehind | None:
    """The recovery that left a checkpoint behind, if it was the last that came to stay; None if there is none.

    Args:
        storage: Of the checkpoint.
        checkpoint: Beside which it is looked.
        config: Of this command.
        keys: Of which one has to have signed what it goes by; none: nobody need have.

    Raises:
        PlanInvalidError: what the newest recovery has noted down cannot be read.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
        StorageError: the storage does not answer (subclasses).
    """
    for recovery in list_newest_first(storage, checkpoint):
        folder = locate_recoveries(checkpoint) / recovery
        if find_latest_stage(storage, folder) is not RecoveryStage.CLOSED:
            continue  # taken back, or still to be finished: that is told elsewhere
        raw = storage.read(folder / "plan.json", limit=PLAN_BYTES_MAX)
        if raw is not None:
            plan = parse_plan(raw, str(folder / "plan.json"), keys, (checkpoint, recovery))
            at_ms = read_settled_ms(storage, folder, RecoveryStage.CLOSED, Signer.at(keys, checkpoint))
            return _make_left_behind(plan, at_ms, list_words_of_death(str(checkpoint), config))
    return None


def _make_left_behind(plan: Plan, at_ms: int | None, undo_words: tuple[str, ...]) -> LeftBehind | None:
    """What a plan tells of it; None for any other plan."""
    told = plan.options.get("start_file")
    if told is None:
        return None
    try:
        (source_id,) = plan.options["offsets"]  # `draft_fresh` refuses several
        marks = {sink: dict(names) for sink, names in plan.options.get(MARKS, {}).items()}
        told_ids = plan.options.get("topic_ids", {})
        topic_ids = {name: each for name, each in told_ids.items() if each is not None}
        return LeftBehind(
            recovery=plan.recovery,
            at_ms=plan.made_at_ms if at_ms is None else at_ms,
            file=StartFile(str(told["location"]), StartForm(told["form"]), told["key"]),
            starts={source_id: read_offsets(plan.options["starts_at"])},
            query_id=plan.query_id,
            word=plan.guarantee.value,
            marks=marks,
            topic_ids=topic_ids,
            asked=tuple(map(str, plan.options.get(ASKED, ()))),
            undo_words=undo_words,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, UsageError) as error:
        raise PlanInvalidError(
            "what the last recovery told the application is not understood",
            subject=f"{plan.checkpoint}: recovery {plan.recovery}",
            found=str(error),
            expected="a plan as lastgood wrote it",
        ) from error
