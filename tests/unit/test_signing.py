"""What a key has signed is told from everything else: other content, another place, purpose, recovery or stage."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from lastgood.signing import (
    NO_KEYS,
    PLAN,
    STAGE,
    Key,
    KeyInvalidError,
    KeyRing,
    Signature,
    SignatureMissingError,
    SignatureStanding,
    SignatureWrongError,
    Signer,
    format_keys,
    make_key,
    name_place,
    parse_keys,
)
from lastgood.storage.reading import parse_location

KEY = Key(bytes(range(32)))
LINE = "lastgood-key-1:756075c2:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
ORDERS = parse_location("s3a://lake/chk/orders")
RING = KeyRing((KEY,), "test")
SIGNER = Signer.at(RING, ORDERS)
NAMES = ("20261121-160058-7f3a", "begun")
NOTE: dict[str, Any] = {"at_ms": 7, "proof": "it has ended", "lease": 1, "seal": ["offsets/8"], "more": {"a": None}}


def test_the_line_of_a_key_is_always_the_same() -> None:
    assert KEY.line == LINE
    assert parse_keys(f"# mine\n\n{LINE}  # the first\n", "here").keys == (KEY,)


def test_the_signature_is_hmac_sha256_over_each_part_behind_its_length() -> None:
    parts = (b"lastgood signature", b"1", b"stage", b"2", b"s3://lake/orders", b"x", b"content")
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    expected = hmac.new(bytes(range(32)), message, hashlib.sha256).hexdigest()
    signature = RING.sign("stage", ("s3://lake/orders", "x"), b"content")
    assert signature == Signature(KEY.id, "s3://lake/orders", expected)
    assert expected == "fb91e3eaedf77bde4ec0f03c3dff3197b3596dfc06d7dafc03bac450730cb6d9"


def test_nothing_of_a_secret_is_shown() -> None:
    shown = f"{KEY!r} {RING!r} {SIGNER!r} {SIGNER.signed(STAGE, NAMES, NOTE)}"
    assert KEY.line.rpartition(":")[2] not in shown
    assert repr(KEY.secret) not in shown
    with pytest.raises(KeyInvalidError) as refused:
        parse_keys(LINE[:-2], "here")
    assert "AAECAwQ" not in json.dumps(refused.value.to_json())


def test_what_was_signed_is_accepted_however_its_file_is_written() -> None:
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    for text in (json.dumps(signed), json.dumps(signed, indent=3, sort_keys=True, ensure_ascii=False)):
        SIGNER.require(STAGE, NAMES, json.loads(text), "begun.json")
    assert SIGNER.signed(STAGE, NAMES, signed) == signed


@pytest.mark.parametrize("field", [*NOTE, "new"])
def test_any_changed_field_is_noticed(field: str) -> None:
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    assert SIGNER.standing(STAGE, NAMES, {**signed, field: "another"}) is SignatureStanding.WRONG
    left = {name: value for name, value in signed.items() if name != field}
    if field in signed:
        assert SIGNER.standing(STAGE, NAMES, left) is SignatureStanding.WRONG


@pytest.mark.parametrize(
    ("field", "value", "standing"),
    [
        ("format", 2, SignatureStanding.WRONG),
        ("format", None, SignatureStanding.WRONG),
        ("key", "00000000", SignatureStanding.OTHER_KEY),
        ("key", "", SignatureStanding.WRONG),
        ("key", ["756075c2"], SignatureStanding.WRONG),
        ("place", "closed", SignatureStanding.WRONG),
        ("hmac", "0" * 64, SignatureStanding.WRONG),
        ("hmac", "", SignatureStanding.WRONG),
        ("hmac", "é" * 64, SignatureStanding.WRONG),
        ("hmac", None, SignatureStanding.WRONG),
    ],
)
def test_any_changed_field_of_a_signature_is_noticed(field: str, value: object, standing: SignatureStanding) -> None:
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    changed = {**signed, "signature": {**signed["signature"], field: value}}
    assert SIGNER.standing(STAGE, NAMES, changed) is standing
    with pytest.raises(SignatureWrongError):
        SIGNER.require(STAGE, NAMES, changed, "begun.json")


@pytest.mark.parametrize("signature", [None, 7, "x", [], {}])
def test_what_is_no_signature_is_a_wrong_one(signature: object) -> None:
    assert SIGNER.standing(STAGE, NAMES, {**NOTE, "signature": signature}) is SignatureStanding.WRONG


def test_what_nobody_signed_is_missing_its_signature() -> None:
    with pytest.raises(SignatureMissingError) as refused:
        SIGNER.require(STAGE, NAMES, NOTE, "begun.json")
    assert refused.value.expected == f"a signature by {KEY.id}, from test"
    assert refused.value.next == "look at it; if it is your own: lastgood key sign s3a://lake/chk/orders"
    SIGNER.standing(STAGE, NAMES, {})
    with pytest.raises(SignatureMissingError):
        SIGNER.require(STAGE, NAMES, {}, "begun.json")


@pytest.mark.parametrize(
    ("purpose", "names"),
    [
        (PLAN, NAMES),
        (STAGE, ("20261121-160058-7f3b", "begun")),
        (STAGE, ("20261121-160058-7f3a", "closed")),
        (STAGE, ("20261121-160058-7f3a",)),
        (STAGE, ("20261121-160058-7f3ab", "egun")),
        (STAGE, (*NAMES, "")),
    ],
)
def test_what_is_moved_to_another_purpose_recovery_or_stage_does_not_fit(purpose: str, names: tuple[str, ...]) -> None:
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    assert SIGNER.standing(purpose, names, signed) is SignatureStanding.WRONG


def test_what_is_moved_to_another_checkpoint_is_told_as_that() -> None:
    other = Signer.at(RING, parse_location("file:/mnt/lake/chk/orders"))
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    assert other.standing(STAGE, NAMES, signed) is SignatureStanding.OTHER_PLACE
    with pytest.raises(SignatureWrongError) as refused:
        other.require(STAGE, NAMES, signed, "begun.json")
    assert refused.value.found == "a signature for s3://lake/chk/orders"
    assert "file:///mnt/lake/chk/orders" in (refused.value.expected or "")
    lied = {**signed, "signature": {**signed["signature"], "place": other.place}}
    assert other.standing(STAGE, NAMES, lied) is SignatureStanding.WRONG


@pytest.mark.parametrize("text", ["s3://lake/chk/orders", "s3n://lake/chk/orders/", "s3a://lake/chk/x/../orders"])
def test_one_place_is_signed_for_however_it_is_written(text: str) -> None:
    signed = Signer.at(RING, parse_location(text)).signed(STAGE, NAMES, NOTE)
    SIGNER.require(STAGE, NAMES, signed, "begun.json")


def test_the_container_of_an_azure_account_is_part_of_the_place() -> None:
    azure = "abfss://box@acc.dfs.core.windows.net/chk"
    assert name_place(parse_location(azure)) == azure
    assert name_place(parse_location(azure.replace("box", "other"))) != azure


def test_after_a_rotation_the_new_key_signs_and_the_old_one_still_verifies() -> None:
    new = make_key()
    both = Signer.at(KeyRing((new, KEY), "test"), ORDERS)
    both.require(STAGE, NAMES, SIGNER.signed(STAGE, NAMES, NOTE), "begun.json")
    signed = both.signed(STAGE, NAMES, NOTE)
    assert signed["signature"]["key"] == new.id
    assert SIGNER.standing(STAGE, NAMES, signed) is SignatureStanding.OTHER_KEY
    with pytest.raises(SignatureWrongError) as refused:
        SIGNER.require(STAGE, NAMES, signed, "begun.json")
    assert refused.value.found == f"a signature by key {new.id}"


def test_a_key_of_the_same_id_is_another_key() -> None:
    signed = SIGNER.signed(STAGE, NAMES, NOTE)
    other = Signer.at(KeyRing((make_key(),), "test"), ORDERS)
    forged = {**signed, "signature": {**signed["signature"], "key": other.keys.keys[0].id}}
    assert other.standing(STAGE, NAMES, forged) is SignatureStanding.WRONG


def test_without_a_key_nothing_is_signed_and_nothing_is_asked() -> None:
    signer = Signer.at(NO_KEYS, ORDERS)
    assert signer.signed(STAGE, NAMES, NOTE) == NOTE
    assert signer.standing(STAGE, NAMES, NOTE) is None
    signer.require(STAGE, NAMES, NOTE, "begun.json")
    signer.require(STAGE, NAMES, SIGNER.signed(STAGE, NAMES, NOTE), "begun.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "secret",
        LINE.replace("756075c2", "00000000"),
        LINE.replace("AAEC", "AAED"),
        LINE.replace("key-1", "key-2"),
        f"{LINE}\n{LINE}",
        f"{LINE} {LINE}",
        LINE[:-8],
    ],
)
def test_what_is_no_file_of_keys_is_refused(text: str) -> None:
    with pytest.raises(KeyInvalidError):
        parse_keys(text, "here")


def test_keys_come_back_as_they_were_written() -> None:
    keys = tuple(make_key() for _ in range(3))
    assert parse_keys(format_keys(keys), "here").keys == keys
    assert len({key.id for key in keys}) == 3
