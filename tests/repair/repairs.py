"""One repair of a damaged checkpoint: planned, carried out, perhaps taken back, and judged by what Spark does then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.brokers import expected, records_of
from conformance.cases import NEW_INPUTS, Case, Laboratory, Observation, case_from
from conformance.edits import Edit, random_edit
from conformance.flavours import FLAVOURS, Flavour, truth
from conformance.folders import entry, ids, source_logs
from conformance.judging import verdict
from repair.priced import duplicated_rows, lost_rows, rows_of_file
from repair.verifying import misjudged, unpromised, verified

from lastgood.errors import LastgoodError
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import BatchUnknownError, CheckpointMissingError
from lastgood.observe.positions import StartChoice
from lastgood.operations.backup import create
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan, Promise
from lastgood.planning.price import Guarantee
from lastgood.recovery.applying import apply_plan, undo
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sinks.delta.step import DeltaStep
from lastgood.steps.step import Step

GOALS = ("resume", "replan", "reposition", "fresh")
REFUSED = "refused"
NO, WHOLE, OLD = "no", "whole", "old"
STABLE_LAG = 1
SINGLE, MIRRORED, TAKEN_BACK, BLIND = 0.5, 0.35, 0.5, 0.15
"""How often there is one damage alone, a mirror, and an undo in between."""
ORPHAN = 0.5
"""How often what is to be planned anew is simply a batch that was not committed."""
ORPHAN_OFFSETS = 3
KEY = "key=cast(value as string)"
NOT_VERIFIED = ("NO_COMMITTED_BATCH", "SOURCE_RANGE_EXPIRED", "SOURCE_TOPIC_MISSING", "SOURCE_TOPIC_RECREATED")
"""Where nothing is left that could be compared."""
_REFUSALS = (RepairRefusedError, BatchUnknownError, CheckpointMissingError)


@dataclass(frozen=True)
class Repair:
    """What is asked for, of which damaged checkpoint."""

    case: Case
    goal: str
    mirror: str = NO
    """Of the healthy checkpoint: `no`, `whole`, or `old`, which lacks its newest batch."""
    is_taken_back: bool = False
    """Whether it is taken back, and then done once more, before Spark starts."""
    is_blind: bool = False
    """Whether nobody says where the sink is."""

    def __str__(self) -> str:
        extra = f", {self.mirror} mirror" + ("", ", taken back once")[self.is_taken_back]
        extra += ("", ", no sink named")[self.is_blind]
        return f"{self.goal}{extra}: {self.case}"

    def to_json(self) -> dict[str, Any]:
        """A line for `fixed.jsonl`."""
        flags = {"mirror": self.mirror, "is_taken_back": self.is_taken_back, "is_blind": self.is_blind}
        return {"goal": self.goal, **flags, **self.case.to_json()}


def repair_from(fields: dict[str, Any]) -> Repair:
    """The repair that `to_json` told."""
    return Repair(
        case_from(fields), fields["goal"], fields["mirror"], fields["is_taken_back"], fields.get("is_blind", False)
    )


@dataclass(frozen=True)
class Outcome:
    """What became of a repair."""

    word: str
    """The word of the plan, or `refused`."""
    wrong: tuple[str, ...] = ()
    """Where it is not as was said; one line each."""
    is_plain: bool = False
    because: str = ""
    lost: int | None = None
    """Rows that the sink does not show; None if Spark was not started, or the sink cannot be read."""
    twice: int | None = None
    """Rows that it shows twice."""


def tried(laboratory: Laboratory, repair: Repair, *, is_verified: bool = True) -> Outcome:
    """Do all of it; also ask `verify --data`, unless that takes too long here."""

    with laboratory.damaged(repair.case, lambda folder: make_mirror(folder, repair.mirror)) as folder:
        before = tree(folder)
        try:
            plan = planned(repair, folder)
        except _REFUSALS as error:
            return Outcome(REFUSED, tuple(changed(before, folder, "plan")), because=str(error))
        wrong = [*changed(before, folder, "plan")]
        try:
            carry_out(plan, folder)
            if repair.is_taken_back and plan.steps:
                wrong += taken_back(repair, plan, before, folder)
        except LastgoodError as error:
            wrong.append(f"{error.condition}: {error}; found {error.found}")
        seen = laboratory.restart(repair.case, folder)
        lost, twice = differing(seen, folder)
        wrong += broken_promise(plan, seen)
        if seen.ended == "finished" and can_be_known(laboratory, repair, before):
            wrong += wrong_price(plan, seen, folder)
            wrong += wrong_by_verify(laboratory, plan, seen, folder) if is_verified else ()
    because = "; ".join(plan.rests_on)
    return Outcome(plan.guarantee.value, tuple(wrong), not plan.steps, because, lost.total(), twice.total())


def make_mirror(folder: Path, kind: str) -> None:
    """Mirror the logs as they are, or as they were before the newest batch."""
    if kind == NO:
        return
    newest = max(ids(folder, "offsets"))
    paths = [entry(folder, log, newest) for log in ("offsets", "commits", *source_logs(folder))]
    aside = {path: path.read_bytes() for path in paths if kind == OLD and path.exists()}
    for path in aside:
        path.unlink()
    create(resolve_target(str(folder / "checkpoint")))
    for path, content in aside.items():
        path.write_bytes(content)


def taken_back(repair: Repair, plan: Plan, before: dict[str, bytes], folder: Path) -> Iterator[str]:
    """Take it back, and do it once more; where that differs."""
    undo(plan.recovery, target=resolve_target(plan.checkpoint), driver_is_dead=True)
    for line in changed(before, folder, "undo"):
        if not (line.startswith("undo: sink/_delta_log/") and line.endswith("is new")):  # a table goes back by versions
            yield line
    again = planned(repair, folder)
    if timeless(again) != timeless(plan):
        yield "after undo another plan is made"
    carry_out(again, folder)


def timeless(plan: Plan) -> tuple[Promise, Guarantee, list[Step]]:
    """What it promises and does, but for the version that a table has reached meanwhile: each undo makes one more."""
    steps = [replace(step, version=0) if isinstance(step, DeltaStep) else step for step in plan.steps]
    return plan.promise, plan.guarantee, steps


def random_repair(laboratory: Laboratory, flavour: Flavour, goals: Sequence[str], seed: str) -> Repair:
    """A repair that the same seed gives again: some goal, after one damage alone or a few together."""
    rng = random.Random(seed)
    goal = rng.choice(goals)
    if goal == "replan" and rng.random() < ORPHAN:
        case = Case(laboratory.version, flavour.name, orphaned(laboratory, flavour), seed)
    elif rng.random() < SINGLE:
        case = Case(laboratory.version, flavour.name, (random_edit(laboratory.healthy(flavour), rng),), seed)
    else:
        case = laboratory.random_case(flavour, seed)
    is_mirrored = goal == "fresh" or rng.random() < MIRRORED
    mirror = rng.choice((WHOLE, WHOLE, OLD)) if is_mirrored else NO
    return Repair(case, goal, mirror, is_taken_back=rng.random() < TAKEN_BACK, is_blind=rng.random() < BLIND)


def orphaned(laboratory: Laboratory, flavour: Flavour) -> tuple[Edit, ...]:
    """What leaves a plan without a commit; of Kafka one that no sink has, as if the driver had died before it wrote."""
    newest = max(ids(laboratory.healthy(flavour), "commits"))
    if flavour.kind == "kafka":
        further = {"batch": newest + 1, "source": 0, "by": ORPHAN_OFFSETS, "crc": "none"}
        return Edit("copy_ahead", {"logs": ["offsets"], "batch": newest, "by": 1}), Edit("move_offset", further)
    return (Edit("remove_entries", {"logs": ["commits"], "batches": [newest], "crc": "none"}),)


def names_sink(repair: Repair) -> bool:
    """Whether there is a sink that can be asked, and somebody says where."""
    return FLAVOURS[repair.case.flavour].sink != "foreachBatch" and not repair.is_blind


def planned(repair: Repair, folder: Path) -> Plan:
    """The plan for it."""
    facts = folder / "kafka.json"
    evidence = EvidenceOptions(
        sinks=(str(folder / "sink"),) if names_sink(repair) else (),
        kafka=str(facts) if facts.exists() else None,
        txn_app_id=None if repair.is_blind else FLAVOURS[repair.case.flavour].txn_app_id,
    )
    options = PlanOptions(
        goal=repair.goal,
        where=StartChoice(stable_lag=STABLE_LAG) if repair.goal == "reposition" else StartChoice(),
        evidence=evidence,
        spark=repair.case.spark,
        fail_on_data_loss=repair.case.fail_on_data_loss,
    )
    return make_plan(resolve_target(str(folder / "checkpoint")), options)


def carry_out(plan: Plan, folder: Path) -> None:
    """Apply it, whatever it costs."""
    file = folder / "plan.json"
    file.write_bytes(plan.accept(plan.needs).to_bytes())
    apply_plan(str(file), driver_is_dead=True)
    file.unlink()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of the query and its sink with its bytes; not what lastgood keeps beside them."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for top in ("checkpoint", "sink")
        for path in (folder / top).rglob("*")
        if path.is_file()
    }


def changed(before: dict[str, bytes], folder: Path, verb: str) -> Iterator[str]:
    """What is not as it was."""
    after = tree(folder)
    for path in sorted({*before, *after}):
        if path not in after or path not in before:
            yield f"{verb}: {path} is {'gone' if path in before else 'new'}"
        elif before[path] != after[path]:
            yield f"{verb}: {path} has changed"


def can_be_known(laboratory: Laboratory, repair: Repair, damaged: dict[str, bytes]) -> bool:
    """Whether anything is left that tells what the query has done.

    A sound entry with another offset is no damage but a forgery; where neither the logs nor a mirror nor a sink tell of
    a batch, it never was; and what a query with state would have shown of input that is gone, nobody counts.
    """
    flavour = FLAVOURS[repair.case.flavour]
    if flavour.is_stateful and any(edit.row == "remove_input" for edit in repair.case.edits):
        return False
    newest = max(ids(laboratory.healthy(flavour, repair.case.made_by), "offsets"))
    moved = [edit.parameters["batch"] for edit in repair.case.edits if edit.row == "move_offset"]
    if any(batch <= newest or f"checkpoint/commits/{batch}" in damaged for batch in moved):
        return False
    is_told = names_sink(repair) or repair.mirror == WHOLE
    return is_told or f"checkpoint/offsets/{newest}" in damaged


def broken_promise(plan: Plan, seen: Observation) -> Iterator[str]:
    """Where Spark does not what was promised."""
    was, promise = verdict(seen), plan.promise
    outcome = None if was.outcome is None else was.outcome.value
    if was.batch is None and seen.ended == "finished":
        return  # there was nothing to read
    if (outcome, was.batch) != (promise.outcome, promise.batch):
        did = f"{outcome} {was.batch}: {seen.ended} {seen.error_text[:300]}"
        yield f"promised {promise.outcome} {promise.batch}, Spark {did}"


def wrong_price(plan: Plan, seen: Observation, folder: Path) -> Iterator[str]:
    """Where rows are lost, or there twice, and the plan said otherwise."""
    if seen.shown is None:
        yield from ("the sink cannot be read" for sink in plan.sinks if sink.known)
        return
    wanted, (lost, twice) = wanted_rows(seen.case, folder), differing(seen, folder)
    if plan.guarantee is not Guarantee.LOSSY and lost:
        yield f"{plan.guarantee.value}, and lost are {told(lost)}"
    if plan.guarantee is Guarantee.EXACTLY_ONCE and twice:
        yield f"exactly_once, and there twice are {told(twice)}"
    if FLAVOURS[seen.case.flavour].is_stateful:
        return
    if not plan.sources and plan.guarantee is not Guarantee.EXACTLY_ONCE:
        return  # nobody can tell how much it is
    if {price.kind for price in plan.sources} - {"kafka", "file"}:
        return
    for what, rows, priced in (
        ("lost", lost, lost_rows(plan, folder) & wanted),
        ("there twice", twice, duplicated_rows(plan, folder)),
    ):
        if rows - priced:
            yield f"{plan.guarantee.value}: {what}, though not in the price, are {told(rows - priced)}"
        if priced - rows and not any(price.bound for price in plan.sources):
            yield f"{plan.guarantee.value}: the price says {what}, and that are not {told(priced - rows)}"


def wrong_by_verify(laboratory: Laboratory, plan: Plan, seen: Observation, folder: Path) -> Iterator[str]:
    """Where `verify --data` counts otherwise, or finds what the plan does not allow; nothing where it cannot tell."""
    flavour = FLAVOURS[seen.case.flavour]
    if (flavour.kind, flavour.sink) != ("kafka", "delta") or seen.shown is None or laboratory.broker is None:
        return
    options = {"kafka": laboratory.broker.bootstrap, "sink": f"delta:{folder / 'sink'}", "keys": [KEY]}
    found = verified(laboratory.spark, folder / "checkpoint", **options)
    if isinstance(found, str):
        yield from () if found in NOT_VERIFIED else (f"verify refuses: {found}",)
        return
    yield from misjudged(found, records_of(folder), Counter(seen.shown))
    yield from unpromised(found, plan.guarantee)


def differing(seen: Observation, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The rows that the sink lacks, and those that it shows too often."""
    wanted, found = wanted_rows(seen.case, folder), Counter(seen.shown or {})
    return wanted - found, found - wanted


def wanted_rows(case: Case, folder: Path) -> Counter[str]:
    """Every row of which a query could ever know."""
    flavour = FLAVOURS[case.flavour]
    if flavour.kind == "kafka":
        return expected(folder)
    if flavour.kind == "rate":
        return truth(flavour, flavour.batches + 1)
    numbers = range(flavour.batches, flavour.batches + NEW_INPUTS)
    unseen = [n for n in numbers if not (folder / "input" / f"f{n:03}.json").exists()]
    return truth(flavour, flavour.batches + NEW_INPUTS) - Counter(key for n in unseen for key in rows_of_file(n))


def told(rows: Counter[str]) -> str:
    """How many, and which."""
    keys = sorted(rows.elements())
    return f"{len(keys)}: {' '.join(keys[:6])}{' ...' if len(keys) > 6 else ''}"
