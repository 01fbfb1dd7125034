"""The one codec: our frozen values as JSON, and back by the types of their fields. Pure.

A class that is a `JsonValue` stands in JSON by its fields, in their order; where it is to stand otherwise, its `json`
says how. What comes back was checked: a value of another shape is a `ShapeError`, whoever made the file, and it names
the place in it. How long a number may be and how deep a text is nested is bounded by `notes.read_json`, which reads the
text; here a value is at most as deep as its type.

    int, str, bool, float, None    as they are; a bool is no int, an int is a float
    Enum                           its value
    bytes                          base64
    range                          [start, stop, step]
    tuple, frozenset, NamedTuple   a list
    Mapping                        an object; keys that are numbers become texts
    dataclass                      an object
    Any                            as it is
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import functools
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Self

from lastgood.frozen import dataclass

CLASS: Final = "class"
"""Key that holds the name of the class, where a `Style` wants it: a field may be of one of several."""

Read = Callable[[Any], Any]
"""Makes a value of JSON; raises ShapeError."""


class ShapeError(ValueError):
    """A JSON value is not of the type that it is read as."""

    def __init__(self, found: object, expected: str, at: str = "", said: str = "") -> None:
        """Tell what was found where.

        Args:
            found: The value.
            expected: What it should be.
            at: Its place: `steps[3].path`; empty for the whole.
            said: All of it in the words of the noun, if that has refused it.
        """
        self.found = found
        self.expected = expected
        self.at = at
        self.said = said
        super().__init__(found, expected, at, said)

    def within(self, name: str | int) -> ShapeError:
        """The same, told of what holds the value: by the name of the field, or the number of the item."""
        if isinstance(name, int):
            outer = f"[{name}]"
        else:
            outer = name
        dot = "." if self.at and not self.at.startswith("[") else ""
        return ShapeError(self.found, self.expected, f"{outer}{dot}{self.at}", self.said)

    def __str__(self) -> str:
        """One line for a person."""
        if self.at:
            place = f"{self.at}: "
        else:
            place = ""
        return place + (self.said or f"{self.found!r:.80} is no {self.expected}")


@dataclass(frozen=True, slots=True)
class Form:
    """How a class stands in JSON."""

    keys: tuple[str, ...] = ()
    """In their order, none: all fields. Each is a field, a property or a constant; or `KEY=ATTRIBUTE`, dots allowed, of
    which nothing follows None; or `*ATTRIBUTE`: all keys of the object of that."""
    left_out: frozenset[str] = frozenset()
    """Keys that are left out where their value is empty or None."""
    texts: frozenset[str] = frozenset()
    """Keys whose values, such as locations, stand as their text."""
    strict: bool = False
    """Whether a field that is missing counts as null; else it has its default."""
    closed: bool = False
    """Whether a key that is none of a field is refused; else it is passed over."""
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Before it is read: what was found, by the names of the fields. It may raise ValueError."""
    finish: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    """After it was written: what is written in its place."""
    check: Callable[[Any], object] | None = None
    """After it was read: raises ValueError where its fields do not make one together."""


def make_form(keys: str = "", *, left_out: str = "", texts: str = "", **more: Any) -> Form:
    """A form by the words of its keys."""
    return Form(tuple(keys.split()), frozenset(left_out.split()), frozenset(texts.split()), **more)


class JsonValue:
    """A dataclass with a form in JSON."""

    __slots__ = ()

    json: ClassVar[Form] = Form()
    """Its form."""

    def to_json(self) -> dict[str, Any]:
        """The object that it is in JSON."""
        found: dict[str, Any] = to_json(self)
        return found

    @classmethod
    def from_json(cls, told: object) -> Self:
        """What `to_json` gave.

        Raises:
            ShapeError: it is something else.
        """
        found: Self = from_json(cls, told)
        return found


@dataclass(frozen=True, slots=True)
class Between:
    """Stands in `Annotated[int, Between(0, 9)]`: the bounds of a number, both included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """Stands in `Annotated[str, AtMost(200)]`: how many characters a text may have, or items a list."""

    size: int


@dataclass(frozen=True, slots=True)
class Style:
    """How values are written, where not as they are."""

    is_by_fields: bool = False
    """Whether every dataclass stands by its fields, with the name of its class, whatever its form."""
    text: Callable[[str], str] | None = None
    """What becomes of every text, and of every key of a mapping."""
    hidden: Callable[[str, str], str] | None = None
    """What becomes of a text in a mapping, by its key."""
    left_out: frozenset[str] = frozenset()
    """Fields and keys of mappings that are not written at all."""


AS_IT_IS: Final = Style()
_AS_THEY_ARE: Final = frozenset((types.NoneType, bool, int, float))


def to_json(value: Any, style: Style = AS_IT_IS) -> Any:
    """A value as JSON.

    Raises:
        TypeError: it holds something that is none of our values.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE or (kind is str and style.text is None):
        return value
    return _choose_encoder(kind)(value, style)  # type: ignore[arg-type]  # a class can be hashed


@functools.cache
def _choose_encoder(kind: type) -> Callable[[Any, Style], Any]:
    """What writes the values of a class: chosen once, since a listing holds millions of them."""
    if dataclasses.is_dataclass(kind):
        return _encode_dataclass
    if kind in (list, tuple):
        return _encode_items
    for ours, encode in _ENCODERS:
        if issubclass(kind, ours):
            return encode
    return _encode_collection


def _encode_as_it_is(value: Any, _style: Style) -> Any:
    return value


def _encode_text(value: str, style: Style) -> str:
    if style.text is None:
        return value
    return style.text(value)


def _encode_choice(value: enum.Enum, _style: Style) -> Any:
    return value.value


def _encode_dataclass(value: Any, style: Style) -> Any:
    if style.is_by_fields:
        return _encode_by_fields(value, style)
    if isinstance(value, JsonValue) or not hasattr(value, "to_json"):
        return _encode_by_form(value, style)
    return value.to_json()


def _encode_collection(value: Any, style: Style) -> Any:
    if isinstance(value, bytes) and not style.is_by_fields:
        return base64.b64encode(value).decode()
    if hasattr(value, "to_json") and not style.is_by_fields:
        return value.to_json()
    if not isinstance(value, Collection) or isinstance(value, bytes):
        raise TypeError(f"no value that can be written down: {type(value).__name__}")
    items = (value.start, value.stop, value.step) if isinstance(value, range) else value
    return _encode_items(items, style)


def _encode_items(items: Collection[Any], style: Style) -> list[Any]:
    if _AS_THEY_ARE.issuperset(map(type, items)):
        return list(items)
    return [to_json(each, style) for each in items]


def _encode_mapping(value: Mapping[Any, Any], style: Style) -> dict[str, Any]:
    if style is AS_IT_IS:
        return {str(key): to_json(each) for key, each in value.items()}
    found: dict[str, Any] = {}
    for key, each in value.items():
        name = str(key)
        if name in style.left_out:
            continue
        if style.hidden is not None and isinstance(each, str):
            each = style.hidden(name, each)  # noqa: PLW2901 - the same text, as it may be written
        found[name if style.text is None else style.text(name)] = to_json(each, style)
    return found


_ENCODERS: Final = (
    (types.NoneType | bool | int | float, _encode_as_it_is),
    (str, _encode_text),
    (enum.Enum, _encode_choice),
    (Mapping, _encode_mapping),
)


def _encode_by_fields(value: Any, style: Style) -> dict[str, Any]:
    found: dict[str, Any] = {CLASS: type(value).__name__}
    for each in dataclasses.fields(value):
        if each.init and each.name not in style.left_out:
            found[each.name] = to_json(getattr(value, each.name), style)
    return found


def _encode_by_form(value: Any, style: Style) -> dict[str, Any]:
    shape = _find_shape(type(value))  # type: ignore[arg-type]  # a class can be hashed
    if shape.read is None:
        found = _encode_members(value, shape.members, style)
    else:
        found = {key: to_json(each, style) for key, each in zip(shape.keys, shape.read(value), strict=True)}
        for member in shape.left_out:
            if not member.get(value):
                del found[member.key]
    return found if shape.finish is None else shape.finish(found)


def _encode_members(value: Any, members: tuple[_Member, ...], style: Style) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in members:
        each = member.get(value)
        if member.is_spread:
            found |= to_json(each, style)
        elif each or not member.is_left_out:
            is_text = member.is_text and each is not None
            if is_text:
                found[member.key] = str(each)
            else:
                found[member.key] = to_json(each, style)
    return found


def find_form(kind: type) -> Form:
    """The form of a dataclass: its own, or by its fields."""
    found = getattr(kind, "json", None)
    if isinstance(found, Form):
        return found
    return Form()


def list_attributes(kind: Any) -> dict[str, str]:
    """The keys of a dataclass in JSON, in their order, and which attribute each of them is."""
    words = find_form(kind).keys or [each.name for each in dataclasses.fields(kind)]
    parted = [word.partition("=") for word in words]
    return {key: attribute or key.removeprefix("*") for key, _, attribute in parted}


@dataclass(frozen=True, slots=True)
class _Member:
    """A key of an object, as `Form` says it."""

    key: str
    get: Callable[[Any], Any]
    is_spread: bool
    """Whether all keys of the object of that stand in its place."""
    is_left_out: bool
    """Whether it is left out where its value is empty or None."""
    is_text: bool


@dataclass(frozen=True, slots=True)
class _Shape:
    """What `_encode_by_form` has to know of a class."""

    members: tuple[_Member, ...]
    keys: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]] | None
    """Gives the values of all keys at once, which is faster; None where a key is more than an attribute."""
    left_out: tuple[_Member, ...]
    finish: Callable[[Mapping[str, Any]], dict[str, Any]] | None


@functools.cache
def _find_shape(kind: Any) -> _Shape:
    form = find_form(kind)
    attributes = list_attributes(kind)
    members = tuple(
        _Member(
            key,
            _make_getter(attribute.split(".")),
            is_spread=key.startswith("*"),
            is_left_out=key in form.left_out,
            is_text=key in form.texts,
        )
        for key, attribute in attributes.items()
    )
    is_plain = not any(each.is_spread or each.is_text for each in members)
    is_direct = not any("." in attribute for attribute in attributes.values())
    read: Callable[[Any], tuple[Any, ...]] | None = None
    if is_plain and is_direct and len(members) > 1:  # of one attribute it would give no tuple
        read = operator.attrgetter(*attributes.values())
    left_out = tuple(each for each in members if each.is_left_out)
    return _Shape(members, tuple(attributes), read, left_out, form.finish)


def _make_getter(names: list[str]) -> Callable[[Any], Any]:
    if len(names) == 1:
        return operator.attrgetter(names[0])

    def get(value: Any) -> Any:
        for name in names:
            if value is None:
                value = None
            else:
                value = getattr(value, name)
        return value

    return get


def from_json(kind: Any, told: object) -> Any:
    """The value of a type that a JSON value stands for; keys that it does not have are passed over.

    Raises:
        ShapeError: it stands for none.
    """
    return _PLAIN.read(kind, told)


@dataclass(frozen=True)
class Codec:
    """Reads values, some of them by hooks: for what no type alone can tell."""

    hooks: Mapping[Any, Read] = field(default_factory=dict)
    """By their types; a hook may raise ValueError."""
    is_by_fields: bool = False
    """Whether every dataclass stands by its fields, whatever its form; as in `Style`."""
    _readers: dict[Any, Read] = field(default_factory=dict, repr=False)

    def read(self, kind: Any, told: object) -> Any:
        """As `from_json`."""
        return self.reader(kind)(told)

    def reader(self, kind: Any) -> Read:
        """What reads a type."""
        found = self._readers.get(kind)
        if found is None:
            found = self._readers[kind] = self._made(kind)
        return found

    def _made(self, kind: Any) -> Read:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind in self.hooks:
            return _make_hooked(kind, self.hooks[kind])
        if kind is Any or isinstance(kind, str | typing.ForwardRef):  # plain JSON
            return _take_as_it_is
        if origin in (typing.Union, types.UnionType):
            return self._one_of(arguments)
        if origin is typing.Literal:
            return _make_checking(kind, lambda told: told in arguments)
        if origin is typing.Annotated:
            return _make_bounded(self.reader(arguments[0]), arguments[1:])
        return self._plain(kind) if origin is None else self._collection(kind, origin, arguments)

    def _collection(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Read:
        if issubclass(origin, Mapping):
            return _make_mapping_reader(kind, _make_key_reader(arguments[0]), self.reader(arguments[1]))
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _make_row_reader(kind, tuple, [self.reader(each) for each in arguments])
        return _list_reader(kind, origin, self.reader(arguments[0]))

    def _plain(self, kind: Any) -> Read:
        if kind in _SCALARS:
            return _SCALARS[kind]
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _make_enum_reader(kind)
        if dataclasses.is_dataclass(kind):
            return _DataclassReader(self, kind)
        if isinstance(kind, type) and issubclass(kind, tuple):  # a named one
            hints = typing.get_type_hints(kind, include_extras=True)
            return _make_row_reader(kind, kind._make, [self.reader(each) for each in hints.values()])  # type: ignore[attr-defined]
        raise TypeError(f"no type that can be read: {kind}")

    def _one_of(self, kinds: Collection[Any]) -> Read:
        expected = " or ".join(map(_name_kind, kinds))

        def read(told: Any) -> Any:
            if told is None and types.NoneType in kinds:
                return None
            name = None
            if isinstance(told, dict):
                name = told.get(CLASS)
            named = [kind for kind in kinds if name is not None and getattr(kind, "__name__", None) == name]
            some = [kind for kind in named or kinds if kind is not types.NoneType]
            for kind in some:
                try:
                    return self.reader(kind)(told)
                except ShapeError:
                    if len(some) == 1:
                        raise
            raise ShapeError(told, expected)

        return read


class _DataclassReader:
    """Reads a dataclass. What reads its fields is found when it is first needed: a class may hold itself."""

    def __init__(self, codec: Codec, kind: Any) -> None:
        self._codec = codec
        self._kind = kind
        if codec.is_by_fields:
            self._form = Form()
        else:
            self._form = find_form(kind)
        self._fields: list[tuple[str, str, Read]] = []

    def __call__(self, told: Any) -> Any:
        shape = self._form
        found = _require(isinstance(told, dict), told, self._kind)
        if shape.prepare is not None:
            found = _call_maker(self._kind, shape.prepare, told)
        if not self._fields:
            self._fields = list(self._found_fields())
        if shape.closed:
            _require_known(self._kind, found, {key for _, key, _ in self._fields})
        given = self._read(found)
        made = _call_maker(self._kind, lambda _: self._kind(**given), told)
        if shape.check is not None:
            _call_maker(self._kind, shape.check, made)
        return made

    def _found_fields(self) -> Iterator[tuple[str, str, Read]]:
        """Name, key and reader of each."""
        keys = {attribute: key for key, attribute in list_attributes(self._kind).items()}
        if self._form.prepare is not None or self._codec.is_by_fields:
            keys = {}  # what is there stands by the names of the fields
        hints = typing.get_type_hints(self._kind, include_extras=True)
        for each in dataclasses.fields(self._kind):
            if each.init:
                yield each.name, keys.get(each.name, each.name), self._codec.reader(hints[each.name])

    def _read(self, found: Mapping[str, Any]) -> dict[str, Any]:
        given = {}
        for name, key, read in self._fields:
            if key in found or self._form.strict:
                try:
                    given[name] = read(found.get(key))
                except ShapeError as error:
                    raise error.within(key) from error
        return given


def _call_maker(kind: Any, make: Read, told: Any) -> Any:
    """What is made of a value, with errors of the noun told as ours."""
    try:
        return make(told)
    except ShapeError:
        raise
    except TypeError as error:  # a field without a default is missing
        raise ShapeError(told, f"{_name_kind(kind)}: {error}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ShapeError(told, _name_kind(kind), said=str(error)) from error


def _require_known(kind: Any, told: Mapping[str, Any], keys: Collection[str]) -> None:
    unknown = [key for key in told if key not in keys]
    if unknown:
        raise ShapeError(unknown[0], f"key of {_name_kind(kind)}")


def _make_hooked(kind: Any, hook: Read) -> Read:
    return lambda told: _call_maker(kind, hook, told)


def _take_as_it_is(told: Any) -> Any:
    return told


def _name_kind(kind: Any) -> str:
    if typing.get_origin(kind) is None:
        return str(getattr(kind, "__name__", kind))
    return str(kind)


def _require(fits: object, told: Any, kind: Any) -> Any:
    if not fits:
        raise ShapeError(told, _name_kind(kind))
    return told


def _is_hashable(told: Any) -> bool:
    return not isinstance(told, dict | list)


def _make_checking(kind: Any, fits: Callable[[Any], bool]) -> Read:
    return lambda told: _require(fits(told), told, kind)


def _make_bounded(read: Read, bounds: Collection[Any]) -> Read:
    def checked(told: Any) -> Any:
        found = read(told)
        for each in bounds:
            if isinstance(each, Between) and not each.least <= found <= each.most:
                raise ShapeError(told, f"number from {each.least} to {each.most}")
            if isinstance(each, AtMost) and len(found) > each.size:
                raise ShapeError(told, f"value of at most {each.size}")
        return found

    return checked


def _make_mapping_reader(kind: Any, key: Read, value: Read) -> Read:
    def read(told: Any) -> Any:
        found = {}
        for name, each in _require(isinstance(told, dict), told, kind).items():
            try:
                found[key(name)] = value(each)
            except ShapeError as error:
                raise error.within(name) from error
        return found

    return read


def _make_key_reader(kind: Any) -> Read:
    return _parse_number_key if kind is int else _take_as_it_is


def _parse_number_key(key: str) -> int:
    return int(_require(key.removeprefix("-").isdecimal() and key.isascii() and len(key) < 20, key, int))


def _list_reader(kind: Any, origin: Any, item: Read) -> Read:
    made: Callable[[list[Any]], Any] = tuple
    if issubclass(origin, frozenset):
        made = frozenset
    elif origin is list:
        made = list

    def read(told: Any) -> Any:
        found = []
        for at, each in enumerate(_require(isinstance(told, list), told, kind)):
            try:
                found.append(item(each))
            except ShapeError as error:
                raise error.within(at) from error
        return made(found)

    return read


def _make_row_reader(kind: Any, made: Callable[[list[Any]], Any], items: list[Read]) -> Read:
    def read(told: Any) -> Any:
        _require(isinstance(told, list) and len(told) == len(items), told, kind)
        found = []
        for at, (item, each) in enumerate(zip(items, told, strict=True)):
            try:
                found.append(item(each))
            except ShapeError as error:
                raise error.within(at) from error
        return made(found)

    return read


def _make_enum_reader(kind: type[enum.Enum]) -> Read:
    known = {each.value: each for each in kind}
    return lambda told: known[_require(_is_hashable(told) and told in known, told, kind)]


def _parse_range(told: Any) -> range:
    numbers = isinstance(told, list) and len(told) == 3 and all(type(each) is int for each in told) and told[2]
    return range(*_require(numbers, told, range))


def _parse_bytes(told: Any) -> bytes:
    try:
        return base64.b64decode(_require(isinstance(told, str), told, bytes), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ShapeError(told, "base64") from error


_SCALARS: Final[Mapping[Any, Read]] = {
    None: _make_checking(None, lambda told: told is None),
    types.NoneType: _make_checking(None, lambda told: told is None),
    bool: _make_checking(bool, lambda told: isinstance(told, bool)),
    int: _make_checking(int, lambda told: type(told) is int),
    float: _make_checking(float, lambda told: type(told) in (int, float)),
    str: _make_checking(str, lambda told: isinstance(told, str)),
    range: _parse_range,
    bytes: _parse_bytes,
}
_PLAIN: Final = Codec()
