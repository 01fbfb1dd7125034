"""A load that has begun, and the one that is asked for now: whether that goes on with it, and what it is then. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from lastgood.frozen import dataclass
from lastgood.load.specification import InputChangedError, InputFile, LoadDiffersError, LoadSpec

_ANEW = "--checkpoint with a location of its own"
_EVOLVE = f"--evolve added to the same command, where there are more columns than before; or {_ANEW}"
_REPROCESS = "--reprocess FILE added to the same command: it is loaded as it is now, and the rows of what it was stay"


@dataclass(frozen=True, slots=True)
class FilesRead:
    """How many files of a load, from the first on, were read."""

    whole: int
    """Of so many everything is committed."""
    planned: int
    """So many are in a plan, or begin where one ends."""


def go_on(
    begun: LoadSpec,
    asked: LoadSpec,
    *,
    continued: Collection[str] = (),
    follows_growth: bool = False,
    evolves: bool = False,
) -> LoadSpec:
    """The load that is asked for, with the columns of the one that has begun; what it is comes from who asks for it.

    Args:
        begun: As it began.
        asked: As it is asked for now.
        continued: Locations of the files that have what they had before, and more behind it.
        follows_growth: Whether what was added to the last file is read too.
        evolves: Whether the columns may be others; which they are is found out later.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: a file is not what it was.
    """
    _require_same_load(begun, asked, evolves=evolves)
    *others, last = zip(begun.files, asked.files, strict=True)
    for before, now in others:
        _require_same(before, now)
    before, now = last
    if now.location in continued:
        _require_followed(before, now, follows_growth=follows_growth)
    else:
        _require_same(before, now)
    files = [replace(now, unpacked=before.unpacked) for before, now in zip(begun.files, asked.files, strict=True)]
    return _take_on(begun, asked, files)


def go_on_in_folder(
    begun: LoadSpec,
    asked: LoadSpec,
    read: FilesRead,
    reprocessed: Collection[str] = (),
    *,
    evolves: bool = False,
) -> LoadSpec:
    """As `go_on`, of a folder: files that came since follow those that were there; one that is read may be gone.

    Args:
        begun: As it began.
        asked: As it is asked for now, with the files that lie there now.
        read: Which of its files were read.
        reprocessed: Locations of files that are read once more, as they are now, if they were written again since.
        evolves: Whether the columns may be others; which they are is found out later.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: a file of which something was read is not what it was, or is gone before it was read whole.
    """
    _require_same_load(begun, asked, evolves=evolves)
    there = {each.location: each for each in asked.files}
    kept = begun.files[: read.planned]
    again = []
    for number, before in _list_newest(kept):
        now = there.pop(before.location, None)
        is_whole = number < read.whole
        if now is None and not is_whole:
            raise _make_changed_error(before, "it is gone, and was not read whole")
        if now is None:
            continue
        if is_whole and now.location in reprocessed and any(before.list_changes(now)):
            again.append(now)
        else:
            _require_same(before, now, next=_REPROCESS if is_whole else None)
    looked = {replace(each, unpacked=None): each for each in begun.files}
    new = [looked.get(each, each) for each in (*again, *there.values())]
    return _take_on(begun, asked, (*kept, *new))


def go_on_in_table(begun: LoadSpec, asked: LoadSpec, *, evolves: bool = False) -> LoadSpec:
    """As `go_on`, of a table: rows that came behind its last bound follow.

    Raises:
        LoadDiffersError: it is another load.
        InputChangedError: under the same name there is another table.
    """
    _require_same_load(begun, asked, evolves=evolves)
    (before,), (now,) = begun.files, asked.files
    if before.head != now.head:
        raise make_table_error(f"{now.location}: a table with the id {now.head}, and not {before.head}")
    has_this_version = before.tail == now.tail != ""
    may_have_grown = asked.may_have_grown and (begun.may_have_grown or not has_this_version)
    looked = replace(asked, bounds=begun.bounds, may_have_grown=may_have_grown)
    size = before.size if asked.starting_version is None else now.size
    return _take_on(begun, looked, [replace(now, size=size)])


def make_table_error(found: str) -> InputChangedError:
    """The error for a table of which rows that were read are not what they were, in which `found` names it."""
    return InputChangedError(
        "the table that is loaded is not what it was",
        found=found,
        expected="the table with which the load began, to which rows are only added, behind those that were read",
        effect="what was loaded stays",
        next="--verify added to the same command names the rows; --undo takes the load back, to load it anew",
    )


def _take_on(begun: LoadSpec, asked: LoadSpec, files: Iterable[InputFile]) -> LoadSpec:
    """What is asked for, with what was found out of it when it began."""
    return replace(
        asked,
        columns=begun.columns,
        columns_at_first=begun.columns_at_first,
        chunk=begun.chunk,
        files=tuple(files),
    )


def _list_newest(files: Sequence[InputFile]) -> Iterator[tuple[int, InputFile]]:
    """Each file with its number; of one that was read once more only as it was then."""
    newest = {each.location: number for number, each in enumerate(files)}
    return ((number, files[number]) for number in sorted(newest.values()))


def _require_same_load(begun: LoadSpec, asked: LoadSpec, *, evolves: bool) -> None:
    of_columns = list(_list_differences_of_columns(begun, asked))
    of_others = list(_list_differences(begun, asked))
    differing = of_others if evolves else [*of_others, *of_columns]
    if differing:
        found, expected = differing[0]
        raise LoadDiffersError(
            "the load that has begun on this checkpoint is another one",
            found=found,
            expected=expected,
            effect="nothing was read or written",
            next=f"the command with which it began; or {_ANEW if of_others else _EVOLVE}",
        )


def _list_differences(begun: LoadSpec, asked: LoadSpec) -> Iterator[tuple[str, str]]:
    """What is another, and what it was."""
    if _show_inputs(asked) != _show_inputs(begun):
        yield _show_inputs(asked), _show_inputs(begun)
    if asked.table != begun.table:
        yield f"the table {asked.table}", begun.table
    if asked.quarantine != begun.quarantine:
        yield _show_quarantine(asked), _show_quarantine(begun)
    if _show_order(asked) != _show_order(begun):
        yield _show_order(asked), _show_order(begun)
    if asked.form is not begun.form:
        yield f"files of {asked.form.value}", begun.form.value
    if dict(asked.options) != dict(begun.options):
        yield f"the options {_show_options(asked)}", _show_options(begun)
    if asked.mode is not begun.mode:
        yield f"the mode {asked.mode.value}", begun.mode.value


def _list_differences_of_columns(begun: LoadSpec, asked: LoadSpec) -> Iterator[tuple[str, str]]:
    if asked.schema != begun.schema:
        yield f"the schema {asked.schema or 'as Spark finds it'}", begun.schema or "as Spark finds it"
    if asked.infers != begun.infers:
        yield _show_inferring(asked), _show_inferring(begun)


def _show_inputs(spec: LoadSpec) -> str:
    if spec.folder is not None:
        return f"the folder {spec.folder}"
    return f"the files {', '.join(each.location for each in spec.files)}"


def _show_order(spec: LoadSpec) -> str:
    if spec.starting_version is not None:
        return f"--starting-version {spec.starting_version}"
    return "no --order-by" if spec.order_by is None else f"--order-by {spec.order_by}"


def _show_quarantine(spec: LoadSpec) -> str:
    return "no --quarantine" if spec.quarantine is None else f"--quarantine {spec.quarantine}"


def _show_inferring(spec: LoadSpec) -> str:
    return "--infer-schema" if spec.infers else "no --infer-schema"


def _show_options(spec: LoadSpec) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(spec.options.items())) or "none"


def _require_same(before: InputFile, now: InputFile, next: str | None = None) -> None:  # noqa: A002
    changes = list(before.list_changes(now))
    if changes:
        raise _make_changed_error(before, "; ".join(changes), next=next)


def _require_followed(before: InputFile, now: InputFile, *, follows_growth: bool) -> None:
    """See that what a file has grown by may be read on."""
    if not before.is_ended:
        found = f"it has grown to {now.size} bytes, and its last record had no line end: what follows may belong to it"
        raise _make_changed_error(before, found)
    if not follows_growth:
        found = f"it has grown to {now.size} bytes"
        raise _make_changed_error(before, found, next="--follow-growth added to the same command")


def _make_changed_error(before: InputFile, found: str, next: str | None = None) -> InputChangedError:  # noqa: A002
    return InputChangedError(
        "a file of the load is not what it was",
        subject=before.location,
        found=found,
        expected=f"the file of {before.size} bytes with which the load began",
        effect="nothing was read or written",
        next=next or f"{_ANEW}, to load the files anew",
    )
