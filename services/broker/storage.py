"""The files of a broker's data folder before its first start.

Kafka's own tool writes two files there, and Java takes half a second for it:

- `meta.properties`: which cluster's, broker's and folder's data these are, as text;
- `bootstrap.checkpoint`: the first records of the cluster's metadata. Without users' passwords they
  are the versions of Kafka's features, alike for all brokers of one Kafka.

So the tool's checkpoint is kept beside the jars once (`prepare.py`), and copied for each broker.
"""

from __future__ import annotations

import base64
import secrets
import shutil
from pathlib import Path

from headrace.services.broker.kraft import CLUSTER_ID

_META = "meta.properties"
CHECKPOINT = "bootstrap.checkpoint"


def kept_checkpoint(jars: Path) -> Path:
    """Where the checkpoint for brokers of these jars is, or would be."""
    return jars.with_name(f"{jars.name}.checkpoint")


def lay_out(data: Path, number: int, checkpoint: Path) -> None:
    """Prepare the folder of this broker; one that was prepared before stays as it is."""
    if (data / _META).exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, data / CHECKPOINT)
    # Kafka takes a folder for prepared by this file, so it comes last.
    (data / _META).write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\ndirectory.id={_folder_id()}\n"
    )


def _folder_id() -> str:
    # As Kafka draws its own: a UUID of version 4, whose text begins with no dash, because tools
    # would take it for an option. Those that Kafka reserves begin with eight zero bytes.
    drawn = bytearray(secrets.token_bytes(16))
    drawn[0] &= 0x7F
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return base64.urlsafe_b64encode(drawn).decode().rstrip("=")
