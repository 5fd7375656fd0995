"""Random numbers that depend on what they are for, and on nothing else."""

from __future__ import annotations

from hashlib import blake2b


def draw(seed: int, episode_id: str, purpose: int | str) -> float:
    """A number in [0, 1) for one purpose in one episode: a decision's index, or a word.

    The first 8 bytes (big-endian) of BLAKE2b (RFC 7693, 64-byte digest) over `seed NUL episode_id
    NUL purpose`, divided by 2^64. So neither order, concurrency nor process has a say in it.
    """
    digest = blake2b(f"{seed}\0{episode_id}\0{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
