"""HDFS by WebHDFS: which name nodes to ask, and what fsspec's own filesystem lacks to be relied upon.

Of the libraries that could read it, only this needs neither a JVM in our process nor a Hadoop beside it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lastgood.errors import NoSpaceError, StorageError
from lastgood.storage.drafts import make_draft_name
from lastgood.storage.limits import CONNECT_SECONDS, OddAnswerError
from lastgood.storage.rights import FILE, FOLDER, find_above_work_folder, is_private

READ_SECONDS = 8.0
"""For the first byte of an answer, and from each to the next."""

ANSWER_BYTES_MAX = 512 * 1024 * 1024
"""Of what a name node tells: by default Hadoop lets a folder have a million entries, which take less."""
_PIECE_BYTES = 64 * 1024

HTTP_PORT, HTTPS_PORT, RPC_PORT = 9870, 9871, 8020
_OTHER_IDENTITIES = frozenset({"user", "kerberos", "token"})
_PARALLEL_FOLDERS = 16


class UnreachedError(ConnectionError):
    """Nobody took the question, so nothing has happened."""


class StandbyError(UnreachedError):
    """The name node is not the one in charge."""


class HdfsError(OSError):
    """HDFS cannot do it, for a reason that has no Python class."""


_ERRORS: Mapping[str, type[OSError]] = {
    "AccessControlException": PermissionError,
    "AuthorizationException": PermissionError,
    "SecurityException": PermissionError,
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "ParentNotDirectoryException": NotADirectoryError,
    "StandbyException": StandbyError,
}
_RPC_ADDRESS = "dfs.namenode.rpc-address"
_QUOTAS = frozenset({"DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeExceededException"})


def _read_hadoop_settings(env: Mapping[str, str]) -> dict[str, str]:
    """What stands in `core-site.xml` and `hdfs-site.xml` of `HADOOP_CONF_DIR`, as Spark reads them; {} without them."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415 - who reads no HDFS reads no XML

    settings: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if env.get("HADOOP_CONF_DIR") else ():
        file = Path(env["HADOOP_CONF_DIR"]) / name
        try:
            root = ET.fromstring(file.read_bytes())  # noqa: S314 - the user's own settings
        except FileNotFoundError:
            continue
        except (OSError, ET.ParseError) as error:
            raise StorageError("Hadoop's settings cannot be read", subject=str(file), found=str(error)) from error
        for each in root.iter("property"):
            settings[(each.findtext("name") or "").strip()] = (each.findtext("value") or "").strip()
    return settings


def list_configured_names(env: Mapping[str, str]) -> set[str]:
    """What may stand for a host in `hdfs://…` because this machine's own Hadoop settings name it.

    Args:
        env: Where `HADOOP_CONF_DIR` may stand.

    Raises:
        StorageError: the settings cannot be read.
    """
    hadoop = _read_hadoop_settings(env)
    addresses = [at.removesuffix(f":{RPC_PORT}") for key, at in hadoop.items() if key.startswith(_RPC_ADDRESS)]
    return {*_split_words(hadoop.get("dfs.nameservices", "")), *addresses}


def make_webhdfs_settings(
    scheme: str, authority: str, *, env: Mapping[str, str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """How to reach the HDFS that a location names, as arguments of the filesystem of `make_dependable`.

    Args:
        scheme: `hdfs`, `webhdfs` or `swebhdfs`.
        authority: Host and port, or for `hdfs` a nameservice.
        env: Where `HADOOP_CONF_DIR` and `HADOOP_USER_NAME` may stand.
        given: What the user has told fsspec; for `hdfs` it counts above what the location and Hadoop say.

    Raises:
        StorageError: Hadoop's settings cannot be read.
        ValueError: a port is no number.
    """
    hadoop = _read_hadoop_settings(env)
    is_https = scheme == "swebhdfs"
    if scheme == "hdfs":
        is_https = bool(given.get("use_https", hadoop.get("dfs.http.policy") == "HTTPS_ONLY"))
        addresses = _list_addresses(authority, hadoop, is_https=is_https)
        if "host" in given:
            addresses = [str(given["host"])]
        if "port" in given:
            addresses = [f"{address.partition(':')[0]}:{given['port']}" for address in addresses]
    else:
        address = authority
        if ":" not in authority and "port" in given:
            address = f"{authority}:{given['port']}"
        addresses = [address]
    default = HTTPS_PORT if is_https else HTTP_PORT
    parted = (address.partition(":") for address in addresses)
    pairs = [(host, int(port or default)) for host, _, port in parted]
    settings: dict[str, Any] = {"host": pairs[0][0], "port": pairs[0][1], "use_https": is_https}
    protocol = "https" if is_https else "http"
    settings["namenodes"] = tuple(f"{protocol}://{host}:{port}" for host, port in pairs)
    if not _OTHER_IDENTITIES & given.keys():
        settings |= _choose_identity(env, hadoop)
    return settings


def _list_addresses(authority: str, hadoop: Mapping[str, str], *, is_https: bool) -> list[str]:
    """Where the name nodes of `hdfs://authority` serve HTTP: those of a nameservice, else of the one that is named."""
    rpc, http = _RPC_ADDRESS, f"dfs.namenode.{'https' if is_https else 'http'}-address"
    if authority in _split_words(hadoop.get("dfs.nameservices", "")):
        ids = _split_words(hadoop.get(f"dfs.ha.namenodes.{authority}", ""))
        which = [f".{authority}.{name}" for name in ids] or [f".{authority}"]
    else:
        host, _, port = authority.partition(":")
        named = f"{host}:{port or RPC_PORT}"
        which = [key.removeprefix(rpc) for key, at in hadoop.items() if key.startswith(rpc) and at == named][:1]
    found = []
    for suffix in which:
        host = hadoop.get(rpc + suffix, authority).partition(":")[0]
        listens_at, _, port = hadoop.get(http + suffix, host).partition(":")
        found.append(f"{host if listens_at == '0.0.0.0' else listens_at}:{port}")  # noqa: S104 - it is compared with
    return found or [authority.partition(":")[0]]


def _split_words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _choose_identity(env: Mapping[str, str], hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Who we are for HDFS, as Hadoop's own client decides it."""
    if hadoop.get("hadoop.security.authentication") == "kerberos":
        return {"kerberos": True}
    with contextlib.suppress(KeyError):  # a user without a name, as in some containers
        return {"user": env.get("HADOOP_USER_NAME") or pwd.getpwuid(os.geteuid()).pw_name}
    return {}


@functools.cache
def make_dependable(filesystem: type[Any]) -> type[Any]:
    """The WebHDFS of fsspec, with what it lacks.

    Its own takes an error of a data node for the content, waits for ever, knows one name node, tells nothing of a
    rename that was refused, writes in place, and creates what is there already.
    """

    class DependableWebHdfs(_Dependable, filesystem):  # type: ignore[misc]  # fsspec has no types
        pass

    return DependableWebHdfs


class _Dependable:
    """What stands in for methods of fsspec's WebHDFS. It raises OSError, and NoSpaceError where a quota is used up."""

    _cached: bool
    session: Any
    pars: dict[str, str]
    password: str | None
    _apply_proxy: Any

    def __init__(self, *, namenodes: Sequence[str], parallel: int, **settings: Any) -> None:
        if self._cached:
            return
        self._namenodes = tuple(namenodes)
        self._parallel = parallel
        super().__init__(**settings)

    def _connect(self) -> None:
        from requests.adapters import HTTPAdapter  # noqa: PLC0415 - of the extra 'hdfs'

        super()._connect()  # type: ignore[misc]  # of fsspec's
        adapter = HTTPAdapter(pool_connections=self._parallel, pool_maxsize=self._parallel)
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, adapter)

    def _call(
        self,
        op: str,
        method: str = "get",
        path: str | None = None,
        data: bytes | None = None,
        redirect: bool = True,  # noqa: FBT001, FBT002
        **kwargs: Any,
    ) -> Any:
        """What the name node in charge answers to an operation."""
        parameters = {**kwargs, **self.pars, "op": op.upper()}
        failure: OSError | None = None
        for namenode in self._namenodes:
            url = self._apply_proxy(f"{namenode}/webhdfs/v1{quote(path or '', safe='/=')}")
            try:
                answer = self._ask(method, url, params=parameters, data=data, allow_redirects=redirect)
            except (ConnectionError, TimeoutError) as error:
                if method.upper() != "GET" and not isinstance(error, UnreachedError):
                    raise  # it may have happened: never ask another one to do it again
                if failure is None or isinstance(failure, StandbyError):
                    failure = error
            else:
                self._namenodes = (namenode, *(other for other in self._namenodes if other != namenode))
                return answer
        raise failure or ConnectionError("no name node")

    def _go_on(self, method: str, location: str, *, bytes_max: int | None = None, **how: Any) -> Any:
        """What is answered where a name node sends us to: its data node, or a gateway itself.

        A password was named for the name nodes, and nobody else gets it. Who answers for one must not say who learns
        it.
        """
        url = self._apply_proxy(location)
        to = urlsplit(url)
        if f"{to.scheme}://{to.netloc}" not in self._namenodes and self.password is not None:
            how["auth"] = _leave_as_it_is
        return self._ask(method, url, bytes_max=bytes_max, **how)

    def _ask(self, method: str, url: str, *, bytes_max: int | None = None, **how: Any) -> Any:
        import requests  # noqa: PLC0415 - of the extra 'hdfs'

        whom = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        timeout = (CONNECT_SECONDS, READ_SECONDS)
        try:
            answer = self.session.request(method.upper(), url, timeout=timeout, stream=True, **how)
            if bytes_max is None or answer.status_code >= 400:  # an error is told in more words
                bytes_max = ANSWER_BYTES_MAX
            with answer:
                # What requests itself keeps of a content that it has read; it would read all, however much that is.
                answer._content = _read_pieces(answer, whom, bytes_max)  # noqa: SLF001
        except requests.ConnectTimeout as error:
            raise UnreachedError(f"nobody answers at {whom} within {CONNECT_SECONDS:g} s") from error
        except requests.Timeout as error:
            raise TimeoutError(f"no answer from {whom} within {READ_SECONDS:g} s") from error
        except requests.RequestException as error:
            reason = getattr(error.args[0] if error.args else None, "reason", None)
            if reason is not None:  # of urllib3's MaxRetryError, and we retry nothing: there was no connection
                raise UnreachedError(f"{whom} cannot be reached: {reason}") from error
            raise ConnectionError(f"the answer of {whom} breaks off: {error}") from error
        return _check(answer, whom)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """One file or folder."""
        found = _parse_told(self._call("GETFILESTATUS", path=path), "FileStatus")
        if not _is_status(found):
            raise _make_no_webhdfs_error("FileStatus")
        return _make_entry(found, path)

    def ls(self, path: str, detail: bool = False, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's own
        """What lies in a folder; NotADirectoryError for a file."""
        listed = _parse_told(self._call("LISTSTATUS", path=path), "FileStatuses", "FileStatus")
        if not isinstance(listed, list) or not all(map(_is_status, listed)):
            raise _make_no_webhdfs_error("FileStatuses")
        if any(not found["pathSuffix"] for found in listed):
            raise NotADirectoryError(errno.ENOTDIR, "it is a file", path)
        entries = [_make_entry(found, f"{path.rstrip('/')}/{found['pathSuffix']}") for found in listed]
        if detail:
            return entries
        return [entry["name"] for entry in entries]

    def find(self, path: str, *, detail: bool = False, **_: Any) -> Any:
        """Every file below a folder; folders that lie as deep are listed together."""
        found: dict[str, Any] = {}
        listings = iter([self.ls(path, detail=True)])
        pool = ThreadPoolExecutor(_PARALLEL_FOLDERS, thread_name_prefix="webhdfs")
        try:
            while folders := [each["name"] for each in _sort_files_into(found, listings)]:
                listings = pool.map(self._listing, folders)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if detail:
            return found
        return sorted(found)

    def _listing(self, folder: str) -> list[Any]:
        try:
            return self.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []  # removed since the folder above was listed

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The content of a file from `start` to before `end`, which count from its begin."""
        bounds: dict[str, Any] = {"offset": start or 0, **({} if end is None else {"length": end - (start or 0)})}
        answer = self._call("OPEN", path=path, redirect=False, **bounds)
        if "Location" in answer.headers:
            answer = self._go_on("GET", answer.headers["Location"], bytes_max=bounds.get("length"))
        content = _read_content(answer)
        if end is not None and len(content) > bounds["length"]:  # a gateway, which answers by itself
            raise OddAnswerError(f"the answer is longer than the {bounds['length']:,} bytes that were asked for")
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Put a file in its place, whole and at once; with mode `create`, FileExistsError if there is one already.

        Out of several who create it, one does. A ConnectionError or TimeoutError leaves open whether it is there.
        """
        folder, _slash, name = path.rpartition("/")
        draft = f"{folder}/{make_draft_name(name)}"
        try:
            self._upload(draft, value)
            # Safe: whole by now; that what is there may go is argued where it is written over, and `create` refuses.
            self._rename(draft, path, "NONE" if mode == "create" else "OVERWRITE")
        except BaseException:
            with contextlib.suppress(OSError):
                # Safe: nobody else's, for its name was drawn at random.
                self._call("DELETE", "delete", draft)
            raise

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's own
        """Have a folder there; those of a work folder are for their owner alone, one that is there keeps its mode."""
        del exist_ok
        above = find_above_work_folder(path)
        if above is None:
            self._call("MKDIRS", "put", path)
            return
        # What is missing above it is not ours: HDFS would give it the same mode.
        self._call("MKDIRS", "put", above)
        self._call("MKDIRS", "put", path, permission=f"{FOLDER:o}")

    def _upload(self, path: str, value: bytes) -> None:
        if is_private(path):
            mode: dict[str, Any] = {"permission": f"{FILE:o}"}
        else:
            mode = {}
        at = self._call("CREATE", "put", path, redirect=False, overwrite="false", **mode).headers.get("Location")
        if at is None:
            raise OddAnswerError("what answers there is no WebHDFS: it says not where to send a file")
        headers = {"content-type": "application/octet-stream"}  # HttpFS insists
        self._go_on("PUT", at, data=value, headers=headers)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename a file or folder; FileExistsError if there is something at `path2`."""
        # Safe: `NONE` refuses what is there already.
        self._rename(path1, path2, "NONE")

    def _rename(self, path: str, to: str, options: str) -> None:
        # Without options HDFS moves a file into a folder of that name, and tells a refusal as a success.
        self._call("RENAME", "put", path, destination=to, renameoptions=options)


def _leave_as_it_is(request: Any) -> Any:
    """Stands for credentials: there are none. With None the session's own would be sent."""
    return request


def _sort_files_into(found: dict[str, Any], listings: Iterator[list[Any]]) -> list[Any]:
    """Put the files of some listings into `found`; give the folders."""
    folders = []
    for entry in (entry for listing in listings for entry in listing):
        if entry["type"] == "directory":
            folders.append(entry)
        else:
            found[entry["name"]] = entry
    return folders


def _read_pieces(answer: Any, whom: str, bytes_max: int) -> bytes:
    """The content of an answer, unpacked.

    Raises:
        OddAnswerError: it is longer.
    """
    size = 0
    pieces: list[bytes] = []
    for piece in answer.iter_content(_PIECE_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise OddAnswerError(f"the answer of {whom} is longer than {bytes_max:,} bytes")
    return b"".join(pieces)


def _is_status(told: Any) -> bool:
    """Whether it has what an entry is made of, each of its type."""
    if not isinstance(told, dict):
        return False
    texts = (told.get("type"), told.get("pathSuffix"))
    numbers = (told.get("length"), told.get("modificationTime"))
    is_counted = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
    return all(isinstance(each, str) for each in texts) and is_counted and told["length"] >= 0


def _make_no_webhdfs_error(lacking: str) -> OddAnswerError:
    return OddAnswerError(f"what answers there is no WebHDFS: no {lacking} in its answer")


def _make_entry(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**status, "name": name, "type": status["type"].lower(), "size": status["length"]}


def _read_content(answer: Any) -> bytes:
    """What an answer holds, if it is whole: one that breaks off among its headers looks like an empty file."""
    content: bytes = answer.content
    length = answer.headers.get("Content-Length")
    if length is None:
        is_whole = "Transfer-Encoding" in answer.headers
    else:
        is_whole = length == str(len(content))
    if answer.status_code != 200 or not is_whole:
        raise ConnectionError(f"the answer breaks off after {len(content)} bytes")
    return content


def _parse_told(answer: Any, *keys: str) -> Any:
    """What stands in an answer below these keys."""
    try:
        value = answer.json()
        for key in keys:
            value = value[key]
    except (ValueError, KeyError, TypeError) as error:
        raise _make_no_webhdfs_error(keys[0]) from error
    return value


def _check(answer: Any, whom: str) -> Any:
    """An answer that is none of an error."""
    if answer.status_code < 400:
        return answer
    try:
        told = answer.json()["RemoteException"]
        name, message = str(told["exception"]), str(told["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError) as error:
        if answer.status_code == 401:
            raise PermissionError(f"{whom} wants Kerberos, a token or a password") from error
        if answer.status_code == 403:
            raise PermissionError(f"{whom}: access denied") from error
        raise OddAnswerError(f"what answers at {whom} is no WebHDFS: {answer.status_code}") from error
    if name in _QUOTAS:
        raise NoSpaceError("a quota of HDFS is used up", subject=whom, found=message)
    if name not in _ERRORS:
        raise HdfsError(f"{name}: {message}")
    raise _ERRORS[name](message)
