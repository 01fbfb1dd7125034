"""What runs inside the user's Spark driver: it records, shows that the driver lives, and tells why a query ended.

Python 3.9 and later, the standard library and the user's own pyspark; nothing of lastgood is imported. Where the driver
has no lastgood, `site/sitecustomize.py` brings the modules of this folder in, as the package `_lastgood_agent`.
"""

from __future__ import annotations

from pathlib import Path

SITE_FOLDER = Path(__file__).parent / "site"
"""Put before `PYTHONPATH`, it brings the agent into every Python that imports pyspark's streaming."""
