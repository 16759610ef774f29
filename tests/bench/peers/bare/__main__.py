"""Copies, or restores, until it is done or somebody ends this process."""

from __future__ import annotations

import asyncio

from tests.bench.peers.bare.copying import copy
from tests.bench.peers.bare.restoring import restore
from tests.bench.peers.settings import setting

asyncio.run(restore() if setting("OPERATOR") == "restore" else copy())
