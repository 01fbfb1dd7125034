"""`client.properties` as Kafka's own tools take it, made into settings of the client library that lastgood uses.

Secrets stay in `KafkaConfig.settings`, which is in no repr, no error and no JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.sources.kafka.java_properties import JaasEntry, parse_jaas, parse_properties

SECRET_SETTINGS = frozenset(
    {
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
    }
)
"""The settings whose values nobody may see."""

# Names that mean the same to Kafka's Java clients and to librdkafka, and librdkafka's own for what is asked here.
_SAME = frozenset(
    {
        *("security.protocol", "client.id", "client.dns.lookup", "client.rack"),
        *("sasl.mechanisms", "sasl.username", "sasl.password"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
        *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.crl.location"),
        *("enable.ssl.certificate.verification", "https.ca.location"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        *("connections.max.idle.ms", "metadata.max.age.ms", "socket.connection.setup.timeout.ms"),
        *("socket.timeout.ms", "broker.address.family"),
    }
)
# Read by the functions below, or meant for what needs no counterpart.
_HANDLED = frozenset(
    {
        *("bootstrap.servers", "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"),
        *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
        *("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates"),
        *("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password"),
        *("ssl.keystore.certificate.chain", "ssl.keystore.key"),
        *("ssl.endpoint.identification.algorithm", "request.timeout.ms"),
    }
)
_SOCKET_TIMEOUT_RANGE = (10, 300_000)
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_STORE_HEAD_BYTES = 4096


_BYTES_MAX = 4 * 1024 * 1024
_DIGITS_MAX = 18
"""Of a time; more than any that a clock can be set by."""


class KafkaConfigError(UsageError):
    """Settings of a Kafka client say something that lastgood cannot do, or contradict themselves."""

    condition = "KAFKA_CONFIG_INVALID"


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How to talk to a cluster. `KafkaConfig()` speaks plain text to anybody."""

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For confluent-kafka. Holds secrets."""
    bootstrap: str | None = None
    """`bootstrap.servers`, if the file names them."""
    ignored: tuple[str, ...] = ()
    """Names of settings that lastgood does not need or does not know."""


def read_kafka_config(file: Path) -> KafkaConfig:
    """Read a `client.properties`, as `kafka-topics.sh --command-config` does.

    Raises:
        KafkaConfigError: it cannot be read, or asks for what lastgood cannot do.
        PropertiesError: it is not well formed.
    """
    return translate_config(read_client_properties(file))


def read_client_properties(file: Path) -> dict[str, str]:
    """The settings of a Java client, as they stand in its file.

    Raises:
        KafkaConfigError: it cannot be read, or is longer than any such file.
        PropertiesError: it is not well formed.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(_BYTES_MAX + 1)
    except OSError as error:
        raise KafkaConfigError(
            "the settings of the Kafka client cannot be read", subject=str(file), found=error.strerror
        ) from error
    if len(raw) > _BYTES_MAX:
        raise KafkaConfigError(
            "the settings of the Kafka client are too long", subject=str(file), expected=f"at most {_BYTES_MAX:,} bytes"
        )
    return parse_properties(raw)


def translate_config(properties: Mapping[str, str]) -> KafkaConfig:
    """Translate settings of a Java client. Of key stores that they name, the first bytes are read to tell their kind.

    Raises:
        KafkaConfigError: they ask for what lastgood cannot do, such as a key store in Java's own format.
        PropertiesError: `sasl.jaas.config` is not well formed.
    """
    given = {name: value.strip() for name, value in properties.items()}
    settings = {name: given[name] for name in _SAME & given.keys()}
    if "request.timeout.ms" in given:
        settings["socket.timeout.ms"] = _limit_socket_timeout(given["request.timeout.ms"])
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL_"):
        settings |= _translate_sasl(given)
    if protocol.endswith("SSL"):
        settings |= _translate_tls(given)
    return KafkaConfig(
        settings=settings,
        bootstrap=given.get("bootstrap.servers") or None,
        ignored=tuple(sorted(given.keys() - _SAME - _HANDLED)),
    )


def _limit_socket_timeout(text: str) -> str:
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise KafkaConfigError("a time is no number", subject="request.timeout.ms", found=text, expected="milliseconds")
    shortest, longest = _SOCKET_TIMEOUT_RANGE
    return str(min(max(int(text), shortest), longest))


def _translate_sasl(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in (*_PASSWORD_MECHANISMS, "OAUTHBEARER"):
        raise _make_unavailable_error("sasl.mechanism", mechanism, f"{', '.join(_PASSWORD_MECHANISMS)} or OAUTHBEARER")
    if "sasl.jaas.config" not in given and "sasl.username" in given:
        return {"sasl.mechanisms": mechanism}  # in librdkafka's own names
    if "sasl.jaas.config" not in given:
        raise KafkaConfigError(
            "SASL needs a login", subject="sasl.jaas.config", found="nothing", expected=f"a login for {mechanism}"
        )
    jaas = parse_jaas(given["sasl.jaas.config"])
    if mechanism == "OAUTHBEARER":
        login = _translate_oauth(jaas, given)
    else:
        login = _translate_password(jaas)
    return {"sasl.mechanisms": mechanism, **login}


def _translate_password(jaas: JaasEntry) -> dict[str, str]:
    module = jaas.module.rpartition(".")[2]
    if module not in ("PlainLoginModule", "ScramLoginModule"):
        raise _make_unavailable_error("sasl.jaas.config", jaas.module, "PlainLoginModule or ScramLoginModule")
    if jaas.options.get("tokenauth", "").lower() == "true":
        raise _make_unavailable_error("sasl.jaas.config", "tokenauth (a delegation token)", "a name and a password")
    missing = [name for name in ("username", "password") if name not in jaas.options]
    if missing:
        raise KafkaConfigError(
            "the login is not complete", subject="sasl.jaas.config", found=f"no {' and no '.join(missing)}"
        )
    return {"sasl.username": jaas.options["username"], "sasl.password": jaas.options["password"]}


def _translate_oauth(jaas: JaasEntry, given: Mapping[str, str]) -> dict[str, str]:
    """A token from a server (OIDC, client credentials), or an unsigned one, which only test clusters take."""
    handler = given.get("sasl.login.callback.handler.class", _OAUTH_HANDLER)
    if handler.rpartition(".")[2] != _OAUTH_HANDLER:
        raise _make_unavailable_error("sasl.login.callback.handler.class", handler, _OAUTH_HANDLER)
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    if url is None:
        principal = jaas.options.get("unsecuredLoginStringClaim_sub", "")
        if not re.fullmatch(r'[^\s",]+', principal):
            raise KafkaConfigError(
                "OAUTHBEARER needs a place to get a token from",
                subject="sasl.oauthbearer.token.endpoint.url",
                found="nothing",
                expected="the address of the token endpoint",
            )
        return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={principal}"}
    settings = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": url}
    credentials = "sasl.oauthbearer.client.credentials."
    values = {
        "sasl.oauthbearer.client.id": given.get(f"{credentials}client.id") or jaas.options.get("clientId"),
        "sasl.oauthbearer.client.secret": given.get(f"{credentials}client.secret") or jaas.options.get("clientSecret"),
        "sasl.oauthbearer.scope": given.get("sasl.oauthbearer.scope") or jaas.options.get("scope"),
        "sasl.oauthbearer.extensions": ",".join(
            f"{key.removeprefix('extension_')}={value}"
            for key, value in jaas.options.items()
            if key.startswith("extension_")
        ),
    }
    return settings | {name: value for name, value in values.items() if value}


def _translate_tls(given: Mapping[str, str]) -> dict[str, str]:
    settings = {**_translate_truststore(given), **_translate_keystore(given)}
    if "ssl.endpoint.identification.algorithm" in given:
        settings["ssl.endpoint.identification.algorithm"] = given["ssl.endpoint.identification.algorithm"] or "none"
    return settings


def _translate_truststore(given: Mapping[str, str]) -> dict[str, str]:
    if given.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": _normalise_pem(given["ssl.truststore.certificates"], "ssl.truststore.certificates")}
    file = given.get("ssl.truststore.location")
    if not file:
        return {}
    kind = _recognise_store(file, "ssl.truststore.location")
    if kind == "PEM":
        return {"ssl.ca.location": file}
    pem = f"{file.removesuffix('.jks').removesuffix('.p12')}.pem"
    command = f"openssl pkcs12 -nokeys -in {file} -out {pem}"
    if kind == "JKS":
        command = f"keytool -list -rfc -keystore {file} > {pem}"
    raise KafkaConfigError(
        "a trust store in this format cannot be read",
        subject=f"ssl.truststore.location={file}",
        found=kind,
        expected="certificates as PEM (ssl.truststore.type=PEM)",
        next=command,
    )


def _translate_keystore(given: Mapping[str, str]) -> dict[str, str]:
    if given.get("ssl.keystore.key") and given.get("ssl.keystore.certificate.chain"):
        chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
        return {
            "ssl.certificate.pem": _normalise_pem(given[chain], chain),
            "ssl.key.pem": _normalise_pem(given[key], key),
        }
    file = given.get("ssl.keystore.location")
    if not file:
        return {}
    kind = _recognise_store(file, "ssl.keystore.location")
    if kind == "PEM":  # key and certificates in one file
        return {"ssl.certificate.location": file, "ssl.key.location": file}
    if kind == "PKCS12":
        return {"ssl.keystore.location": file, "ssl.keystore.password": given.get("ssl.keystore.password", "")}
    raise KafkaConfigError(
        "a key store in Java's own format cannot be read",
        subject=f"ssl.keystore.location={file}",
        found=kind,
        expected="a key store of type PKCS12 or PEM",
        next=f"keytool -importkeystore -srckeystore {file} -deststoretype PKCS12 "
        f"-destkeystore {file.removesuffix('.jks')}.p12",
    )


def _recognise_store(file: str, name: str) -> str:
    """PEM, PKCS12 or JKS, by its bytes: Java, too, opens PKCS12 where JKS is said."""
    try:
        with Path(file).open("rb") as stream:
            head = stream.read(_STORE_HEAD_BYTES)
    except OSError as error:
        raise KafkaConfigError("a key store cannot be read", subject=f"{name}={file}", found=error.strerror) from error
    if head[:4] in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):
        return "JKS"
    if b"-----BEGIN " in head:
        return "PEM"
    if head[:1] == b"\x30":  # a sequence in DER
        return "PKCS12"
    raise KafkaConfigError(
        "a key store is of no known kind", subject=f"{name}={file}", found="neither PEM, PKCS12 nor JKS"
    )


def _normalise_pem(text: str, name: str) -> str:
    """PEM with line ends where OpenSSL wants them: a properties file often has it on one line."""
    blocks = _PEM_BLOCK.findall(text)
    if not blocks:
        raise KafkaConfigError("this is no PEM", subject=name, expected="-----BEGIN … -----END …")
    return "".join(_format_pem_block(label, body) for label, body in blocks)


def _format_pem_block(label: str, body: str) -> str:
    content = "".join(body.split())
    lines = [content[start : start + 64] for start in range(0, len(content), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _make_unavailable_error(subject: str, found: str, expected: str) -> KafkaConfigError:
    return KafkaConfigError(
        "lastgood cannot log in to Kafka in this way",
        subject=subject,
        found=found,
        expected=expected,
        effect="the broker cannot be asked; facts that were written down elsewhere can be given as a file",
        next="--kafka facts.json",
    )
