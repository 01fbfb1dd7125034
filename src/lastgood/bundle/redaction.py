"""Takes secrets out of text: what may leave the house. Pure.

The form of a text stays: JSON is the same JSON with other values, a URL the same URL.
"""

from __future__ import annotations

import re

HIDDEN = "***"

_WORDS = (
    "passw(?:or)?d|passphrase|secret|token|credential|signature|jaas|authorization"
    "|(?:api|access|account|private|shared|storage|encryption)[._-]?key"
)
_PARTS = "sig|sas|pwd"
_NAME = rf"(?:[\w.-]*(?:{_WORDS})[\w.-]*|(?:[\w.-]*[._-])?(?:{_PARTS})(?:[._-][\w.-]*)?)"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"(?<=://)([^/@\s:\"'\\]*):(?!\d+(?:/|$))[^@\s\"'\\]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(rf'("{_NAME}"\s*:\s*")(?:[^"\\]|\\.)+(?=")', re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"((?<![\w.-]){_NAME}\s*=\s*\\*[\"']?)[^\s\"'\\&,;}}\])]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"((?<![\w.-]){_NAME}:\s+)[^\s\"'\\,;}}\])]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"(\bBearer\s+)[\w.~+/-]+=*", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*"), HIDDEN),
)


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret: a setting, a parameter of a URL."""
    return _SECRET_NAME.fullmatch(name) is not None


def redacted(text: str) -> str:
    """The same text, with `***` in place of passwords, tokens, keys and signatures."""
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text
