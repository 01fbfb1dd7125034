"""`key create|rotate|list|remove|sign`: the keys of this machine, and a signature under what a person has looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lastgood.errors import UsageError, format_command_line
from lastgood.frozen import dataclass
from lastgood.journal.signed_files import read_signed_files
from lastgood.journal.signing_by_hand import sign_files
from lastgood.journal.to_sign import ToSign
from lastgood.observe.open_query import read_clock_ms
from lastgood.settings.config import Config
from lastgood.settings.keys import (
    TEXT_VARIABLE,
    KeyMissingError,
    choose_key_file,
    find_keys,
    hold_key_file,
    locate_default_file,
    require_key_file,
    write_key_file,
)
from lastgood.settings.target import Target
from lastgood.signing import KeyRing, make_key
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class KeyList(JsonValue):
    """The keys that count on this machine, without their secrets."""

    json = make_form("origin keys=_keys")
    """What `key create|rotate|list|remove --format json` prints."""

    origin: str | None
    """Where they come from; None: there is none."""
    ids: tuple[str, ...]
    """The first one signs, all of them verify."""

    @property
    def _keys(self) -> list[dict[str, Any]]:
        return [{"id": each, "signs": number == 0} for number, each in enumerate(self.ids)]

    @classmethod
    def of(cls, ring: KeyRing) -> KeyList:
        """The ids of a ring."""
        return cls(ring.origin or None, tuple(key.id for key in ring.keys))


def create(file: Path | None = None) -> KeyList:
    """Make a key, in a file of its own that only this user can read.

    Args:
        file: Where; None: where one is looked for by default.

    Raises:
        KeyFileExistsError: there is a file already; nothing was written.
        StorageError: it cannot be written (subclasses).
    """
    place = file or locate_default_file()
    ring = KeyRing((make_key(),), str(place))
    write_key_file(place, ring, is_new=True)
    return KeyList.of(ring)


def rotate(file: Path | None = None, *, config: Config | None = None) -> KeyList:
    """Put a new key first, which signs from now on; the old ones go on to verify.

    Args:
        file: Which file; None: the one that counts on this machine.
        config: Of this command; None: the `lastgood.toml` here.

    Raises:
        KeyMissingError: there is no such file.
        KeyFileOpenError, KeyInvalidError, StorageError: it cannot be read or written (subclasses).
        UsageError: the keys that count come from no file.
    """
    place = _choose_file(file, config)
    with hold_key_file(place):
        ring = require_key_file(place)
        rotated = KeyRing((make_key(), *ring.keys), ring.origin)
        write_key_file(place, rotated, is_new=False)
    return KeyList.of(rotated)


def remove(key_id: str, file: Path | None = None, *, config: Config | None = None) -> KeyList:
    """Take a key out of its file: what only it has signed counts as unsigned from now on.

    Args:
        key_id: Its id.
        file: Which file; None: the one that counts on this machine.
        config: Of this command; None: the `lastgood.toml` here.

    Raises:
        KeyMissingError: there is no such key.
        UsageError: it is the only one, or the keys that count come from no file.
        KeyFileOpenError, KeyInvalidError, StorageError: the file cannot be read or written (subclasses).
    """
    place = _choose_file(file, config)
    with hold_key_file(place):
        rest = _drop_key(key_id, place)
        write_key_file(place, rest, is_new=False)
    return KeyList.of(rest)


def _drop_key(key_id: str, place: Path) -> KeyRing:
    ring = require_key_file(place)
    left = tuple(key for key in ring.keys if key.id != key_id)
    if len(left) == len(ring.keys):
        known = ", ".join(key.id for key in ring.keys)
        raise KeyMissingError(f"there is no key {key_id}", subject=str(place), found=known)
    if not left:
        raise UsageError(
            "it is the only key: without one nothing is asked to be signed any more",
            subject=str(place),
            expected="another key first, or the file removed by hand",
            next=format_command_line("key", "rotate", place),
        )
    return KeyRing(left, ring.origin)


def list_keys(*, config: Config | None = None) -> KeyList:
    """The keys that count on this machine.

    Raises:
        LastgoodError: as `find_keys`.
    """
    return KeyList.of(find_keys(config))


def list_to_sign(target: Target) -> ToSign:
    """What lies beside a checkpoint, and what the keys of this machine say of it; nothing is changed.

    Args:
        target: Which query.

    Raises:
        KeyMissingError: there is no key that could sign.
        StorageError: the storage does not answer (subclasses).
    """
    ring = find_keys(target.config)
    if not ring:
        raise KeyMissingError(
            "there is no key that could sign",
            subject=str(locate_default_file()),
            expected=f"a file of keys there, in LASTGOOD_KEY_FILE or lastgood.toml, or a key in {TEXT_VARIABLE}",
            next=format_command_line("key", "create"),
        )
    location = target.location
    files = tuple(read_signed_files(open_writable(location), location, ring))
    return ToSign(target, str(location), ring.keys[0].id, files)


def sign(shown: ToSign, *, tell: Callable[[str], None] = lambda _: None) -> ToSign:
    """Sign what a person was shown, exactly as it was shown.

    Args:
        shown: From `list_to_sign`.
        tell: Gets a line for each file.

    Raises:
        LastgoodError: as `list_to_sign`. What was changed since it was shown is left as it is, and told.
        LeaseHeldError, LeaseInvalidError, LeaseLostError: a repair is going on, or may be; no more is signed.
    """
    location, ring = parse_location(shown.checkpoint), find_keys(shown.target.config)
    sign_files(open_writable(location), location, ring, shown.wanted, now_ms=read_clock_ms, tell=tell)
    return list_to_sign(shown.target)


def _choose_file(file: Path | None, config: Config | None) -> Path:
    """The file whose keys are to be changed."""
    if file is None and os.environ.get(TEXT_VARIABLE) and not os.environ.get("LASTGOOD_KEY_FILE"):
        raise UsageError(
            "the keys that count here stand in no file",
            subject=TEXT_VARIABLE,
            expected="the file that they were taken from",
            next=format_command_line("key", "rotate", "FILE"),
        )
    return file or choose_key_file(config)[0]
