"""Identical requests (same pixels, prompt and settings) that are in flight at the same time are decoded once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from PIL import Image

from mineru_diffusion.engine.types import DecodingParams

Key = tuple[bytes, tuple[int, ...], DecodingParams]


def request_key(image: Image.Image | None, prompt_ids: list[int], params: DecodingParams) -> Key | None:
    """What two requests must have in common to be one; None if the image cannot be read (which is found out later)."""
    digest = hashlib.blake2b(digest_size=16)
    if image is not None:
        try:
            digest.update(f"{image.mode} {image.size} {image.getpalette() if image.mode == 'P' else ''}".encode())
            digest.update(image.tobytes())
        except (OSError, ValueError, SyntaxError):
            return None
    return digest.digest(), tuple(prompt_ids), params


@dataclass
class _Shared:
    key: Key
    askers: list[tuple[int, object]] = field(default_factory=list)


class SharedRequests:
    """Who waits for which sequence. A sequence has the id of the request that it was made for."""

    def __init__(self) -> None:
        self._sequences: dict[int, _Shared] = {}
        self._by_key: dict[Key, int] = {}
        self._sequence_of: dict[int, int] = {}

    def join(self, key: Key | None, request_id: int, tag: object) -> bool:
        """Wait for an identical request's sequence; False if there is none."""
        sequence_id = None if key is None else self._by_key.get(key)
        if sequence_id is None:
            return False
        self._sequences[sequence_id].askers.append((request_id, tag))
        self._sequence_of[request_id] = sequence_id
        return True

    def open(self, key: Key | None, request_id: int, tag: object) -> None:
        """A sequence of this id starts."""
        self._sequences[request_id] = _Shared(key or (b"", (request_id,), DecodingParams()), [(request_id, tag)])
        self._sequence_of[request_id] = request_id
        if key is not None:
            self._by_key[key] = request_id

    def sequence_of(self, request_id: int) -> int | None:
        """The sequence that a request waits for."""
        return self._sequence_of.get(request_id)

    def leave(self, request_id: int) -> tuple[object, bool]:
        """Stop waiting; returns the request's tag, and whether nobody waits for its sequence any more."""
        sequence_id = self._sequence_of.pop(request_id)
        askers = self._sequences[sequence_id].askers
        tag = next(tag for asker, tag in askers if asker == request_id)
        askers[:] = [(asker, tag) for asker, tag in askers if asker != request_id]
        if not askers:
            self.close(sequence_id)
        return tag, not askers

    def close(self, sequence_id: int) -> list[tuple[int, object]]:
        """A sequence is done; returns who waited for it, with their tags."""
        shared = self._sequences.pop(sequence_id)
        if self._by_key.get(shared.key) == sequence_id:
            del self._by_key[shared.key]
        for asker, _ in shared.askers:
            self._sequence_of.pop(asker, None)
        return shared.askers

    def clear(self) -> None:
        """Forget everything."""
        self._sequences.clear()
        self._by_key.clear()
        self._sequence_of.clear()
