"""Keyed checksums: what a key of this machine has signed for one place, and what it has not. Pure.

Whoever may write to a lake may write anything beside a checkpoint. With a key, which never lies in the lake, what
lastgood itself has written there is told from what anybody else has.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final

from lastgood.asked import make_typeable
from lastgood.errors import LastgoodError, Retry, format_command_line
from lastgood.frozen import dataclass
from lastgood.storage.location import Location
from lastgood.values import JsonValue, ShapeError, make_form

FORMAT: Final = 1
SIGNATURE: Final = "signature"
"""The field of a JSON object that holds its signature."""
SECRET_BYTES: Final = 32
PLAN, STAGE, INCIDENT, BACKUP, ATTEMPTS, TOPICS = "plan", "stage", "incident", "backup", "attempts", "topics"
"""Purposes: what is signed as one of them is none of the others."""
_LINE = re.compile(r"lastgood-key-1:([0-9a-f]{8}):([A-Za-z0-9+/=]{44})")
_HMAC = re.compile(r"[0-9a-f]{64}")
_ID_DOMAIN: Final = b"lastgood key id 1"
_SIGNED_DOMAIN: Final = b"lastgood signature"
_HEADING: Final = "# Keys of lastgood: the first one signs, all verify. Keep them secret, and out of the lake.\n"
_LENGTH_BYTES: Final = 8


class SignatureMissingError(LastgoodError):
    """A key is configured, and what would be carried out carries no signature."""

    condition = "SIGNATURE_MISSING"
    exit_code = 80
    retry = Retry.AFTER_CHANGE


class SignatureWrongError(LastgoodError):
    """A key is configured, and what would be carried out was signed by none of ours, for another place, or changed."""

    condition = "SIGNATURE_WRONG"
    exit_code = 81
    retry = Retry.AFTER_CHANGE


class KeyInvalidError(LastgoodError):
    """What is to be a key is none."""

    condition = "KEY_INVALID"
    exit_code = 82
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Key:
    """A secret of 32 bytes."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that tell it from others, and tell nothing of it."""
        return hashlib.sha256(_pack(_ID_DOMAIN, self.secret)).hexdigest()[:8]

    @property
    def line(self) -> str:
        """As it stands in a file of keys. This is the secret."""
        return f"lastgood-key-1:{self.id}:{base64.b64encode(self.secret).decode()}"


def make_key() -> Key:
    """A key that nobody else has."""
    return Key(secrets.token_bytes(SECRET_BYTES))


class SignatureStanding(enum.Enum):
    """What a key ring can say of something."""

    SIGNED = "signed"
    """One of its keys has signed this, for this place."""
    UNSIGNED = "unsigned"
    """It carries no signature."""
    OTHER_KEY = "other_key"
    """It names a key that the ring does not have."""
    OTHER_PLACE = "other_place"
    """One of its keys has signed this for another place."""
    WRONG = "wrong"
    """It was changed since it was signed, or stands where it was not signed for."""


@dataclass(frozen=True, slots=True)
class Signature(JsonValue):
    """What is written beside the signed content."""

    json = make_form("format key place hmac")
    format: ClassVar = FORMAT

    key: str
    """The id of the key."""
    place: str
    """The checkpoint it was signed for; signed with the rest."""
    hmac: str
    """64 hexadecimal digits."""

    @classmethod
    def of(cls, told: object) -> Signature | None:
        """Read one; None if it is none, or of a format that this lastgood does not know."""
        if not isinstance(told, Mapping) or told.get("format") != FORMAT:
            return None
        try:
            found = cls.from_json(told)
        except ShapeError:
            return None
        if found.key and _HMAC.fullmatch(found.hmac):
            return found
        return None


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of a machine: the first one signs, all of them verify; false if there is none."""

    keys: tuple[Key, ...] = ()
    origin: str = ""
    """Where they came from, for people."""

    def __bool__(self) -> bool:
        return bool(self.keys)

    def sign(self, purpose: str, context: Sequence[str], content: bytes) -> Signature:
        """Sign a content for one purpose and place.

        Args:
            purpose: What it is.
            context: Where it belongs; first the place, then the names within it.
            content: The bytes.
        """
        key = self.keys[0]
        return Signature(key.id, context[0], _compute_hmac(key, purpose, context, content))

    def standing(
        self, purpose: str, context: Sequence[str], content: bytes, signature: Signature | None
    ) -> SignatureStanding:
        """What can be said of a content; see `sign`."""
        if signature is None:
            return SignatureStanding.UNSIGNED
        ours = [key for key in self.keys if key.id == signature.key]
        if not ours:
            return SignatureStanding.OTHER_KEY
        there = (signature.place, *context[1:])
        if not _is_signed_by_one(ours, purpose, there, content, signature):
            return SignatureStanding.WRONG
        return SignatureStanding.SIGNED if signature.place == context[0] else SignatureStanding.OTHER_PLACE


NO_KEYS: Final = KeyRing()


@dataclass(frozen=True, slots=True)
class Signer:
    """The keys of a machine, at one checkpoint. Without a key it signs nothing, and asks for no signature."""

    keys: KeyRing = NO_KEYS
    place: str = ""
    target: str = ""
    """The checkpoint as a person names it."""

    @classmethod
    def at(cls, keys: KeyRing, checkpoint: Location) -> Signer:
        """For what lies beside a checkpoint."""
        return cls(keys, name_place(checkpoint), str(checkpoint))

    def signed(self, purpose: str, names: Sequence[str], told: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON object with its signature; as it is without a key.

        Args:
            purpose: What it is.
            names: Where it belongs at this checkpoint, such as the id of a recovery and a stage.
            told: The object.
        """
        bare = {name: value for name, value in told.items() if name != SIGNATURE}
        if not self.keys:
            return bare
        return {**bare, SIGNATURE: self.keys.sign(purpose, (self.place, *names), _encode_content(bare)).to_json()}

    def standing(self, purpose: str, names: Sequence[str], told: Mapping[str, Any]) -> SignatureStanding | None:
        """What the keys say of a JSON object; None without a key."""
        if not self.keys:
            return None
        signature = Signature.of(told.get(SIGNATURE))
        if signature is None and SIGNATURE in told:
            return SignatureStanding.WRONG
        bare = {name: value for name, value in told.items() if name != SIGNATURE}
        try:
            content = _encode_content(bare)
        except RecursionError:  # nothing that we have written
            return SignatureStanding.WRONG
        return self.keys.standing(purpose, (self.place, *names), content, signature)

    def require(self, purpose: str, names: Sequence[str], told: Mapping[str, Any], subject: object) -> None:
        """See that a JSON object was signed by one of the keys for this place; without a key nothing is asked.

        Args:
            purpose: What it is to be.
            names: Where it is to belong.
            told: The object as it was read.
            subject: Its file, for errors.

        Raises:
            SignatureMissingError: nobody has signed it.
            SignatureWrongError: not one of the keys, not for this place, or it was changed since.
        """
        standing = self.standing(purpose, names, told)
        if standing is None or standing is SignatureStanding.SIGNED:
            return
        if standing is SignatureStanding.UNSIGNED:
            raise self.missing(subject)
        signature = Signature.of(told.get(SIGNATURE))
        if signature is None:
            key, place = ("none", "nowhere")
        else:
            key, place = (signature.key, signature.place)
        known = ", ".join(each.id for each in self.keys.keys)
        found, expected = {
            SignatureStanding.OTHER_KEY: (f"a signature by key {key:.20}", f"one by {known}, from {self.keys.origin}"),
            SignatureStanding.OTHER_PLACE: (
                f"a signature for {place}",
                f"one for {self.place}; if both are the same place, name it as it was named then",
            ),
        }.get(standing, ("a signature that does not fit", "the content that was signed, in its own place"))
        raise SignatureWrongError(
            "what lies in the lake was not signed for this place by a key that is known here",
            subject=str(subject),
            found=found,
            expected=expected,
            effect="nothing has been changed",
            next=self.next_command,
        )

    def missing(self, subject: object, found: str = "no signature") -> SignatureMissingError:
        """The error of what carries no signature."""
        return SignatureMissingError(
            "a key is configured, and this is not signed",
            subject=str(subject),
            found=found,
            expected=f"a signature by {', '.join(each.id for each in self.keys.keys)}, from {self.keys.origin}",
            effect="nothing has been changed",
            next=self.next_command,
        )

    @property
    def next_command(self) -> str:
        """What signs it, once a person has looked."""
        return f"look at it; if it is your own: {format_command_line('key', 'sign', make_typeable(self.target))}"


def name_place(checkpoint: Location) -> str:
    """The place that a signature is bound to: the same for every way to write it."""
    return checkpoint.identity


def parse_keys(text: str, origin: str) -> KeyRing:
    """Read keys, one a line; empty lines and what follows a `#` are left out.

    Args:
        text: The content of a file of keys.
        origin: Where it came from, for people.

    Raises:
        KeyInvalidError: a line is no key, a key stands there twice, or there is none. It never shows a line.
    """
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        key = _parse_line(word)
        if key is None or key in keys:
            if key is None:
                found = "another form, or a typing error in it"
            else:
                found = f"key {key.id} a second time"
            raise KeyInvalidError(
                "this is no file of keys",
                subject=f"{origin}, line {number}",
                found=found,
                expected="lastgood-key-1:ID:SECRET, as `lastgood key create` writes it",
            )
        keys.append(key)
    if not keys:
        raise KeyInvalidError(
            "there is no key", subject=origin, found="no line with one", expected="what `lastgood key create` writes"
        )
    return KeyRing(tuple(keys), origin)


def format_keys(keys: Iterable[Key]) -> str:
    """The content of a file of keys."""
    return "".join((_HEADING, *(f"{key.line}\n" for key in keys)))


def _parse_line(word: str) -> Key | None:
    found = _LINE.fullmatch(word)
    try:
        if found is None:
            key = None
        else:
            key = Key(base64.b64decode(found[2], validate=True))
    except binascii.Error:
        return None
    if found and key and len(key.secret) == SECRET_BYTES and key.id == found[1]:
        return key
    return None


def _is_signed_by_one(
    keys: Iterable[Key], purpose: str, context: Sequence[str], content: bytes, signature: Signature
) -> bool:
    return any(hmac.compare_digest(_compute_hmac(key, purpose, context, content), signature.hmac) for key in keys)


def _compute_hmac(key: Key, purpose: str, context: Sequence[str], content: bytes) -> str:
    names = [each.encode(errors="surrogatepass") for each in context]
    number, count = str(FORMAT).encode(), str(len(names)).encode()
    message = _pack(_SIGNED_DOMAIN, number, purpose.encode(), count, *names, content)
    return hmac.new(key.secret, message, hashlib.sha256).hexdigest()


def _pack(*parts: bytes) -> bytes:
    """Each part behind its length, so that no other parts come to the same bytes."""
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts)


def _encode_content(told: Mapping[str, Any]) -> bytes:
    """The same bytes for the same object, however its file is written."""
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
