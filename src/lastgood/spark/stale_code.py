"""Whether the code of a query goes with its checkpoint, before Spark touches that."""

from __future__ import annotations

import time
from typing import Any

from lastgood.errors import LastgoodError, Retry, StorageError, format_command_line
from lastgood.frozen import dataclass
from lastgood.settings.target import Target, resolve_target
from lastgood.spark.agent import fit
from lastgood.spark.agent.sessions import is_connect
from lastgood.spark.kept_code import note_code, read_kept
from lastgood.storage.writing import open_writable
from lastgood.values import JsonValue, make_form
from lastgood.visible import take_first_lines

_SEVERE = (fit.FAILS, fit.REUSED)
_EFFECTS = {
    fit.FAILS: "Spark would not go on",
    fit.REUSED: "Spark would take it for its own, without an error",
    fit.RENAMED: "Spark would take it for its own, which is right only if it was renamed",
}


class StaleCodeError(LastgoodError):
    """The code of a query does not go with what its checkpoint holds."""

    condition = "CODE_DOES_NOT_FIT"
    exit_code = 88
    retry = Retry.AFTER_CHANGE

    fit: Fit
    """All that was compared."""


@dataclass(frozen=True, slots=True)
class Misfit(JsonValue):
    """One thing that does not go with what is kept."""

    json = make_form()

    subject: str
    """Below the checkpoint, such as `state/0` or `sources/1`; `windows`."""
    found: str
    """In the code."""
    expected: str
    """By the checkpoint."""
    outcome: str
    """`fails`: Spark stops by itself; `reused`: it takes what is there for its own; `renamed`: so it does, and only a
    person knows whether it is another name for the same."""

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.subject}: {self.found}; there: {self.expected}. {_EFFECTS[self.outcome]}"


@dataclass(frozen=True, slots=True)
class Fit(JsonValue):
    """How the code of a query goes with its checkpoint."""

    json = make_form()

    checkpoint: str
    misfits: tuple[Misfit, ...] = ()
    """Empty: all that was compared goes with it."""
    unknowns: tuple[str, ...] = ()
    """What was not compared, and why; one line each."""


def guard(query: Any, checkpoint: str, *, version: str | None = None, accept_renamed: bool = False) -> Fit:
    """Compare a query that is about to start with its checkpoint: its sources, and what it keeps as state.

    Spark goes by places and types: it takes the second source for the second one, and a sum for a maximum. What fits is
    noted down beside the checkpoint, so that the next code is held against it: other windows are told by that alone.

    Example::

        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        lastgood.spark.guard(writer, checkpoint)
        writer.start()

    Args:
        query: A streaming DataFrame, or its writer; of a classic session.
        checkpoint: Location of the checkpoint, or a name of `lastgood.toml`.
        version: What the application calls itself; it is noted down.
        accept_renamed: You say that columns of another name are the same.

    Returns:
        What was compared; `unknowns` says what could not be, as of a client of Spark Connect.

    Raises:
        StaleCodeError: the code does not go with it; nothing was changed.
        LocationInvalidError, ExtraMissingError, StorageError: the checkpoint cannot be read.
    """
    target = resolve_target(checkpoint)
    location = target.location
    frame = getattr(query, "_df", query)
    if is_connect(frame.sparkSession):
        told = "nothing was compared: a client of Spark Connect does not see how its queries are planned"
        return Fit(str(location), unknowns=(told,))
    from lastgood.spark.agent import shape  # noqa: PLC0415 - a client of Spark Connect has no py4j

    storage = open_writable(location)
    code = shape.describe(frame, shape.find_output_mode(query))
    misfits = tuple(Misfit(**each) for each in fit.compare(read_kept(storage, location), code))
    found = Fit(str(location), misfits)
    if any(each.outcome in _SEVERE or not accept_renamed for each in misfits):
        raise make_stale_error(target, found)
    try:
        note_code(storage, location, code, now_ms=int(time.time() * 1000), version=version)
    except StorageError as error:  # the query can start all the same
        found = Fit(found.checkpoint, misfits, (f"the code could not be noted down: {error.sentence}",))
    return found


def make_stale_error(target: Target, found: Fit) -> StaleCodeError:
    """What a person is told of code that does not go with the checkpoint."""
    is_of_state = all(each.subject.startswith(("state", "windows")) for each in found.misfits)
    words = ("plan", target.typed, "--goal", "recompute") if is_of_state else ("inspect", target.typed)
    error = StaleCodeError(
        "the code of the query does not go with its checkpoint",
        subject=str(target.location),
        found="; ".join(take_first_lines(str(each) for each in found.misfits)),
        expected="the sources in their order, and the same state, or a state that is made anew",
        effect="the query was not started, and nothing has been changed",
        next=format_command_line(*words),
    )
    error.fit = found
    return error
