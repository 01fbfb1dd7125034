"""Why no driver is alive: silence is no proof, so somebody or something has to know."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lastgood.errors import LastgoodError, Retry

CHECK_SECONDS = 60.0


class DriverNotProvenDeadError(LastgoodError):
    """Nothing proves that the driver of a query is dead."""

    condition = "DRIVER_NOT_PROVEN_DEAD"
    exit_code = 54
    retry = Retry.AFTER_CHANGE


def prove_driver_dead(subject: str, *, told: bool, check: Sequence[str] = (), seconds: float = CHECK_SECONDS) -> str:
    """Why no driver is alive; one line for a person.

    Args:
        subject: The checkpoint, for errors.
        told: Whether a person says so (`--driver-is-dead`).
        check: A command whose exit code 0 means that the driver is dead (`driver_check`); empty if there is none.
        seconds: How long the command may take.

    Raises:
        DriverNotProvenDeadError: it is alive, or nobody knows.
    """
    if told:
        return "--driver-is-dead was given"
    if not check:
        raise DriverNotProvenDeadError(
            "nothing proves that the driver is dead",
            subject=subject,
            found="neither driver_check in lastgood.toml nor --driver-is-dead",
            effect="nothing has been changed: a driver that is only silent would go on beside the repair",
            next="see that the application has ended, then add --driver-is-dead",
        )
    try:
        done = subprocess.run([*check], check=False, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DriverNotProvenDeadError(
            "driver_check gave no answer", subject=" ".join(check), found=str(error), expected="exit code 0"
        ) from error
    if done.returncode != 0:
        raise DriverNotProvenDeadError(
            "driver_check does not say that the driver is dead",
            subject=" ".join(check),
            found=f"exit code {done.returncode} {(done.stdout + done.stderr).strip()[-200:]}".strip(),
            expected="exit code 0",
        )
    return f"driver_check: {' '.join(check)}"
