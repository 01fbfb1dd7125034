"""How long a storage service may take, and what its answers are turned into; it knows no service."""

from __future__ import annotations

CONNECT_SECONDS = 2.0
READ_SECONDS = 3.5
"""For the first byte of an answer, and from each to the next; each service is asked twice."""

SEND_BYTES_PER_SECOND = 100_000
"""A request whose content goes out slower than that, over `SEND_SECONDS`, goes to nobody."""
SEND_SECONDS = 30.0


class OddAnswerError(ConnectionError):
    """Something answers where a storage is to be, in a way in which that does not."""


def estimate_send_seconds(size: int) -> float:
    """How long a request may take that sends so many bytes."""
    return SEND_SECONDS + size / SEND_BYTES_PER_SECOND
