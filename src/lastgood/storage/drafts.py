"""Names of files that lastgood has not finished writing, so that what a kill leaves of them can be told from Spark's.

Spark's own are `.NAME.UUID.tmp`; it looks at neither. Pure.
"""

from __future__ import annotations

import re
import uuid

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DRAFT = re.compile(rf"\.lastgood-draft\..+\.{_UUID}\.tmp", re.ASCII | re.DOTALL)


def make_draft_name(name: str) -> str:
    """A name for what is to become the file `name`, unlike any that is there, in the same folder."""
    return f".lastgood-draft.{name[:150]}.{uuid.uuid4()}.tmp"  # no name of a file is longer than 255


def is_draft(name: str) -> bool:
    """Whether a file of this name is what a writer of ours has begun, or has left."""
    return _DRAFT.fullmatch(name) is not None
