"""What Java's `LZ4BlockOutputStream` packs: blocks that each tell their length and checksum. Pure.

Spark packs the changes of its state with it, and HDFS-backed snapshots, unless it was told another codec.
"""

from __future__ import annotations

import struct

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage

MAGIC = b"LZ4Block"
HEADER = struct.Struct("<8sBiii")
"""Magic, how it is packed, length of the block as it is and unpacked, checksum of the unpacked."""
RAW, PACKED = 0x10, 0x20
BLOCK_BYTES_MAX = 32 * 1024 * 1024

_SMALL_BLOCK = 6
"""The level of blocks of up to 64 KB."""
_SEED = 0x9747B28C
_SUM_BITS = 0x0FFFFFFF
_WORD = 0xFFFFFFFF
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def pack_raw(content: bytes) -> bytes:
    """One block as it is, and the mark of the end; for what is short."""
    token = RAW | _SMALL_BLOCK
    block = HEADER.pack(MAGIC, token, len(content), len(content), compute_checksum(content))
    return block + content + HEADER.pack(MAGIC, token, 0, 0, 0)


def find_corruption(raw: bytes) -> Damage | None:
    """What a reader stumbles over before the mark of the end; None if it is nothing, or if another codec packed it."""
    if not raw.startswith(MAGIC):
        return None
    at = 0
    while at + HEADER.size <= len(raw):
        magic, token, packed, size, wanted = HEADER.unpack_from(raw, at)
        if magic != MAGIC:
            return make_damage(DamageKind.BAD_HEADER, raw[at : at + 16])
        if not size and not packed:  # whoever reads as far as the content goes does not look at it
            return None
        block = raw[at + HEADER.size : at + HEADER.size + max(packed, 0)]
        content = _unpack_block(block, token, packed, size)
        if content is None or compute_checksum(content) != wanted & _WORD:
            return make_damage(DamageKind.CHECKSUM_MISMATCH, f"block at byte {at} of {len(raw)}")
        at += HEADER.size + packed
    return make_damage(DamageKind.TRUNCATED, f"{len(raw)} bytes")


def _unpack_block(block: bytes, token: int, packed: int, size: int) -> bytes | None:
    if len(block) != packed or not 0 < size <= min(1 << 10 + (token & 0x0F), BLOCK_BYTES_MAX):
        return None
    content = {RAW: block, PACKED: unpack_block(block, size)}.get(token & 0xF0)
    if content is not None and len(content) == size:
        return content
    return None


def unpack_block(block: bytes, limit: int) -> bytes | None:
    """Unpack one block up to `limit` bytes or a little more; None if it is none."""
    out = bytearray()
    at = 0
    try:
        while at < len(block) and len(out) < limit:
            token = block[at]
            literals, at = _read_length(block, at + 1, token >> 4)
            out += block[at : at + literals]
            at += literals
            if at >= len(block):  # the last sequence is literals alone
                break
            distance = block[at] | block[at + 1] << 8
            length, at = _read_length(block, at + 2, token & 15)
            if not 0 < distance <= len(out):
                return None
            begin, length = len(out) - distance, min(length + 4, limit + 4)
            pattern = out[begin : begin + length]
            out += (pattern * (length // len(pattern) + 1))[:length]
    except IndexError:
        return None
    return bytes(out)


def _read_length(block: bytes, at: int, nibble: int) -> tuple[int, int]:
    length = nibble
    while nibble == 15:
        more = block[at]
        at += 1
        length += more
        if more != 255:
            break
    return length, at


def compute_checksum(content: bytes) -> int:
    """XXH32 with the seed of `LZ4BlockOutputStream`, which keeps 28 bits of it."""
    first, second, third, fourth, fifth = _PRIMES
    whole = len(content) // 16 * 16
    value = _SEED + fifth
    if whole:
        lanes = [_SEED + first + second, _SEED + second, _SEED, _SEED - first]
        for words in struct.iter_unpack("<4I", content[:whole]):
            lanes = [
                _rotate(lane + word * second & _WORD, 13) * first & _WORD
                for lane, word in zip(lanes, words, strict=True)
            ]
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    value += len(content)
    words_end = len(content) // 4 * 4
    for (word,) in struct.iter_unpack("<I", content[whole:words_end]):
        value = _rotate(value + word * third & _WORD, 17) * fourth
    for byte in content[words_end:]:
        value = _rotate(value + byte * fifth & _WORD, 11) * first
    value &= _WORD
    value = (value ^ value >> 15) * second & _WORD
    value = (value ^ value >> 13) * third & _WORD
    return (value ^ value >> 16) & _SUM_BITS


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD
