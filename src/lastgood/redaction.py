"""Takes secrets out of text: the one function for all that is written down or shown. Pure, but for `add_redaction`.

The form of a text stays: JSON is the same JSON with other values, a URL the same URL. What is hidden once stays as it
is. Every pattern is linear in the length of the text: quantifiers that could be tried in more than one way are
possessive, and a value ends at the end of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from lastgood.frozen import dataclass

HIDDEN = "***"

# As `spark.redaction.regex` of Spark 3.5 and 4.x, which is `(?i)secret|password|token|access[.]?key`, and more.
_WORDS = (
    "passw(?:or)?d|passphrase|passcode|secret|token|credential|signature|jaas|authorization|cookie|auth[.]user[.]info"
    "|(?:api|access|account|private|shared|storage|encryption|routing|service|integration)[._-]?key"
)
_PARTS = "sig|sas|pwd|pass"
_ENDS = "pwd|(?:db|key|root|store|user)pass"
_SECRET_NAME = re.compile(rf"{_WORDS}|(?:^|[._-])(?:{_PARTS})(?:$|[._-])|(?:{_ENDS})$", re.IGNORECASE)
_NO_NAME = re.compile(r"(?:exception|error|provider|handler)$", re.IGNORECASE)
"""Classes, such as `TopicAuthorizationException: Not authorized`."""
_HEAD = re.compile(
    r"""(?<![\w.-])(?P<name>(?:[\w.-]|%(?i:2[DE]|[46][1-9A-F]|[57][0-9A]|5F))++)
    (?:
        (?P<json>\\*+["'])\s*+(?P<colon>:)\s*+             # "password": "x"
      | \\*+["']\s++value\s*+=\s*+                         # name="password" value="x"
      | (?:\\*+["'])?\s*+(?::?={1,3}+>?|->)\s*+            # password=x, 'password' = x, password -> x
      | (?P<encoded>(?i:%(?:25)*+3D|%(?:25)*+22%(?:25)*+3A)) # a URL within a URL
      | [ \t]*+(?P<yaml>:)(?:\s++|(?![\s:/=]|\d*+(?:[^\w]|$)))  # password: x, password:x, but not the port of a host
      | </name>\s*+<value>                                 # Hadoop's XML
      | (?P<element>>)                                     # <password>x
      | (?P<word>\\*+["']?(?:,\s*+|[ \t]++))               # --password x, ["--password", "x"], ("password", "x")
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile("(?:25)*+[23][0-9A-F]", re.IGNORECASE)
"""What is left of an escape in front of a name, behind its `%`."""
_VALUE = re.compile(
    r"""(?:(?:Basic|Bearer|Digest|Negotiate|Token|NTLM|OAuth|ApiKey|AWS|SharedKey(?:Lite)?)[ ]+)?
    (?: [^\s\\,;&)}\]"'<>|]
      | \\[^ntrbf"'/\s]                                    # in JSON: a backslash, or a letter by its number
      # What ends a value is a part of it where neither a space nor a bracket nor another name follows.
      | [,;&)}\]"'<>|](?=[^\s\\,;&)}\]"'<>|.:/=])(?![\w.-]{1,64}+\s?["']?(?:=|->|:))
    )*+""",
    re.VERBOSE | re.IGNORECASE,
)
_QUOTE = re.compile(r"[bu]?(\\{0,15}+[\"'])")
_QUOTE_BEFORE = re.compile(r"\\{0,15}+[\"']$")
_QUOTE_OR_LINE = re.compile(r"\\*+[\"']|[\r\n]")
_BRACES = re.compile(r"\{(?:[^{}\r\n=]|\}\})*+\}")
_COOKIES = re.compile(r"""[^\r\n"'\\]*+""")

_PLACE = "://"
_SCHEME = re.compile(r"[\w+.-]{1,32}$")
_URL = re.compile(r"""(?:[^\s"'\\<>]|\\[^ntrbf"'/\s]|\\*+["'](?=\w))*+""")
_LOGIN = re.compile(r"(?<=://)([^/@:]*+):.*@", re.DOTALL)
_AUTHORITY = re.compile("[^/?#]*+")
_COLON = re.compile("(:|%3A)", re.IGNORECASE)
_HOSTS = re.compile(r"(?:[^:@\[\],]*+|\[[^\]]*+\])(?::\d*+)?(?:,(?:[^:@\[\],]*+|\[[^\]]*+\])(?::\d*+)?)*+$")
"""An authority without a login: hosts, each with its port or without."""
_BEHIND_BLANKS = re.compile(r"""[ \t][^\r\n"'\\<>@]{0,256}+@""")
_DATABASES = ("postgres", "mysql", "mariadb", "sqlserver", "mssql", "oracle", "redshift", "snowflake", "db2", "mongodb")
_WEB = ("http", "https", "git+https", "ftp", "ftps")


class _Late:
    """A pattern that is compiled when it is first looked for: most of them never are, and each takes half a ms."""

    def __init__(self, regex: str, flags: int = 0) -> None:
        self._regex = regex
        self._flags = flags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self._regex, self._flags)


_FORMS: tuple[tuple[tuple[str, ...], _Late, str], ...] = (
    (
        ("private key-----",),
        _Late(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[\w+/=\s:,.]|\\++[nr]|-(?!----))*+"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
        ),
        HIDDEN,
    ),
    (("bearer",), _Late(r"(\bBearer\s++)[\w.~+/-]++=*+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        ("basic",),
        _Late(r"(\bBasic\s++)(?=[A-Za-z+/]*+[0-9=])[A-Za-z0-9+/]{6,}+=*+", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (
        ("jdbc:oracle:",),
        _Late(r"(jdbc:oracle:\w{1,16}+:[^/\s\"'@]{0,128}+)/[^\s\"'\\]{0,256}@", re.IGNORECASE),
        rf"\1/{HIDDEN}@",
    ),
    (
        ("jdbc:oracle:",),
        _Late(r"(jdbc:oracle:\w{1,16}+:[^/\s\"'@]{0,128}+)/\\{0,15}+\"[^\s\"\\]{0,256}+\\{0,15}+\"@", re.IGNORECASE),
        rf"\1/{HIDDEN}@",
    ),
    (
        ("3a%2", "3a//"),
        _Late(
            r"""(%(?:25)*+3A(?://|(?:%(?:25)*+2F){2})(?:[^\s"'\\<>&%:/@]|%(?:25)*+(?!3A|2F|40)){0,128}+(?::|%(?:25)*+3A))
            [^\s"'\\<>&]{1,256}(@|%(?:25)*+40)""",
            re.IGNORECASE | re.VERBOSE,
        ),
        rf"\1{HIDDEN}\2",
    ),
    (
        ("identified",),
        _Late(
            r"""(\bIDENTIFIED\s++(?:WITH\s++\S++\s++)?BY\s++)(?:(\\{0,15}+["'])[^"'\\\r\n]++|[^\s"'\\;]++)""",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
    (
        ("-u", "-proxy-u"),
        _Late(
            r"""((?<![\w-])(?:-u|--(?:proxy-)?user)(?:=|\\{0,15}+["']?,?\s*+\\{0,15}+["']?)[^\s:"'\\,]{1,128}+:)
            (?!//)[^\s"'\\]++""",
            re.IGNORECASE | re.VERBOSE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("hook", "workflow", "pagerduty", "telegram"),
        _Late(
            r"((?:\bhooks\.slack(?:-gov)?\.com/\w++|\bdiscord(?:app)?\.com/api(?:/v\d++)?/webhooks"
            r"|\.webhook\.office\.com/\w++|\boutlook\.office(?:365)?\.com/webhook|\.logic\.azure\.com(?::\d++)?/workflows"
            r"|\bevents(?:\.eu)?\.pagerduty\.com/(?:integration|x-ere)|\bapi\.telegram\.org)/)[^\s\"'\\<>]++",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("mysql", "mariadb"),
        _Late(r"""(\b(?:mysql|mariadb)[\w-]{0,16}+[^\r\n|;&]{0,256}?[ \t]-p)[^\s"'\\]++""", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (("?key=",), _Late(r"(\bgoogleapis\.com/[^\s\"'\\<>?]{0,512}+\?key=)[^\s\"'\\<>&]++"), rf"\1{HIDDEN}"),
    # A login without a scheme, before a host and its port.
    (
        ("@",),
        _Late(r"""(?<![\w/@.:+-])([\w.+-]{1,64}+:)[^\s@/:,;"'\\]{1,256}+(?=@[\w.-]{1,253}+:\d)"""),
        rf"\1{HIDDEN}",
    ),
    # What is left of a URL that was taken for a path.
    (
        (":/",),
        _Late(r"(?<![\w+.-])([a-z][\w+]{1,31}+:/[^/\s:@]{1,128}+:)[^\s@/]{1,256}+@", re.IGNORECASE),
        rf"\1{HIDDEN}@",
    ),
    (("lastgood-key-1:",), _Late(r"(lastgood-key-1:[0-9a-f]{8}:)[A-Za-z0-9+/]++=*+"), rf"\1{HIDDEN}"),
    (("akia", "asia"), _Late(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (("eyj",), _Late(r"(?<![\w-])eyJ[\w-]{10,}+\.[\w-]++\.[\w-]*+"), HIDDEN),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
        _Late(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+)|(?<![\w-])glpat-[\w-]{16,}+"),
        HIDDEN,
    ),
    (("dapi", "dose", "dkea"), _Late(r"\b(?:dapi|dose|dkea)[0-9a-f]{32,}+(?:-\d++)?"), HIDDEN),
    (
        ("xox", "aiza", "ya29.", "k_live_"),
        _Late(r"(?<![\w-])(?:xox[a-z]-[\w-]{10,}+|AIza[\w-]{35,}+|ya29\.[\w-]{10,}+|[rs]k_live_\w{16,}+)"),
        HIDDEN,
    ),
)
"""Each with its signs: one of them stands, in small letters, in every text of ASCII with such a secret."""
_USERS = ("-u", "--user", "--proxy-user")
"""Options whose word is `USER:PASSWORD`, as curl's."""
_NAME_SIGNS = ("pass", "pwd", "secret", "token", "credential", "sig", "sas", "jaas", "auth", "cookie", "key", "%")
"""One of them stands in every name of a secret; or a part of it is encoded."""
CUT = "…"
_ROWS: tuple[tuple[_Late, str], ...] = (
    (_Late(r"\bRow\((?=[\w'\"-])[^\r\n]*+"), f"Row({CUT})"),
    # Delta lists the row of a broken constraint below the line.
    (_Late(r"(\bwith values:)(?:\s++-[^\r\n]*+)++", re.IGNORECASE), rf"\1 '{CUT}'"),
    (
        # What stands behind a colon to the end of the line.
        _Late(
            r"""(\b(?:record[ ]parsing|records?|rows?|payload|document|KeyError|out[ ]of[ ]range|url[ ]is[ ]invalid
            |key[ ]not[ ]found|MatchError|UUID[ ]string(?:[ ]too[ ]large)?|Unparseable[ ](?:date|number)
            |invalid[ ]input[ ](?:syntax|value)[ ]for[ ](?:type|enum)[^:\r\n]{0,200}+
            |COPY[ ][^\s,]{1,200}+,[ ]line[ ]\d++(?:,[ ]column[ ][^:\r\n]{1,200}+)?):[ ])[^\r\n]++""",
            re.IGNORECASE | re.VERBOSE,
        ),
        rf"\1'{CUT}'",
    ),
    (
        # What is quoted, or stands in brackets.
        _Late(
            r"""(\b(?:records?|rows?|values?(?:[ ]is)?|text|input|string|literal|float|data|token|entry|parameters?
            |convert|base[ ]\d++|key|pars(?:e|ed|ing)(?:[ ]\w++){0,2})(?:[ ]in[ ]parsing)?:?[ ])
            ['"`\[{($][^\r\n]*+""",
            re.IGNORECASE | re.VERBOSE,
        ),
        rf"\1'{CUT}'",
    ),
    # PostgreSQL, and what JDBC makes of a statement.
    (_Late(r"(\bKey \([^)\r\n]*+\)=)[^\r\n]++"), rf"\1({CUT})"),
    (_Late(r"(\bFailing row contains )[^\r\n]++"), rf"\1({CUT})"),
    (
        _Late(
            r"""(\b(?:INSERT[ ]INTO|UPDATE|DELETE[ ]FROM|MERGE[ ]INTO)[ ][\w."`]{1,200}+[ ])
            (?=[^\r\n'(=]{0,500}+['(=])[^\r\n]++""",
            re.IGNORECASE | re.VERBOSE,
        ),
        rf"\1'{CUT}'",
    ),
    # Jackson; Spark's numbers, which it does not quote.
    (_Late(r"(\[Source: \([\w.]++\))[^\r\n]*+"), rf"\1'{CUT}'"),
    (_Late(r"(\bThe value )[^\s'\"]++(?= of | cannot )"), rf"\1'{CUT}'"),
    (_Late(r"(?<!\S)\S++(?= cannot be represented as )"), f"'{CUT}'"),
    (_Late(r"(\bDuplicate map key )[^\r\n]++"), rf"\1'{CUT}'"),
    # Scala, Java's and Python's enumerations, Oracle.
    (_Late(r"(?m)^(?! )[^\r\n]+?(?= \(of class [\w.$\[;]{1,300}+\))"), f"'{CUT}'"),
    (_Late(r"(\bNo enum constant [\w.$]{0,300}\.)[^\r\n]++"), rf"\1{CUT}"),
    (_Late(r"""(?:"[^"\r\n]*+"|'[^'\r\n]*+')(?= is not (?:in list|a valid ))"""), f"'{CUT}'"),
    (_Late(r"(\bcolumn values )\([^\r\n]*+"), rf"\1({CUT})"),
)
"""Where Spark, Java, Python, Delta and databases quote values of the data; what follows may be more of them."""


@dataclass(slots=True)
class _Also:
    """What the user counts as secret beside that."""

    names: re.Pattern[str] | None = None
    strings: re.Pattern[str] | None = None


_also = _Also()


def add_redaction(regex: str | None = None, string_regex: str | None = None) -> None:
    """Hide more from now on, in this whole process: a secret that one thread knows is one for all of them.

    Args:
        regex: As `spark.redaction.regex`: what is called so is a secret. None: as before.
        string_regex: As `spark.redaction.string.regex`: what it matches is one. None: as before.

    Raises:
        re.error: one of them is no regular expression of Python; then nothing has changed.
        ValueError: one of them matches the empty text, and with it everything.
    """
    names, strings = _compile(regex), _compile(string_regex)
    _also.names, _also.strings = names or _also.names, strings or _also.strings


def _compile(regex: str | None) -> re.Pattern[str] | None:
    if regex is None:
        return None
    pattern = re.compile(regex)
    if pattern.search("") is not None:
        raise ValueError("it matches the empty text")
    return pattern


def redact_nothing_else() -> None:
    """Forget what `add_redaction` was told."""
    _also.names = _also.strings = None


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret: a setting, a parameter of a URL, an option of a command."""
    if _also.names is not None and _also.names.search(name) is not None:
        return True
    return _SECRET_NAME.search(name) is not None and _NO_NAME.search(name) is None


def redact(text: str) -> str:
    """The same text, with `***` in place of passwords, tokens, keys and signatures.

    Example:
        >>> redact("jdbc:sqlserver://db;user=sa;password={a;b};encrypt=true")
        'jdbc:sqlserver://db;user=sa;password=***;encrypt=true'
        >>> redact("postgresql://etl:p@ss/word@db/orders")
        'postgresql://etl:***@db/orders'
    """
    # To look for a sign takes a small part of what its form takes. Beyond ASCII, letters have more than two cases.
    if text.isascii():
        shown = text.lower()
    else:
        shown = None
    for signs, late, replacement in _FORMS:
        if _may_have(signs, shown):
            text = late.pattern.sub(replacement, text)
    text = "".join(_hide_logins(text))
    if _also.names is not None or _may_have(_NAME_SIGNS, shown):
        text = "".join(_hide_values(text))
    if _also.strings is None:
        return text
    return _also.strings.sub(HIDDEN, text)


def _may_have(signs: tuple[str, ...], shown: str | None) -> bool:
    """Whether one of them stands in a text in small letters; so it is of one that is not known."""
    if shown is None:
        return True
    for sign in signs:  # noqa: SIM110 - `any` takes thrice as long
        if sign in shown:
            return True
    return False


def hide_login(location: str, *, instead: str = "") -> str:
    """A location as it may be shown and kept, and still be used: a driver finds a password in places of its own.

    Args:
        location: As the user wrote it; that of a database loses the parameters that are secrets as well.
        instead: What stands for the password, with its colon; empty: nothing.

    Example:
        >>> hide_login("postgresql://etl:p@ss/word@db/orders?sslmode=require&password=x")
        'postgresql://etl@db/orders?sslmode=require'
    """
    scheme, place, _ = location.partition(_PLACE)
    if not place or not any(name in scheme for name in _DATABASES):
        return "".join(_hide_logins(location)).replace(f":{HIDDEN}@", f"{instead}@")
    # The whole text is one URL: whatever stands in front of the last `@` may be a part of the password.
    shown = _LOGIN.sub(lambda found: f"{found[1]}{instead}@", location)
    place, mark, parameters = shown.partition("?")
    kept = [each for each in parameters.split("&") if not is_secret_name(each.partition("=")[0])]
    if kept != [""] and kept:
        return f"{place}{mark}{'&'.join(kept)}"
    return place


def describe_left_out_password(location: str) -> str | None:
    """How a command that names a location without its password gets at it; None if nothing of it is left out.

    Args:
        location: As the user wrote it.
    """
    shown = hide_login(location)
    if shown == location:
        return None
    return (
        f"commands name {shown} without its password: it is looked for where the database's driver does, such as"
        " PGPASSWORD or ~/.pgpass; or name the sink in lastgood.toml, and the pipeline in the command"
    )


def hide_rows(line: str) -> str:
    """An error line without values of the data that Spark, Java or Python quotes: cut from there on, and marked.

    Example:
        >>> hide_rows("[CAST_INVALID_INPUT] The value 'alice@x' of the type STRING cannot be cast")
        "[CAST_INVALID_INPUT] The value '…'"
        >>> hide_rows("no such field in Row(name='Alice', age=5)")
        'no such field in Row(…)'
    """
    for late, replacement in _ROWS:
        line = late.pattern.sub(replacement, line)
    return line


def redact_told(text: str, *, show_data: bool = False) -> str:
    """What others say of a failure, as it may be shown and kept: the one judge of that.

    Args:
        text: An error line, a message of several lines, or a traceback.
        show_data: Whether somebody has asked here for the rows in it; secrets are hidden all the same.

    Example:
        >>> redact_told("The value 'alice@x' cannot be cast; password=x")
        "The value '…'"
    """
    if show_data:
        return redact(text)
    return hide_rows(redact(text))


def redact_error(error: BaseException) -> str:
    """What somebody else's exception says, in one line of at most 200 characters, as it may be shown and kept.

    Cut at its end, not before: half a secret is not known as one any more.
    """
    return (redact_told(str(error)).splitlines() or [""])[0][:200]


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of a command line, without secrets: also where a word is the secret that the word before it names.

    Example:
        >>> redact_words(["app.py", "--password", "a b", "--conf", "x.token=c d"])
        ['app.py', '--password', '***', '--conf', 'x.token=***']
    """
    found: list[str] = []
    for word in words:
        if found:
            before = words[len(found) - 1]
        else:
            before = ""
        if before.startswith("-") and "=" not in before and is_secret_name(before) and not word.startswith("--"):
            found.append(HIDDEN)
            continue
        name, is_set, _ = word.partition("=")
        if before.lower() in _USERS and ":" in word and _PLACE not in word:
            found.append(f"{word.partition(':')[0]}:{HIDDEN}")
            continue
        is_one = bool(is_set) and re.fullmatch(r"[\w.-]+", name) is not None and is_secret_name(name)
        found.append(f"{name}={HIDDEN}" if is_one else redact(word))
    return found


def redact_json(value: Any) -> Any:
    """The same value of JSON, without secrets in its texts; lists of texts are read as words of a command line."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_member(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(each, str) for each in value):
            return redact_words(value)
        return [redact_json(each) for each in value]
    return value


def _redact_member(name: str, value: Any) -> Any:
    if isinstance(value, str) and value and is_secret_name(name):
        return HIDDEN
    return redact_json(value)


def _hide_values(text: str) -> Iterator[str]:
    """The text in pieces, without what stands behind the name of a secret."""
    done = 0
    while (head := _HEAD.search(text, done)) is not None:
        name = _decode_name(text, head)
        if not is_secret_name(name) or not _is_before_value(text, head):
            # Not beyond the name: what follows it may be a name itself.
            yield text[done : head.end("name")]
            done = head.end("name")
            continue
        start, end = _find_value(text, head)
        yield text[done:start]
        if end > start:
            yield HIDDEN
        done = max(end, head.end("name"))
    yield text[done:]


def _decode_name(text: str, head: re.Match[str]) -> str:
    """What stands in front of a value, without what is encoded in it: `26sig` behind a `%`, or `p%61ssword`."""
    name = head["name"]
    if text[max(0, head.start() - 1) : head.start()] == "%":
        escape = _ESCAPE.match(name)
        if escape is not None:
            name = name[escape.end() :]
    return unquote(name)


def _is_before_value(text: str, head: re.Match[str]) -> bool:
    """Whether what follows the name is its value, where a blank, a comma or a bracket is all that stands between."""
    if head["element"] is not None:
        return head["name"].endswith("-") or text[max(0, head.start() - 1) : head.start()] == "<"
    if head["word"] is None:
        return True
    if head["name"].startswith("-"):
        return not text[head.end() : head.end() + 4].lstrip("\\\"'").startswith("-")
    if "," in head["word"]:
        return text[max(0, head.start() - 4) : head.start()].rstrip("\\\"'").endswith("(")
    return _QUOTE.match(text, head.end()) is not None  # PASSWORD 'x', as in SQL


def _find_value(text: str, head: re.Match[str]) -> tuple[int, int]:
    """From where to where the value stands, without its quotes; both the same if there is none to hide."""
    start = head.end()
    quote = _QUOTE.match(text, start)
    if quote is not None:
        end = _find_end_of_quoted(text, quote.end(), quote[1])
        if end is not None:
            return quote.end(), end
        start = quote.end()
    elif _is_of_json(text, head):
        return start, start
    elif head["yaml"] is not None and head["name"].lower().endswith("cookie"):
        return start, _COOKIES.match(text, start).end()  # type: ignore[union-attr]  # it matches everything
    around = _QUOTE_BEFORE.search(text[max(0, head.start() - 16) : head.start()])
    if around is not None and head["yaml"] is None and text[head.end("name")] not in "\\\"'":
        end = _find_end_of_quoted(text, start, around[0])  # 'password=a b' as one word of a shell
        if end is not None:
            return start, end
    found = _BRACES.match(text, start) or _VALUE.match(text, start)
    return start, start if found is None else found.end()


def _is_of_json(text: str, head: re.Match[str]) -> bool:
    """Whether what stands there without quotes is a number or an object: a topic may be called `token`."""
    if head["yaml"] is not None:
        return text[head.end() : head.end() + 1] in ("{", "[", "(")
    return head["json"] is not None or (head["word"] or "").startswith(("\\", '"', "'"))


def _find_end_of_quoted(text: str, start: int, quote: str) -> int | None:
    """Where the closing quote begins, escaped as often as the opening one; None if there is none in this line."""
    at = start
    while (found := _QUOTE_OR_LINE.search(text, at)) is not None and found[0] not in "\r\n":
        at = found.end()
        is_inside = text[at : at + 1].isalnum()  # a'b
        if found[0][-1] != quote[-1]:
            if quote[-1] == "'" and not is_inside:
                return None  # the end of the string of JSON around it
            continue
        is_doubled = quote == "'" and text[at : at + 1] == quote and text[at + 1 : at + 2].isalnum()  # 'it''s', in SQL
        if is_doubled:
            at += 1
        elif not is_inside and _is_closing(quote, len(found[0]) - len(quote)):
            return at - len(quote)
    return None


def _is_closing(quote: str, more: int) -> bool:
    r"""Whether a quote with this many more backslashes than the opening one closes it.

    A backslash within is written as twice as many as there are levels: `\\"` ends what `"` began, `\"` does not. How
    many levels of JSON are around a single quote is not known: there a backslash always counts as its own.
    """
    if quote[-1] == "'":
        return more == 0
    return more >= 0 and more % (2 * len(quote)) == 0


def _hide_logins(text: str) -> Iterator[str]:
    """The text in pieces, without passwords in front of a host."""
    done = at = 0
    while (at := text.find(_PLACE, at)) >= 0:
        found = _SCHEME.search(text[max(0, at - 32) : at])
        if found is None:
            scheme = ""
        else:
            scheme = found[0].lower()
        at += len(_PLACE)
        end = _find_end_of_login(text, at, scheme)
        if end is None:
            continue
        user, *rest = _COLON.split(text[at:end], maxsplit=1)
        colon = "".join(rest[:1])
        yield text[done:at]
        if scheme in _WEB:
            yield HIDDEN
        else:
            yield f"{user}{colon}{HIDDEN}"
        done = at = end
    yield text[done:]


def _find_end_of_login(text: str, start: int, scheme: str) -> int | None:
    """Where the `@` behind a password stands; None if there is none. One need not be encoded: the last `@` counts."""
    after = text.find(_PLACE, start)
    limit = len(text) if after < 0 else after
    found = _URL.match(text, start, limit)
    rest = "" if found is None else found[0]
    authority = _AUTHORITY.match(rest)[0]  # type: ignore[index]  # it matches everything
    last = rest.rfind("@")
    if "@" in authority:
        if _COLON.search(rest, 0, rest.index("@")) is not None:
            return start + last
        return start + authority.rindex("@") if scheme in _WEB else None
    colon = _COLON.search(authority)
    if colon is None:
        return None
    is_login = colon[0] != ":" or _HOSTS.match(authority) is None  # no host is told from its port by `%3A`
    if last >= 0:
        is_login = is_login or any(name in scheme for name in _DATABASES)
        return start + last if is_login else None
    blanks = _BEHIND_BLANKS.match(text, start + len(rest), limit) if is_login else None
    return None if blanks is None else blanks.end() - 1
