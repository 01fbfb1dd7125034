"""Why no driver is alive: silence is no proof, so somebody or something has to know."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lastgood.errors import LastgoodError, Retry
from lastgood.planning.plan import Plan
from lastgood.redaction import redact_told, redact_words
from lastgood.settings.config import Config
from lastgood.settings.target import list_words_of_death
from lastgood.storage.reading import parse_location

CHECK_SECONDS = 60.0
_NEVER_OVERWRITTEN = ("file:", "hdfs:")


class DriverNotProvenDeadError(LastgoodError):
    """Nothing proves that the driver of a query is dead."""

    condition = "DRIVER_NOT_PROVEN_DEAD"
    exit_code = 54
    retry = Retry.AFTER_CHANGE


def explain_driver_shut_out(plan: Plan) -> str | None:
    """Why it does not matter whether a driver is alive; one line for a person, None if it does.

    A driver that is alive stands inside the newest plan, which is not committed. The seal lets none start; the number
    of that batch is used up for good, in the one table that the query writes and in the logs, so that it dies without
    a trace, sooner or later. Only where a file that is there cannot be written over by Spark either.
    """
    used = [step for step in plan.steps if step.used_up is not None]
    texts = [plan.checkpoint, *(step.path for step in used)]
    places = (parse_location(text).identity for text in texts)
    if len(used) != 1 or len(plan.sinks) != 1 or not all(place.startswith(_NEVER_OVERWRITTEN) for place in places):
        return None
    return f"none is needed: batch {used[0].used_up} is used up, and a driver inside it can write nothing any more"


def list_words_needed(checkpoint: str, config: Config, plan: Plan | None = None) -> tuple[str, ...]:
    """What a person who types `apply` or `undo` here has to add, having seen that the driver is dead; often nothing.

    Args:
        checkpoint: Location of the query.
        config: Of this command.
        plan: Is to be carried out; None: a recovery is to be taken back, for which the driver has to be dead.
    """
    if plan is not None and (not plan.steps or explain_driver_shut_out(plan) is not None):
        return ()
    return list_words_of_death(checkpoint, config)


def prove_driver_dead(
    subject: str,
    *,
    told: bool,
    check: Sequence[str] = (),
    known: str | None = None,
    seconds: float = CHECK_SECONDS,
) -> str:
    """Why no driver is alive; one line for a person.

    Args:
        subject: The checkpoint, for errors.
        told: Whether a person says so (`--driver-is-dead`).
        check: A command whose exit code 0 means that the driver is dead (`driver_check`); empty if there is none.
        known: Why the caller knows it by itself; a `check` that there is has to agree.
        seconds: How long the command may take.

    Raises:
        DriverNotProvenDeadError: it is alive, or nobody knows.
    """
    if told:
        return "--driver-is-dead was given"
    if not check and known is not None:
        return known
    if not check:
        raise DriverNotProvenDeadError(
            "nothing proves that the driver is dead",
            subject=subject,
            found="neither driver_check in lastgood.toml nor --driver-is-dead",
            effect="nothing has been changed: a driver that is only silent would go on beside the repair",
            next="see that the application has ended, then add --driver-is-dead",
        )
    try:
        done = subprocess.run(
            [*check],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            start_new_session=True,  # else Ctrl-C would end it too, and look like an answer
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverNotProvenDeadError(
            "driver_check gave no answer",
            subject=" ".join(redact_words(check)),
            found=str(error),
            expected="exit code 0",
        ) from error
    if done.returncode != 0:
        raise DriverNotProvenDeadError(
            "driver_check does not say that the driver is dead",
            subject=" ".join(redact_words(check)),
            found=f"exit code {done.returncode} {redact_told((done.stdout + done.stderr).strip())[-200:]}".strip(),
            expected="exit code 0",
        )
    return f"driver_check: {' '.join(redact_words(check))}"
