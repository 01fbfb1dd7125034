"""The file that tells an application where to start: what a plan does to it, as it stands now."""

from __future__ import annotations

from lastgood.errors import UsageError
from lastgood.recovery.draft import StartEdit
from lastgood.recovery.mirror import WORK_SUFFIX
from lastgood.recovery.start_steps import StartFileStep
from lastgood.recovery.steps import digest
from lastgood.recovery.written_file import LOG_BYTES_MAX
from lastgood.storage import Location, open_storage, parse_location


def start_steps(edit: StartEdit, checkpoint: Location) -> tuple[StartFileStep, ...]:
    """The step that writes the file; none if it says so already.

    Raises:
        UsageError: the file lies in the checkpoint, or is a folder, or holds what would be lost (subclasses).
        StorageError: the storage does not answer (subclasses).
    """
    file = parse_location(edit.file.location)
    storage = open_storage(file)
    found = storage.stat(file)
    own = (checkpoint.identity, checkpoint.sibling(WORK_SUFFIX).identity)
    if any(f"{file.identity}/".startswith(f"{each}/") for each in own):
        raise _refused(edit, "a file of the checkpoint", "a file of the application's configuration")
    if found is not None and found.is_folder:
        raise _refused(edit, "a folder", "a file")
    before = None if found is None else storage.read(file, limit=LOG_BYTES_MAX)
    after = edit.file.content(before, edit.offsets)
    return () if before == after else (StartFileStep(str(file), digest(before), after, edit.why),)


def _refused(edit: StartEdit, found: str, expected: str) -> UsageError:
    return UsageError(
        "this cannot be the file that tells the application where to start",
        subject=f"--start-file {edit.file.location}",
        found=found,
        expected=expected,
    )
