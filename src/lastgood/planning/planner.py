"""The pure planner: what is known of a query and what is asked for, to the files that change and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Begins, Goal
from lastgood.planning.goals.kinds import GOAL_KINDS
from lastgood.planning.plan import Alternative
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import WORDS
from lastgood.query.observation import Observation
from lastgood.query.position import locate
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.presumed import drop_presumed

_BATCHES_READ = 4
"""The newest batches of each log that any goal looks at, beside those back to what the sinks show."""


def draft(observed: Observation, goal: Goal, spark: SparkVersion) -> Draft:
    """Which files change so that the query does what is asked for, and what can be said of it then.

    Args:
        observed: Checkpoint, sinks, sources and mirror. The checkpoint is read with `count_batches_wanted` batches at
            least, and the sinks are asked about the query id of the checkpoint; if that is lost, about the mirror's.
        goal: What is asked for.
        spark: The version that will run it.

    Raises:
        RepairRefusedError: it cannot be done in a way of which anything can be promised.
    """
    observed = drop_presumed(observed)
    try:
        found = _draft_goal(observed, goal, spark)
    except RepairRefusedError as error:
        error.alternatives = _list_alternatives(observed, goal, spark)
        raise
    if found.guarantee is Guarantee.EXACTLY_ONCE:
        return found
    return replace(
        found, alternatives=rank_alternatives((*found.alternatives, *_list_alternatives(observed, goal, spark)))
    )


def count_batches_wanted(observed: Observation) -> int:
    """How many of the newest batches the planner has to see: back to what the sinks show."""
    position = locate(observed.checkpoint, observed.sinks)
    newest = max(position.planned or 0, position.committed or 0)
    shown = [sink.last_batch for sink in observed.sinks if sink.known and sink.last_batch is not None]
    return newest - min((position.committed or 0, newest, *shown)) + _BATCHES_READ


def _draft_goal(observed: Observation, goal: Goal, spark: SparkVersion) -> Draft:
    return GOAL_KINDS[goal.name].draft(observed, goal, spark)


def _list_alternatives(observed: Observation, goal: Goal, spark: SparkVersion) -> tuple[Alternative, ...]:
    """The other goals, the best first, and last those that are refused as well."""
    is_gone = observed.checkpoint.newest_offsets is None and not observed.repair.mirror
    if is_gone and GOAL_KINDS[goal.name].begins is Begins.ANEW:
        return ()  # nothing is left that could be gone on with
    found: list[Alternative] = []
    instead: list[Alternative] = []
    for kind in GOAL_KINDS.values():
        offered = [_make_alternative(observed, *offer, spark) for offer in kind.offer(observed, goal)]
        if any(each.guarantee is None for each in offered):
            instead += [_make_alternative(observed, *offer, spark) for offer in kind.offer_instead(observed)]
        found += offered
    return rank_alternatives((*found, *instead))


def list_alternatives(
    observed: Observation, goals: Iterable[tuple[Goal, tuple[str, ...]]], spark: SparkVersion
) -> tuple[Alternative, ...]:
    """What further goals come to, each with the options that ask for it."""
    return tuple(_make_alternative(observed, goal, options, spark) for goal, options in goals)


def rank_alternatives(found: Iterable[Alternative]) -> tuple[Alternative, ...]:
    """The best first, and last those that are refused as well; what is refused twice for one reason stands once."""
    return tuple(sorted(dict.fromkeys(found), key=_rank_word))


def _rank_word(way: Alternative) -> int:
    if way.guarantee is None:
        return len(WORDS)
    return WORDS.index(way.guarantee)


def _make_alternative(observed: Observation, goal: Goal, options: tuple[str, ...], spark: SparkVersion) -> Alternative:
    command = observed.command("plan", "--goal", goal.name, *options)
    try:
        found = _draft_goal(observed, goal, spark)
    except RepairRefusedError as error:
        return Alternative(goal.name, None, error.sentence)
    return Alternative(goal.name, found.guarantee, _describe_draft(found, goal), command)


def _describe_draft(found: Draft, goal: Goal) -> str:
    """One line: what it changes, and on what its word rests."""
    if found.is_plain:
        what = "Spark's own restart"
    else:
        changed = len(found.edits) + len(found.moves)
        what = "1 file changes" if changed == 1 else f"{changed} files change"
    if found.sinks:
        what += f", and the mark in {found.sinks[0].location}"
    tells_start = GOAL_KINDS[goal.name].tells_start
    ground = None
    if found.rests_on:
        ground = found.rests_on[0 if tells_start else -1]
    if tells_start:
        start = f"from {getattr(goal, 'chosen', '')}; "
    else:
        start = ""
    if ground:
        return f"{start}{what}; rests on {ground}"
    return f"{start}{what}"
