"""What lastgood writes beside a checkpoint, or tells of as JSON, without secrets: whoever made the texts in it. Pure.

Plans, stages, incidents, facts of backups and events go through here where they are encoded. Nothing that is needed to
carry a plan out is a secret: credentials come from this machine alone. So the facts by which it is carried out stay as
they are, places lose their logins, and any other text is taken for one that somebody else may have written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lastgood.redaction import HIDDEN, hide_login, redact, redact_words

_FACTS = frozenset(
    ("after", "app_id", "before", "fence", "guards", "id", "identity", "listings", "pipeline", "query_id", "recovery")
) | {"seal", "sha256", "table_id"}
"""Digests, contents of Spark's own files, ids, and names of files: compared with what is there, letter by letter."""
_PLACES = frozenset(("checkpoint", "file", "location", "path", "sink", "table", "reread", "lost", "duplicated"))
"""Locations, and files of a source: a folder may be called `token=5`."""
_COMMANDS = frozenset(("asked", "command", "evidence"))
"""Where a list of texts stands: the words of a command line."""
_PLACE = re.compile(r"(?!https?:)[\w+.-]*:?/", re.IGNORECASE)
"""How a location begins; in one of the web the path may be the secret, as with a webhook."""


def redact_written(told: Mapping[str, Any]) -> dict[str, Any]:
    """The same object of JSON without secrets; a second time nothing changes.

    Example:
        >>> redact_written({"checkpoint": "/chk/token=5", "because": "postgresql://etl:x@db/o does not answer"})
        {'checkpoint': '/chk/token=5', 'because': 'postgresql://etl:***@db/o does not answer'}
    """
    return {name: _redact_member(name, value) for name, value in told.items()}


def redact_place(location: str) -> str:
    """A location, without its login and the secrets behind its `?`; its path stays, whatever that looks like."""
    place, mark, parameters = hide_login(location, instead=f":{HIDDEN}").partition("?")
    return f"{place}{mark}{redact(parameters)}"


def _redact_member(name: str, value: Any) -> Any:
    if name in _FACTS:
        return value
    if isinstance(value, str):
        is_place = name in _PLACES and _PLACE.match(value)
        return redact_place(value) if is_place else redact(value)
    if isinstance(value, Mapping):
        return redact_written(value)
    if isinstance(value, tuple):
        return tuple(_redact_each(name, value))
    if isinstance(value, list):
        return _redact_each(name, value)
    return value


def _redact_each(name: str, values: Sequence[Any]) -> list[Any]:
    if name in _COMMANDS and all(isinstance(each, str) for each in values):
        return redact_command(values)
    return [_redact_member(name, each) for each in values]


def _redact_word(word: str, shown: str) -> str:
    if _PLACE.match(word) and shown != HIDDEN:
        return redact_place(word)
    return shown


def redact_command(words: Sequence[str]) -> list[str]:
    """The words of a command line, without secrets; locations stay what they are but for their logins.

    Example:
        >>> redact_command(["plan", "/chk/token=5", "--sink", "postgresql://etl:x@db/o", "--password", "x"])
        ['plan', '/chk/token=5', '--sink', 'postgresql://etl:***@db/o', '--password', '***']
    """
    told = zip(words, redact_words(words), strict=True)
    return [_redact_word(word, shown) for word, shown in told]
