"""Which hosts are asked for what the logs name: those that were named on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

from lastgood.observe.open_query import OpenQuery
from lastgood.redaction import hide_login
from lastgood.sinks.opening import is_database, split_kind
from lastgood.storage.hdfs import list_configured_names
from lastgood.storage.reading import Location, Storage, StorageDeniedError, open_storage


def open_named(query: OpenQuery) -> Callable[[Location], Storage]:
    """Gives access to the storage of what only logs name, an input file or a table: on a host that was named here.

    Whoever may write to the logs names any host, and in what a driver has logged stand the texts of everybody's rows.
    Which host is asked for a bucket is said by the environment; the host of HDFS, and the account of Azure, by the
    location itself, and it gets our credentials.

    Args:
        query: The query: its checkpoint and its sinks were named.
    """
    sinks = [hide_login(sink) for sink in query.options.sinks]
    if query.target.sink is not None:
        sinks.append(query.target.sink)
    places = [query.location, *(split_kind(each)[1] for each in sinks if not is_database(each))]
    known = {place.host for place in places}

    def open_at(location: Location) -> Storage:
        is_known = location.host is None or location.host in known
        if not (is_known or (location.scheme == "hdfs" and location.host in list_configured_names(os.environ))):
            raise StorageDeniedError(
                f"nobody has named the host {location.host} here",
                subject=str(location),
                expected="the host of the checkpoint, of a sink, or of HADOOP_CONF_DIR",
            )
        return open_storage(location)

    return open_at
