"""The keys of this machine: where they come from, and the file that holds them. Never out of a lake."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from lastgood.errors import (
    LastgoodError,
    NoSpaceError,
    Retry,
    StorageError,
    UsageError,
    format_command_line,
    make_owner_command,
)
from lastgood.settings.config import Config
from lastgood.signing import NO_KEYS, KeyRing, Signer, format_keys, parse_keys
from lastgood.storage.reading import Location
from lastgood.storage.rights import make_private
from lastgood.visible import join_words

FILE_VARIABLE, TEXT_VARIABLE = "LASTGOOD_KEY_FILE", "LASTGOOD_KEY"
_BYTES_MAX = 64 * 1024
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KeyFileOpenError(LastgoodError):
    """Others than its owner can read or change a file of keys, or it is not ours."""

    condition = "KEY_FILE_OPEN"
    exit_code = 83
    retry = Retry.AFTER_CHANGE


class KeyMissingError(LastgoodError):
    """There is no key where one is told to be, or none of this id."""

    condition = "KEY_MISSING"
    exit_code = 84
    retry = Retry.AFTER_CHANGE


class KeyFileExistsError(UsageError):
    """A new key would be written over what is there."""

    condition = "KEY_FILE_EXISTS"


class Keys:
    """The keys of one command, which all of it goes by: read when they are first asked for, and never again."""

    def __init__(self, config: Config | None = None) -> None:
        """Nothing is read yet; `config` as for `find_keys`."""
        self._config = config
        self._ring: KeyRing | None = None

    def __call__(self) -> KeyRing:
        """The keys.

        Raises:
            LastgoodError: as `find_keys`.
        """
        if self._ring is None:
            self._ring = find_keys(self._config)
        return self._ring


def find_keys(config: Config | None = None, environment: Mapping[str, str] | None = None) -> KeyRing:
    """The keys that this machine is given: the first of these that says anything.

    `LASTGOOD_KEY_FILE`, `LASTGOOD_KEY`, `choose_key_file` of `[trust]` in the configuration, `locate_default_file`.

    Args:
        config: Of this command; None: the `lastgood.toml` here.
        environment: Environment variables; ours if None.

    Raises:
        KeyMissingError: a file that is named is not there.
        KeyFileOpenError: others can read it.
        KeyInvalidError, ConfigError: what is there is not understood.
    """
    told = os.environ if environment is None else environment
    if not told.get(FILE_VARIABLE) and told.get(TEXT_VARIABLE):
        return parse_keys(told[TEXT_VARIABLE], TEXT_VARIABLE)
    file, origin = choose_key_file(config, told)
    ring = read_key_file(file)
    if ring is None and origin is not None:
        raise KeyMissingError(
            "there is no file of keys where one is told to be",
            subject=f"{origin}: {file}",
            found="no such file",
            expected="a file that `lastgood key create` has written",
            effect="nothing has been changed",
            next=format_command_line("key", "create", file),
        )
    return ring or NO_KEYS


def choose_key_file(
    config: Config | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Path, str | None]:
    """The file whose keys count, and who names it; None: it is where one is looked for anyhow.

    Raises:
        ConfigError: the configuration is not understood.
    """
    told = os.environ if environment is None else environment
    if told.get(FILE_VARIABLE):
        return Path(told[FILE_VARIABLE]), FILE_VARIABLE
    config = config or Config()
    named = None
    if config.is_there:
        named = config.key_file()
    if named is None:
        return (locate_default_file(), None)
    return (named, f"{config.path}: trust.key_file")


def locate_default_file() -> Path:
    """Where a key is looked for that nothing names."""
    import platformdirs  # noqa: PLC0415 - most verbs sign nothing

    return platformdirs.user_config_path("lastgood") / "key"


def make_signer(config: Config | None, checkpoint: Location) -> Signer:
    """The keys of this machine, at one checkpoint.

    Raises:
        LastgoodError: as `find_keys`.
    """
    return Signer.at(find_keys(config), checkpoint)


def read_key_file(file: Path) -> KeyRing | None:
    """The keys in a file; None if there is no such file. A link is not followed.

    Raises:
        KeyFileOpenError: it is a link, or no file, or others can read it.
        KeyInvalidError: it holds none.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if not os.access(file.parent, os.X_OK):  # the home of somebody else, as after a change of user
            return None
        if file.is_symlink():
            found = "a link"
        else:
            found = error.strerror or "a file that cannot be read"
        raise _make_refused_error(
            file, found, f"a file that only its owner can read; {TEXT_VARIABLE} takes a key as well"
        ) from error
    try:
        _require_private(file, os.fstat(descriptor))
        raw = os.read(descriptor, _BYTES_MAX)
    finally:
        os.close(descriptor)
    return parse_keys(raw.decode(errors="replace"), str(file))


@contextlib.contextmanager
def hold_key_file(file: Path) -> Iterator[None]:
    """Let no other command change a file of keys between its reading and its writing; it waits until this one is done.

    Raises:
        StorageError: its folder takes no lock.
    """
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # no folder, no file of keys: who reads it says so
        yield
        return
    try:
        _lock(folder, file)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, file: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError as error:
        raise StorageError("the file of keys cannot be locked", subject=str(file), found=error.strerror) from error


def require_key_file(place: Path) -> KeyRing:
    """The keys in a file that has to be there.

    Raises:
        KeyMissingError: it is not.
        KeyFileOpenError, KeyInvalidError: as `read_key_file`.
    """
    ring = read_key_file(place)
    if ring is None:
        raise KeyMissingError(
            "there is no such file of keys", subject=str(place), next=format_command_line("key", "create", place)
        )
    return ring


def write_key_file(file: Path, ring: KeyRing, *, is_new: bool) -> None:
    """Write keys to a file that only its owner can read.

    Args:
        file: Where.
        ring: The keys.
        is_new: Whether there may be none yet.

    Raises:
        KeyFileExistsError: there is one.
        StorageError: it cannot be written (subclasses).
    """
    # Whole under its own name or not at all: a torn file of keys locks its owner out.
    draft = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        make_private(file.parent)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as opened:
                opened.write(format_keys(ring.keys))
                opened.flush()
                os.fsync(descriptor)
            if is_new:
                os.link(draft, file)  # refuses what is there
            else:
                # Safe: whoever changes keys has read the file under `changing`, so that none is lost that somebody else
                # has just put there; and the draft is whole, and safe on the disk.
                draft.replace(file)
        finally:
            # Safe: the draft is ours, created above where no file was; the keys have their name by now, or never get
            # it.
            draft.unlink(missing_ok=True)
    except FileExistsError as error:
        raise KeyFileExistsError(
            "there is a file already, and a key is never written over",
            subject=str(file),
            expected="another name, or `lastgood key rotate` for a new key beside the old ones",
            next=format_command_line("key", "rotate", file),
        ) from error
    except OSError as error:
        kind = NoSpaceError if error.errno in (28, 122) else StorageError
        raise kind("the file of keys cannot be written", subject=str(file), found=error.strerror) from error


def _require_private(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _make_refused_error(file, "no plain file", "a file that only its owner can read")
    if found.st_uid not in (os.geteuid(), 0):
        raise _make_refused_error(file, f"a file of user {found.st_uid}", f"one of user {os.geteuid()}, or of root")
    if found.st_mode & _OTHERS:
        raise _make_refused_error(file, f"mode {stat.S_IMODE(found.st_mode):04o}", "mode 0600, or 0400")


def _make_refused_error(file: Path, found: str, expected: str) -> KeyFileOpenError:
    sentence, then = "a file of keys is not safe where it lies", make_owner_command(str(file))
    if found.startswith("mode"):
        sentence = "others can read the file of keys"
        close = join_words(["chmod", "600", str(file)])
        then = f"{close}; if others may have read it: {format_command_line('key', 'rotate', file)}"
    return KeyFileOpenError(
        sentence,
        subject=str(file),
        found=found,
        expected=expected,
        effect="nothing has been changed",
        next=then,
    )
