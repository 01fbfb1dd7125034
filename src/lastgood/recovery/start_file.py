"""The file that tells an application where to start: what a plan does to it, as it stands now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.planning.draft import StartEdit
from lastgood.planning.plan import Plan
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import compute_digest, list_files_outside
from lastgood.redaction import redact
from lastgood.sources.kafka.java_properties import parse_properties
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.visible import take_excerpt

_NAMES_SHOWN = 5


def make_start_steps(edit: StartEdit, checkpoint: Location) -> tuple[StartFileStep, ...]:
    """The step that writes the file; none if it says so already.

    Raises:
        UsageError: the file lies in the checkpoint, is a folder, a link or too large, or holds secrets, or what would
            be lost (subclasses).
        StorageError: the storage does not answer (subclasses).
    """
    file = parse_location(edit.file.location)
    storage = open_storage(file)
    found = storage.stat(file)
    real = _resolve_links(file)
    for own in (checkpoint, checkpoint.sibling(WORK_SUFFIX)):
        if f"{real.identity}/".startswith(f"{_resolve_links(own).identity}/"):
            raise _make_refused_error(edit, "a file of the checkpoint", "a file of the application's configuration")
    if file.scheme == "file" and Path(file.path).is_symlink():
        # It would be written beside what it leads to, and whoever reads that would not be told.
        raise _make_refused_error(edit, f"a link to {real}", "the file itself")
    if found is not None and found.is_folder:
        raise _make_refused_error(edit, "a folder", "a file")
    if found is not None and (found.size or 0) > FILE_BYTES_MAX:
        # What is not read would not be written back either.
        raise _make_refused_error(edit, f"{found.size} bytes", f"{FILE_BYTES_MAX} bytes at most")
    before = None
    if found is not None:
        before = storage.read(file, limit=FILE_BYTES_MAX)
    secrets = _list_secrets(before or b"", has_keys=edit.file.key is not None)
    if secrets:
        shown = take_excerpt(secrets, _NAMES_SHOWN).in_a_line
        raise _make_refused_error(
            edit, f"what nobody else may read: {shown}", "a file without any: it is copied beside the checkpoint"
        )
    after = edit.file.content(before, edit.offsets)
    if before == after:
        return ()
    return (StartFileStep(str(file), compute_digest(before), after, edit.why),)


class StartFileNotNamedError(UsageError):
    """A plan that lies beside a checkpoint would write a file outside of it that nobody has named here."""

    condition = "START_FILE_NOT_NAMED"


def require_named(plan: Plan, named: Iterable[str | None], *, is_of_disks: bool = False) -> None:
    """See that a plan out of the lake writes no file but one that was named on this machine.

    Whoever may write to the lake could have put any file and any content into it.

    Args:
        plan: As it was read.
        named: Locations of files, from the command line, the configuration, or this machine's own notes.
        is_of_disks: Only files on a disk count: who has the key has named them, on a machine with other disks.

    Raises:
        StartFileNotNamedError: it would.
    """
    ours = {parse_location(each).identity for each in named if each is not None}
    for text in list_files_outside(plan.steps):
        file = parse_location(text)
        if is_of_disks and file.scheme != "file":
            continue
        if file.identity not in ours:
            raise StartFileNotNamedError(
                "a plan that lies beside the checkpoint writes a file that nobody has named here",
                subject=text,
                found=f"recovery {plan.recovery} of {plan.checkpoint}",
                expected="start_file in lastgood.toml, or --start-file, if it is the application's own file",
                effect="nothing has been changed",
            )


def _list_secrets(content: bytes, *, has_keys: bool) -> list[str]:
    """What a file holds that no copy of it in a plan, or beside a checkpoint, may hold: by its name, or its line.

    Args:
        content: Of the file.
        has_keys: Whether it is read as properties. One that is all offsets is none: a topic may be called `tokens`.
    """
    properties = {}
    if has_keys:
        with contextlib.suppress(UsageError):  # told by who reads it for its offsets
            properties = parse_properties(content)
    told = {name: f"{name}={value}" for name, value in properties.items()}
    found = [name for name, line in told.items() if redact(line) != line]
    if found:
        return found
    lines = enumerate(content.decode("utf-8", "replace").splitlines(), 1)
    hiding = [number for number, line in lines if redact(line) != line]
    return [f"line {number}" for number in hiding]


def _resolve_links(location: Location) -> Location:
    """The same place by its own name, where links of a disk lead to it."""
    if location.scheme == "file":
        return replace(location, path=os.path.realpath(location.path))
    return location


def _make_refused_error(edit: StartEdit, found: str, expected: str) -> UsageError:
    return UsageError(
        "this cannot be the file that tells the application where to start",
        subject=f"--start-file {edit.file.location}",
        found=found,
        expected=expected,
    )
