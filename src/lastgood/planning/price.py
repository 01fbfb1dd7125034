"""What a plan costs: which records are read again, lost, or written twice; and the word for it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from lastgood.frozen import dataclass
from lastgood.sources.kafka.ranges import Offsets, Ranges, count_offsets
from lastgood.values import JsonValue, make_form
from lastgood.visible import take_excerpt

_FILES_SHOWN = 5


class Guarantee(enum.Enum):
    """What can be said of every record, seen by a reader of the sink."""

    EXACTLY_ONCE = "exactly_once"
    """It is there once."""
    AT_LEAST_ONCE = "at_least_once"
    """It is there, perhaps twice."""
    LOSSY = "lossy"
    """Some are not there."""


class Waiver(enum.Enum):
    """What a person may accept (`--accept`)."""

    DUPLICATES = "duplicates"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class SourcePrice(JsonValue):
    """The price at one source of the query. Ranges are offsets, not records."""

    json = make_form(
        "index kind reread=_told_reread lost=_told_lost duplicated=_told_duplicated reread_from duplicated_from bound",
        left_out="reread_from duplicated_from",
        prepare=lambda told: {**told, **_split_files(told)},
    )

    index: int
    """By its line in the offset log."""
    kind: str
    """`kafka`, `file`, `delta`, `other`."""
    reread: Ranges = field(default_factory=dict)
    """Read by a batch before, and to be read again."""
    lost: Ranges = field(default_factory=dict)
    """Never shown by a sink, and not read any more."""
    duplicated: Ranges = field(default_factory=dict)
    """Shown by a sink already, and written again."""
    reread_from: Offsets = field(default_factory=dict)
    """From where on partitions are read again of which nobody wrote down how far they were read."""
    duplicated_from: Offsets = field(default_factory=dict)
    """From where on partitions are written again of which nobody wrote down how far the sinks show them."""
    bound: bool = False
    """True if nobody can know exactly: this is the most it can be, but for partitions that are named without an end."""
    reread_files: tuple[str, ...] = ()
    lost_files: tuple[str, ...] = ()
    duplicated_files: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """The word for this source alone."""
        if self.lost or self.lost_files:
            return Guarantee.LOSSY
        return Guarantee.AT_LEAST_ONCE if self.writes_twice else Guarantee.EXACTLY_ONCE

    @property
    def writes_twice(self) -> bool:
        """Whether anything that a sink shows may be written again."""
        return bool(self.duplicated or self.duplicated_from or self.duplicated_files)

    @property
    def reread_count(self) -> int:
        """How many offsets or files are read again, of those whose number is known."""
        return len(self.reread_files) + count_offsets(self.reread)

    @property
    def _told_reread(self) -> Ranges | tuple[str, ...]:
        """Ranges, or the files of a source of files: of either kind one of the two is empty."""
        return self.reread_files or self.reread

    @property
    def _told_lost(self) -> Ranges | tuple[str, ...]:
        return self.lost_files or self.lost

    @property
    def _told_duplicated(self) -> Ranges | tuple[str, ...]:
        return self.duplicated_files or self.duplicated

    @property
    def lines(self) -> tuple[str, ...]:
        """The same for a person; empty if it costs nothing."""
        told = []
        at_most = "at most " if self.bound else ""
        for what, words in (("reread", "read again"), ("lost", "lost"), ("duplicated", "written twice")):
            files: tuple[str, ...] = getattr(self, f"{what}_files")
            spans = [
                (f"{topic}/{partition}", start, end)
                for topic, partitions in getattr(self, what).items()
                for partition, found in partitions.items()
                for start, end in found
            ]
            if spans:
                ranges = take_excerpt(f"{name} [{start:,}, {end:,})" for name, start, end in spans).in_a_line
                total = sum(end - start for _, start, end in spans)
                told.append(f"source {self.index}: {words} {at_most}{total:,} offsets: {ranges}")
            if files:
                shown = take_excerpt(files, _FILES_SHOWN).in_a_line
                told.append(f"source {self.index}: {words} {at_most}{len(files)} files: {shown}")
            if open_ended := getattr(self, f"{what}_from", {}):
                begins = [f"{topic}/{each} from {at:,} on" for topic, p in open_ended.items() for each, at in p.items()]
                told.append(
                    f"source {self.index}: {words}, and nobody wrote down how much: {take_excerpt(begins).in_a_line}"
                )
        return tuple(told)


def _split_files(told: Mapping[str, Any]) -> dict[str, Any]:
    """What stands under one key, by the names of the two fields."""
    found: dict[str, Any] = {}
    for name in ("reread", "lost", "duplicated"):
        is_files = isinstance(told[name], list)
        if is_files:
            found[f"{name}_files"] = told[name]
        else:
            found[f"{name}_files"] = []
        if is_files:
            found[name] = {}
        else:
            found[name] = told[name]
    return found


def list_waivers_needed(
    guarantee: Guarantee, accepted: Iterable[Waiver], *, duplicates: bool = False
) -> tuple[Waiver, ...]:
    """The waivers that a plan of this word still needs.

    Args:
        guarantee: Its word.
        accepted: What a person has accepted.
        duplicates: Whether a lossy plan writes records twice as well.
    """
    wanted: Mapping[Guarantee, tuple[Waiver, ...]] = {
        Guarantee.EXACTLY_ONCE: (),
        Guarantee.AT_LEAST_ONCE: (Waiver.DUPLICATES,),
        Guarantee.LOSSY: (Waiver.LOSS, Waiver.DUPLICATES) if duplicates else (Waiver.LOSS,),
    }
    return tuple(waiver for waiver in wanted[guarantee] if waiver not in set(accepted))
