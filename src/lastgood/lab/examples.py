"""Where the example applications are: inside an installed package, or beside the sources."""

from __future__ import annotations

from pathlib import Path


def locate_flights() -> Path:
    """The folder of `examples/flights`, whose scripts are ordinary applications that know nothing of lastgood."""
    here = Path(__file__).parent
    packaged = here / "flights"
    if packaged.is_dir():
        return packaged
    return here.parents[2] / "examples" / "flights"
