"""Whose a configuration is: one that lies about in a folder is obeyed only if its owner may command us."""

from __future__ import annotations

import itertools
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from lastgood.errors import ConfigError
from lastgood.visible import join_words

VARIABLE = "LASTGOOD_SAFE_DIRECTORY"
"""Environment variable with the folders, between colons, whose lastgood.toml is obeyed whoever owns it; `*` for all."""


def require_own(path: Path, found: os.stat_result) -> None:
    """Refuse a configuration of another user: it starts commands, and says what may be lost.

    It is ours where we own it, or root does, or who called us by sudo; and nobody else may write it. So is every link
    on the way to it, for who owns one points it elsewhere; and it has no second name, which anybody may have given it.

    Args:
        path: Where it was found.
        found: What the system says of the file that was opened.

    Raises:
        ConfigError: it is another user's, or everybody may write it.
    """
    if _is_safe(path.absolute().parent):
        return
    obeyed = {0, os.geteuid(), *_find_caller()}
    owners = itertools.chain([found.st_uid], _list_owners_of_links(path))
    stranger = next((each for each in owners if each not in obeyed), None)
    if stranger is not None:
        of_whom, runs_as = _name_user(stranger), _name_user(os.geteuid())
        told = f"it, or a link on the way to it, belongs to {of_whom}, and lastgood runs as {runs_as}"
    elif found.st_mode & stat.S_IWOTH:
        told = "everybody may write it"
    elif found.st_nlink > 1:
        told = f"it has {found.st_nlink} names (hard links), and may be another file of yours"
    else:
        return
    raise ConfigError(
        f"the {path.name} of this folder is not obeyed",
        subject=str(path.absolute()),
        found=told,
        expected="a file of your own, or of root, that nobody else may write; or one that you name yourself",
        effect="nothing was read from it, and nothing was changed",
        next=f"export {VARIABLE}={join_words([str(path.absolute().parent)])}",
    )


def require_regular(path: Path, found: os.stat_result) -> None:
    """Refuse what is no file where a configuration is looked for: a pipe or a device would be read without end.

    Args:
        path: Where it was found.
        found: What the system says of what was opened.

    Raises:
        ConfigError: it is none.
    """
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(
            f"the {path.name} of this folder is no file",
            subject=str(path.absolute()),
            found="a folder, a pipe, a socket or a device",
            expected="a file",
            effect="nothing was read from it, and nothing was changed",
        )


def _list_owners_of_links(path: Path) -> Iterator[int]:
    """Who owns each link that is followed on the way to a file, the folders of its target included."""
    place = Path("/")
    left = list(reversed(path.absolute().parts[1:]))
    # What was opened has an end, but for links that a stranger exchanges meanwhile: whoever asks stops at the first.
    while left:
        part = place / left.pop()
        if part.is_symlink():
            yield part.lstat().st_uid
            target = part.readlink()
            place = Path("/") if target.is_absolute() else place
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            place = part.parent.parent if part.name == ".." else part


def _find_caller() -> set[int]:
    """Who became root by sudo; nobody else is believed who says so."""
    told = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and told.isdecimal():
        return {int(told)}
    return set()


def _is_safe(folder: Path) -> bool:
    named = os.environ.get(VARIABLE, "").split(os.pathsep)
    return "*" in named or any(os.path.realpath(each) == os.path.realpath(folder) for each in named if each)


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
