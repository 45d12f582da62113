"""Results on the wire: OpenAI's chat completion and its chunks, with this server's extension fields.

`finish_reason` is only ever `stop` or `length`; what else there is to say is `stop_reason`.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from mineru_diffusion.engine.types import Result

DIGITS = 5
"""Decimal places of confidences."""


@dataclass(frozen=True)
class Ending:
    """How an answer ended: on the wire, and what really happened (None: nothing to add)."""

    finish_reason: str
    stop_reason: str | None = None


def ending(result: Result) -> Ending:
    """The ending of a result that is no error."""
    if result.finish_reason == "stop":
        return Ending("stop")
    return Ending("length", None if result.finish_reason == "length" else result.finish_reason)


def cut_at_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The text before the first stop text, and that stop text (None if there is none)."""
    found = [(text.find(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


def details(result: Result, notes: list[str]) -> dict[str, Any]:
    """This server's extension of a choice."""
    confidence = result.confidence
    return {
        "confidence": None if confidence is None else round(confidence, DIGITS),
        "confidences": [round(c, DIGITS) for c in result.confidences],
        "steps": list(result.steps),
        "token_ids": list(result.tokens),
        "passes": result.nfe,
        "notes": notes,
    }


@dataclass(frozen=True)
class Completion:
    """One answer in the making."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def usage(self, result: Result) -> dict[str, int]:
        """Tokens in and out."""
        generated = len(result.tokens)
        return {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": result.prompt_tokens + generated,
        }

    def body(self, result: Result, text: str, end: Ending, notes: list[str]) -> dict[str, Any]:
        """The whole answer at once."""
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": end.finish_reason,
                    "stop_reason": end.stop_reason,
                    "mineru_diffusion": details(result, notes),
                }
            ],
            "usage": self.usage(result),
        }

    def chunk(self, delta: dict[str, Any]) -> bytes:
        """A piece of a streamed answer."""
        return self._event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def last_chunk(self, result: Result, end: Ending, notes: list[str]) -> bytes:
        """The piece that says how it ended."""
        choice = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": end.finish_reason,
            "stop_reason": end.stop_reason,
            "mineru_diffusion": details(result, notes),
        }
        return self._event([choice])

    def usage_chunk(self, result: Result) -> bytes:
        """The piece after the last one, for clients that asked for the usage."""
        return self._event([], usage=self.usage(result))

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return server_event(
            {
                "id": self.id,
                "object": "chat.completion.chunk",
                "created": self.created,
                "model": self.model,
                "choices": choices,
                **more,
            }
        )


def server_event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The end of a stream."""
