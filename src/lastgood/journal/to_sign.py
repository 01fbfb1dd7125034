"""What lies beside a checkpoint and could be signed by hand, for a person to look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lastgood.frozen import dataclass
from lastgood.journal.signed_files import SignedFile
from lastgood.settings.target import Target
from lastgood.signing import SignatureStanding


@dataclass(frozen=True, slots=True)
class ToSign:
    """What lies beside a checkpoint, and of it what is not signed by the key that signs."""

    target: Target
    checkpoint: str
    key: str
    """The id of the key that signs."""
    files: tuple[SignedFile, ...]
    """All that carries a signature, or should."""

    @property
    def wanted(self) -> tuple[SignedFile, ...]:
        """What would be signed."""
        return tuple(each for each in self.files if each.damage is None and not self._is_signed(each))

    @property
    def damaged(self) -> tuple[SignedFile, ...]:
        """What nobody can sign."""
        return tuple(each for each in self.files if each.damage is not None)

    def _is_signed(self, each: SignedFile) -> bool:
        return each.standing is SignatureStanding.SIGNED and each.by == self.key

    def to_json(self, *, signed: bool) -> dict[str, Any]:
        """What `key sign --format json` prints."""
        wanted = set(map(id, self.wanted))
        return {
            "checkpoint": self.checkpoint,
            "key": self.key,
            "signed": signed,
            "files": [
                {
                    "file": str(each.file),
                    "what": each.purpose,
                    "standing": each.standing.value,
                    "by": each.by,
                    "damage": each.damage,
                    "to_sign": id(each) in wanted,
                }
                for each in self.files
            ],
        }


def count_by_purpose(files: Iterable[SignedFile]) -> str:
    """How many of each kind, in one line."""
    kinds: dict[str, int] = {}
    for each in files:
        kinds[each.purpose] = kinds.get(each.purpose, 0) + 1
    words = []
    for kind, number in kinds.items():
        plural = "" if number == 1 else "s"
        words.append(f"{number} {kind}{plural}")
    return ", ".join(words)
