"""What is to happen in the demo. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lastgood.errors import UsageError
from lastgood.frozen import dataclass

SCENES: Mapping[str, str] = MappingProxyType(
    {
        "a": "the driver is killed in the middle of a batch",
        "b": "an orphan that is too large to ever finish",
        "c": "the checkpoint is deleted while the application is down",
        "d": "the classic recipe, on purpose: the next start is fed with the offsets of CURRENT-3",
        "e": "an outage longer than the retention",
        "f": "the driver is killed while another one stands by",
    }
)
"""By their letters, in the order in which they are played."""

_BATCHES: Mapping[str, int] = MappingProxyType({"b": 8, "c": 2, "d": 5, "e": 2, "f": 4})
"""How many full batches each needs; the first scene that is played gets all the other flights."""
_BATCHES_FIRST = 4
_BATCHES_PER_LIFE = 6
"""A driver is killed in its second to fourth batch, now and then a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is to happen."""

    flights: int = 100_000
    rate: int = 2_000
    """Flights a second, while the driver is killed; elsewhere they come as fast as they go."""
    kills: int = 1
    """How often, in scene `a`."""
    seed: int = 0
    """Decides the instants of the kills."""
    scenes: tuple[str, ...] = tuple(SCENES)
    """Letters of those that are played, in the order of `SCENES`."""

    @property
    def limit(self) -> int:
        """`maxOffsetsPerTrigger`, where the application has one."""
        return self.flights // (sum(_BATCHES.get(each, 0) for each in self.scenes) + _BATCHES_FIRST)

    @property
    def kill_limit(self) -> int:
        """The same in scene `a`: so small that there are batches left for each kill to come into."""
        return max(1, self.first // (_BATCHES_PER_LIFE * (self.kills + 1)))

    @property
    def first(self) -> int:
        """How many flights come before all else."""
        return self.flights - sum(self.share(each) for each in self.scenes)

    def share(self, scene: str) -> int:
        """How many flights come in a scene, beside the first ones."""
        return self.limit * _BATCHES.get(scene, 0)


def parse_scenes(text: str) -> tuple[str, ...]:
    """Read `a,c,e`; they are played in their own order, whatever the order here.

    Raises:
        UsageError: there is no such scene.
    """
    told = {each.strip() for each in text.split(",")} - {""}
    if not told or not told <= SCENES.keys():
        raise UsageError("there is no such scene", found=text or "(empty)", expected=f"of {','.join(SCENES)}")
    return tuple(each for each in SCENES if each in told)
