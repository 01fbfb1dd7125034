"""Where a key comes from, in which order; and that a file of keys that others can read is no file of keys."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from lastgood.errors import ConfigError, LastgoodError, UsageError
from lastgood.operations import key as operation
from lastgood.operations.key import KeyList, create, list_keys, remove, rotate
from lastgood.settings.config import Config
from lastgood.settings.keys import (
    KeyFileExistsError,
    KeyFileOpenError,
    KeyMissingError,
    find_keys,
    locate_default_file,
    read_key_file,
)
from lastgood.signing import Key, KeyInvalidError, make_key

PIPELINE = '[pipeline.a]\ncommand = ["true"]\ncheckpoint = "chk"\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_without_a_key_there_is_none() -> None:
    assert not find_keys()
    assert list_keys().to_json() == {"origin": None, "keys": []}


def test_each_place_counts_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = create()
    assert (at_home.origin, list_keys().ids) == (str(locate_default_file()), at_home.ids)
    in_config = create(tmp_path / "named")
    Path("lastgood.toml").write_text(f'{PIPELINE}[trust]\nkey_file = "named"\n')
    assert list_keys().ids == in_config.ids
    text = make_key()
    monkeypatch.setenv("LASTGOOD_KEY", f"# mine, and mine alone\n{text.line}\n")
    assert (list_keys().origin, list_keys().ids) == ("LASTGOOD_KEY", (text.id,))
    in_variable = create(tmp_path / "variable")
    monkeypatch.setenv("LASTGOOD_KEY_FILE", str(tmp_path / "variable"))
    assert list_keys().ids == in_variable.ids


def test_another_configuration_names_another_file(tmp_path: Path) -> None:
    made = create(tmp_path / "there" / "named")
    (tmp_path / "there" / "other.toml").write_text(f'{PIPELINE}[trust]\nkey_file = "named"\n')
    assert find_keys(Config(tmp_path / "there" / "other.toml")).keys[0].id == made.ids[0]
    assert not find_keys()


def test_a_configuration_with_a_misspelt_key_file_is_refused() -> None:
    Path("lastgood.toml").write_text(f'{PIPELINE}[trust]\nkeyfile = "named"\n')
    with pytest.raises(ConfigError, match=r"trust\.keyfile"):
        find_keys()


def test_a_file_that_is_named_and_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(KeyMissingError) as refused:
        find_keys()
    assert refused.value.subject == f"LASTGOOD_KEY_FILE: {tmp_path / 'none'}"


def test_a_new_key_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    create(tmp_path / "new folder" / "key")
    assert stat.S_IMODE((tmp_path / "new folder" / "key").stat().st_mode) == 0o600
    assert [each.name for each in (tmp_path / "new folder").iterdir()] == ["key"]


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    create(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(KeyFileExistsError):
        create(tmp_path / "key")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(KeyFileExistsError):
        create(tmp_path / "link")
    assert (tmp_path / "key").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["key", "link"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o611, 0o644, 0o777])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    create(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(KeyFileOpenError) as refused:
        read_key_file(tmp_path / "key")
    assert refused.value.found == f"mode {mode:04o}"
    for change in (lambda: rotate(tmp_path / "key"), lambda: remove("x", tmp_path / "key")):
        with pytest.raises(KeyFileOpenError):
            change()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone_is_read(tmp_path: Path, mode: int) -> None:
    create(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    assert read_key_file(tmp_path / "key")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "key")
    os.chown(tmp_path / "key", 12345, -1)
    with pytest.raises(KeyFileOpenError, match="not safe"):
        read_key_file(tmp_path / "key")


def test_a_home_that_is_none_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    assert not find_keys()


def test_a_link_a_folder_or_a_pipe_is_no_file_of_keys(tmp_path: Path) -> None:
    create(tmp_path / "key")
    (tmp_path / "link").symlink_to(tmp_path / "key")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for place in (tmp_path / "link", tmp_path / "pipe", tmp_path):
        with pytest.raises(KeyFileOpenError):
            read_key_file(place)


def test_rubbish_is_an_error_and_not_no_key(tmp_path: Path) -> None:
    for content in (b"", b"\xff\xfe", b"x" * 200_000):
        (tmp_path / "key").write_bytes(content)
        (tmp_path / "key").chmod(0o600)
        with pytest.raises(KeyInvalidError):
            read_key_file(tmp_path / "key")


def test_a_rotation_puts_a_new_key_first_and_an_old_one_can_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    (old,) = create(file).ids
    new, kept = rotate(file).ids
    assert (kept, stat.S_IMODE(file.stat().st_mode)) == (old, 0o600)
    ring = read_key_file(file)
    assert ring is not None
    assert tuple(key.id for key in ring.keys) == (new, old)
    with pytest.raises(KeyMissingError):
        remove("00000000", file)
    assert remove(old, file).ids == (new,)
    with pytest.raises(UsageError, match="only key"):
        remove(new, file)


def test_of_two_rotations_at_once_neither_loses_the_key_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    create(file)
    others: list[KeyList] = []
    second = threading.Thread(target=lambda: others.append(rotate(file)))

    def start_second() -> Key:
        monkeypatch.setattr(operation, "make_key", make_key)
        second.start()
        second.join(timeout=1)  # where nothing holds it up, it is done by then
        return make_key()

    monkeypatch.setattr(operation, "make_key", start_second)
    first = rotate(file)
    second.join()
    ring = read_key_file(file)
    assert ring is not None
    assert {first.ids[0], others[0].ids[0]} <= {key.id for key in ring.keys}


def test_a_key_from_a_variable_is_not_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_KEY", make_key().line)
    with pytest.raises(UsageError):
        rotate()


def test_nothing_is_there_to_be_rotated(tmp_path: Path) -> None:
    for change in (lambda: rotate(tmp_path / "none"), lambda: remove("x")):
        with pytest.raises(KeyMissingError):
            change()


def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    with pytest.raises(LastgoodError) as refused:
        create(Path("/proc/none/key"))
    assert refused.value.condition == "STORAGE_UNAVAILABLE"
