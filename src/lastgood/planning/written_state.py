"""What a query has written of its state, and what a state that is made anew writes again, by its output mode. Pure.

Append: what was written is told by the watermark, and never comes again. Complete: each batch writes all of the state,
so that it comes again as it was. Update: all that the state holds comes again, with the value that it has.
"""

from __future__ import annotations

from lastgood.frozen import dataclass
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import RecomputeGoal
from lastgood.planning.price import Guarantee
from lastgood.planning.read_again import SAME_OF_THE_SAME
from lastgood.planning.repairs.repair import refuse
from lastgood.planning.standing import Standing
from lastgood.query.replays import can_rebuild
from lastgood.query.windows import Told, find_output_mode, is_aggregation, is_state_lost, is_windowed
from lastgood.sinks.evidence import APPEND, UPDATE

_ORDER = "the assumption that no aggregate goes by the order of rows, as first, last and collect_list do"


@dataclass(frozen=True, slots=True)
class WrittenState:
    """How a query writes its state, as far as it can be made anew."""

    output_mode: str
    rests_on: tuple[str, ...]
    """One line each."""
    is_windowed: bool = False
    """Whether windows are closed by a watermark: what belongs to closed ones is not needed."""

    @property
    def word(self) -> Guarantee:
        """The best that can be said where it is made anew."""
        if self.output_mode == UPDATE:
            return Guarantee.AT_LEAST_ONCE
        return Guarantee.EXACTLY_ONCE


def find_written_state(standing: Standing, goal: RecomputeGoal) -> WrittenState:
    """Find out how the query writes what its state holds, from the files and by what a person says.

    Raises:
        RepairRefusedError: there is none, nothing tells, or it is not of one aggregation that can be made anew.
    """
    observed = standing.observed
    if not observed.is_stateful and observed.state_in_doubt is None and not goal.appends_windows:
        raise refuse(
            standing,
            "the query keeps no state that could be made anew",
            found="no folder state, and no batch that tells of one",
            expected="a query with an aggregation; or --appends-windows, by which you say that it is one",
            next=observed.command("plan"),
        )
    mode, ground = _choose_output_mode(standing, goal)
    windowed = is_windowed(standing.observed)
    if mode == APPEND:
        kept = _require(standing, windowed, "one windowed aggregation with a watermark", is_said=goal.appends_windows)
        return WrittenState(mode, (kept, ground, SAME_OF_THE_SAME, _ORDER), is_windowed=True)
    is_said = goal.output_mode is not None
    kept = _require(standing, is_aggregation(standing.observed), "one aggregation", is_said=is_said)
    if goal.starts:
        raise refuse(
            standing,
            "a state of which more than closed windows was written is made of all that was read",
            subject="--window",
            found=f"a query in output mode {mode}",
            expected="output mode append; or nothing said of how long windows are",
        )
    if mode == UPDATE:
        again = "what the state holds is sent again, with the values that it has: once in a sink that upserts by key"
        return WrittenState(mode, (kept, ground, again, SAME_OF_THE_SAME, _ORDER), is_windowed=windowed.is_so is True)
    return WrittenState(mode, (kept, ground, SAME_OF_THE_SAME, _ORDER))


def _choose_output_mode(standing: Standing, goal: RecomputeGoal) -> tuple[str, str]:
    """The output mode, and by what it is known."""
    told, said = find_output_mode(standing.sinks), goal.output_mode
    if said is None and goal.appends_windows:
        said = APPEND
    if told.is_told and told.name is not None and said in (None, told.name):
        return told.name, told.because
    if told.is_told or said is None:
        expected = "a query in output mode append or complete"
        if not told.is_told:
            expected += "; or --appends-windows, or --output-mode MODE, by which you say how it writes"
        elif said is not None:
            expected = f"a query in output mode {said}, as you say"
        raise _refuse(standing, told.because, expected)
    return said, f"your word that it is a query in output mode {said}: {told.because}"


def _require(standing: Standing, told: Told, wanted: str, *, is_said: bool) -> str:
    """By what it is known that the state is what is wanted."""
    if told.is_so:
        return told.because
    if told.is_so is None and is_said:
        return f"your word that it is {wanted}: {told.because}"
    expected = wanted
    if told.is_so is None:
        expected += ", or --appends-windows, or --output-mode MODE, by which you say that it is"
    raise _refuse(standing, told.because, expected)


def _refuse(standing: Standing, found: str, expected: str) -> RepairRefusedError:
    return refuse(
        standing,
        "what of this state is written cannot be told",
        found=found,
        expected=expected,
        effect="rows would be written twice, or not at all",
        next=_find_other_way(standing),
    )


def _find_other_way(standing: Standing) -> str:
    """What to type where the state is not that of one aggregation."""
    observed = standing.observed
    if is_state_lost(observed.checkpoint) and can_rebuild(observed):
        return observed.asked.about(observed.location).make_rebuild_command()
    return observed.command("diagnose")
