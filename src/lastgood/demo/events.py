"""What the demo itself does, told beside the events of the supervisor; and what each of its scenes came to."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any, ClassVar

from lastgood.frozen import dataclass
from lastgood.sources.kafka.ranges import Ranges, count_offsets, ranges_to_json
from lastgood.supervise.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneStep(Event):
    """Something that the demo does, or prepares."""

    name: ClassVar[str] = "step"
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Event):
    """The driver was killed with SIGKILL."""

    name: ClassVar[str] = "killed"
    pid: int
    batch: int | None
    """Planned and not committed when the driver died; None if there was none."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """How quickly something went; None: it did not come to that."""

    since: str
    """What they are counted from: `the kill`."""
    detected: float
    """Until lastgood knew, and had done what was to be done."""
    restarted: float
    first_batch: float
    """Until the first new batch was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene(Event):
    """A scene is over: what was broken, what lastgood did, and what it says that this costs."""

    name: ClassVar[str] = "scene"
    letter: str
    title: str
    broke: str
    did: str
    guarantee: str
    """`exactly once`, `at least once`, `lossy`."""
    seconds: Seconds
    reread: int
    """Records read again, of those that a batch had read before."""
    lost: Ranges = field(default_factory=dict)
    """Offsets that are not in the table, as lastgood says."""
    doubled: Ranges = field(default_factory=dict)
    """Offsets that are in the table twice, as lastgood says."""
    beside: tuple[str, ...] = ()
    """What else is to be seen; one line each."""

    @property
    def lost_count(self) -> int:
        """How many records are lost."""
        return count_offsets(self.lost)

    @property
    def doubled_count(self) -> int:
        """How many records come twice."""
        return count_offsets(self.doubled)

    def to_json(self) -> dict[str, Any]:
        """As every event; ranges are `[from, to)` in offsets."""
        told = super(Scene, self).to_json()  # noqa: UP008 - with slots it is another class
        told["seconds"] = dataclasses.asdict(self.seconds)
        return {**told, "lost": ranges_to_json(self.lost), "doubled": ranges_to_json(self.doubled)}
