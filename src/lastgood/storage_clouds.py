"""What Azure's and Google's object stores need beside fsspec's own filesystems.

Nothing here imports a service's library before a location on it is opened.
"""

from __future__ import annotations

from typing import Any


def azure_settings(authority: str) -> dict[str, Any]:
    """Which account `CONTAINER@ACCOUNT.dfs.SUFFIX` names, and where it is: clouds of countries have other suffixes."""
    host = authority.partition("@")[2]
    return {"account_name": host.partition(".")[0], "account_host": host.replace(".dfs.", ".blob.", 1)}
