"""What can go wrong, as classes: condition, exit code, retry class; an instance adds the facts.

It knows nothing of the rest of lastgood but what a secret is, and how much a person reads; each part derives its own
errors beside its own nouns.
"""

from __future__ import annotations

import enum
import re
from typing import Any, ClassVar, Protocol, TypeGuard

from lastgood.frozen import dataclass
from lastgood.redaction import redact
from lastgood.values import JsonValue
from lastgood.visible import join_words, shorten
from lastgood.written import redact_command

_PID_MAX = 2**31 - 1
_HOST = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class Retry(enum.Enum):
    """Whether the same call can succeed later."""

    NEVER = "never"  # time will not mend it
    LATER = "later"  # the same command may work in a while
    AFTER_CHANGE = "after_change"  # works once the user has changed what `next` names


class CommandLine(str):
    """A command that was put together word by word, and has lost its secrets so: as one text it would lose more."""

    __slots__ = ()


def format_command_line(*words: object) -> CommandLine:
    """A call of lastgood that can be pasted into a shell, whatever its words hold; without secrets.

    Example:
        >>> format_command_line("inspect", "/lake/my orders", "--batch", 7)
        "lastgood inspect '/lake/my orders' --batch 7"
    """
    return CommandLine(join_words(["lastgood", *redact_command([*map(str, words)])]))


def make_owner_command(place: str) -> str | None:
    """The command that shows whose a file of this machine is; None for a place that is no path."""
    if place.startswith("/"):
        return join_words(["ls", "-ld", place])
    return None


def is_pid(value: object) -> TypeGuard[int]:
    """Whether it can be the id of a process."""
    return type(value) is int and 0 < value <= _PID_MAX


def make_process_command(pid: object, host: object) -> str | None:
    """The command that shows a process where it runs; None where one of both can be none, whoever has noted it down."""
    is_host = isinstance(host, str) and _HOST.fullmatch(host) is not None
    if is_pid(pid) and is_host:
        return f"ps -fp {pid}"
    return None


class OtherWay(Protocol):
    """Another way than that in `next`; in JSON one of `alternatives`, with `because` and `command` at least."""

    @property
    def because(self) -> str:
        """One line for a person."""
        ...

    @property
    def command(self) -> str | None:
        """What can be pasted; None: it cannot be done."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        ...


@dataclass(frozen=True, slots=True)
class Otherwise(JsonValue):
    """Another command than that in `next`, and what it is for."""

    because: str
    command: str

    def __str__(self) -> str:
        return self.because


def _redact(text: object) -> str | None:
    if text is None:
        return None
    if isinstance(text, CommandLine):
        return text
    return redact(str(text))


def _shorten(text: str | None) -> str | None:
    if text is None:
        return None
    return shorten(text)


class LastgoodError(Exception):
    """Base of every error that lastgood raises on purpose; its texts are without secrets, whatever it was given.

    Attributes:
        condition: Name of the error, the same in text, JSON and documentation.
        exit_code: What the command line exits with; a number is never used twice.
        retry: Whether trying again can help.
        sentence: What is so, in the present tense, lower case, without a full stop.
        subject: The file, option or thing it is about.
        found: What is there.
        expected: What was to be there.
        effect: What follows for the user.
        next: A command that can be pasted, or what to do.
        alternatives: Other ways, the best first.
    """

    condition: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 4
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(
        self,
        sentence: str,
        *,
        subject: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        effect: str | None = None,
        next: str | None = None,  # noqa: A002 - the name the user reads
    ) -> None:
        # Here, so that no text made of an error, and nothing that keeps one, holds a secret.
        texts = (sentence, subject, found, expected, effect, next)
        told = [_redact(text) for text in texts]
        self.next = told.pop()  # half a command is none
        told = [_shorten(text) for text in told]
        super().__init__(told[0])
        self.sentence = told[0] or ""
        self.subject, self.found, self.expected, self.effect = told[1:]
        self.alternatives: tuple[OtherWay, ...] = ()

    def facts(self) -> dict[str, str]:
        """The labelled facts that are known, in the order in which a person reads them."""
        labels = {
            "where": self.subject,
            "found": self.found,
            "expected": self.expected,
            "effect": self.effect,
            "next": self.next,
        }
        return {label: value for label, value in labels.items() if value is not None}

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` prints under `error`."""
        return {
            "condition": self.condition,
            "sentence": self.sentence,
            "subject": self.subject,
            "found": self.found,
            "expected": self.expected,
            "effect": self.effect,
            "next": self.next,
            "alternatives": [each.to_json() for each in self.alternatives],
        }


class UsageError(LastgoodError):
    """An option or argument that cannot be what was meant."""

    condition = "USAGE"
    exit_code = 2
    retry = Retry.AFTER_CHANGE


class ConfigError(LastgoodError):
    """`lastgood.toml` is missing, is no TOML, or says something that is not known."""

    condition = "CONFIG_INVALID"
    exit_code = 2
    retry = Retry.AFTER_CHANGE


class ExtraMissingError(LastgoodError):
    """A part of lastgood is needed whose libraries are not installed."""

    condition = "EXTRA_MISSING"
    exit_code = 5
    retry = Retry.AFTER_CHANGE

    def __init__(self, *, extra: str, module: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the extra '{extra}'",
            found=f"no Python module '{module}'",
            expected=f"lastgood installed with the extra '{extra}'",
            next=f"pip install 'lastgood[{extra}]'",
        )


class StorageError(LastgoodError):
    """A file or folder cannot be read or written."""

    condition = "STORAGE_UNAVAILABLE"
    exit_code = 10
    retry = Retry.LATER


def explain_error(error: StorageError) -> str:
    """Why there is no answer, in one line for a person."""
    return f"{error}: {error.found or error.subject}"


class NoSpaceError(StorageError):
    """The disk is full, or the quota used up."""

    condition = "NO_SPACE"
    exit_code = 11
    retry = Retry.AFTER_CHANGE
