"""`/v1/chat/completions` and `/v1/models`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from PIL import Image

from mineru_diffusion.engine.remote import OWN_PARAMS
from mineru_diffusion.engine.types import DecodingParams
from mineru_diffusion.serving.answers import DONE, Completion, server_event
from mineru_diffusion.serving.chat_types import ChatRequest
from mineru_diffusion.serving.disconnect import EventStream, or_disconnect
from mineru_diffusion.serving.errors import ApiError, bad_request
from mineru_diffusion.serving.exchange import Exchange
from mineru_diffusion.serving.images import decode_data_uri, decode_image, image_pixels
from mineru_diffusion.serving.media import json_only
from mineru_diffusion.serving.reading import Reading, plan_reading
from mineru_diffusion.serving.state import ServerState, check_limit, state_of

router = APIRouter()

KEEP_ALIVE_SECONDS = 15.0
"""Silence after which a stream says that it lives."""
FIRST_SECONDS = 2.0
"""Silence after which a stream begins."""
NOT_HERE = {
    "n": "one answer a request",
    "logprobs": "ask for nothing: the answer's `mineru_diffusion.confidences` has every token's probability",
    "tools": "this model calls no tools",
    "response_format": "answers are plain text",
}


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """The one model, and what its checkpoint can do."""
    state = state_of(request)
    return {"object": "list", "data": [_card(state)]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    """The one model by its name."""
    state = state_of(request)
    _check_model(name, state)
    return _card(state)


def _card(state: ServerState) -> dict[str, Any]:
    return {
        "id": state.settings.model_name,
        "object": "model",
        "created": int(state.started),
        "owned_by": "mineru-diffusion",
        "mineru_diffusion": {"profile": asdict(state.worker.profile)},
    }


@router.post("/v1/chat/completions", response_model=None, dependencies=[Depends(json_only)])
async def chat_completions(request: Request, body: ChatRequest) -> Response:
    """Transcribe the image of the user's turn. One image, one answer."""
    state = state_of(request)
    prompt, system, urls = _conversation(body)
    _check(body, state)
    async with AsyncExitStack() as stack:
        stack.enter_context(state.admission.place())
        reading = await _reading(state, stack, body, prompt, system, urls)
        exchange = Exchange(
            state.worker,
            reading,
            stops=body.stops,
            priority=body.priority or 0,
            blocks=bool(body.stream),
            timeout=state.settings.request_timeout,
        )
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(state, exchange, reading, usage)
            stack.push_async_callback(events.aclose)
            first: list[bytes] = []

            async def begin() -> None:
                first.append(await anext(events))

            # A request that is refused gets a status of its own, so nothing is sent before the first event.
            if not await or_disconnect(request, begin()):
                return Response(status_code=499)
            return EventStream(first[0], events, stack.pop_all())
        return await _whole(request, state, exchange, reading)


async def _whole(request: Request, state: ServerState, exchange: Exchange, reading: Reading) -> Response:
    async with exchange:

        async def run() -> None:
            async for _ in exchange.texts(KEEP_ALIVE_SECONDS, KEEP_ALIVE_SECONDS):
                pass

        if not await or_disconnect(request, run()):
            return Response(status_code=499)  # nobody is there to read it; the log has it
        result, text, end = exchange.finish()
    state.metrics.answered(result)
    return JSONResponse(Completion(state.settings.model_name).body(result, text, end, reading.notes))


async def _events(state: ServerState, exchange: Exchange, reading: Reading, usage: bool) -> AsyncGenerator[bytes, None]:
    """Server-sent events of one answer. An error before the first one is raised, a later one is an event."""
    completion = Completion(state.settings.model_name)
    sent: str | None = None
    try:
        async with exchange:
            async for text in exchange.texts(FIRST_SECONDS, KEEP_ALIVE_SECONDS):
                if sent is None:
                    yield completion.chunk({"role": "assistant", "content": ""})
                    sent = ""
                if text is None:
                    yield b": still working\n\n"
                else:
                    yield completion.chunk({"content": text[len(sent) :]})
                    sent = text
            result, text, end = exchange.finish()
    except ApiError as error:
        if sent is None:
            raise
        yield server_event(error.body())
        return
    if sent is None:
        yield completion.chunk({"role": "assistant", "content": ""})
        sent = ""
    if len(text) > len(sent):
        yield completion.chunk({"content": text[len(sent) :]})
    yield completion.last_chunk(result, end, reading.notes)
    if usage:
        yield completion.usage_chunk(result)
    yield DONE
    state.metrics.answered(result)


async def _reading(
    state: ServerState,
    stack: AsyncExitStack,
    body: ChatRequest,
    prompt: str,
    system: str | None,
    urls: list[str],
) -> Reading:
    """Get the image and work out what to ask, in a thread."""
    data = await _image_bytes(state, urls[0]) if urls else None
    if data is not None:
        stack.enter_context(state.admission.image(image_pixels(data, state.settings.max_image_pixels)))

    def plan() -> Reading:
        image: Image.Image | None = None if data is None else decode_image(data)
        return plan_reading(
            image, prompt, system, _params(body), state.worker.profile, state.detector, as_is=bool(body.as_is)
        )

    return await anyio.to_thread.run_sync(plan, limiter=state.threads)


async def _image_bytes(state: ServerState, url: str) -> bytes:
    scheme = url[:8].lower()
    if scheme.startswith("data:"):
        return await anyio.to_thread.run_sync(decode_data_uri, url, limiter=state.threads)
    if scheme.startswith(("http://", "https://")):
        return await state.fetcher.fetch(url)
    # Files of the server's machine are never read for a client, whatever the options.
    raise bad_request(
        "images are sent as data URIs (data:image/png;base64,...), not as files or paths", "messages", "url_not_allowed"
    )


def _conversation(body: ChatRequest) -> tuple[str, str | None, list[str]]:
    """The user's text, the system's text and the image URLs."""
    systems = [m for m in body.messages if m.role in ("system", "developer")]
    users = [m for m in body.messages if m.role == "user"]
    if len(users) != 1 or len(systems) + 1 != len(body.messages) or body.messages[-1].role != "user":
        raise bad_request("one user message is needed, with nothing but system messages before it", "messages")
    if any(m.image_urls() for m in systems):
        raise bad_request("only the user message may hold an image", "messages")
    urls = users[0].image_urls()
    if len(urls) > 1:
        raise bad_request(f"one image a request, not {len(urls)}", "messages")
    prompt = "".join(users[0].texts())
    if not prompt.strip() and not urls:
        raise bad_request("the user message is empty", "messages")
    system = "\n".join(text for m in systems for text in m.texts()).strip()
    return prompt, system or None, urls


def _check_model(name: str | None, state: ServerState) -> None:
    if name is not None and name != state.settings.model_name:
        raise ApiError(
            404,
            f"the model {name!r} does not exist; this server has {state.settings.model_name!r}",
            code="model_not_found",
            param="model",
        )


def _check(body: ChatRequest, state: ServerState) -> None:
    """Refuse by name what the server cannot do."""
    _check_model(body.model, state)
    asked = {
        "n": body.n not in (None, 1),
        "logprobs": bool(body.logprobs),
        "tools": bool(body.tools),
        "response_format": body.response_format is not None and body.response_format.type != "text",
    }
    for name, wanted in asked.items():
        if wanted:
            raise bad_request(f"{name} is not supported: {NOT_HERE[name]}", name, "unsupported_parameter")
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options needs stream: true", "stream_options")
    check_limit(body.limit, state)
    block = state.worker.profile.block_length
    if body.block_length not in (None, block):
        raise bad_request(f"this server decodes in blocks of {block}, not {body.block_length}", "block_length")


def _params(body: ChatRequest) -> DecodingParams:
    """How to decode. Greedy unless asked otherwise: transcription has one right answer."""
    greedy = body.top_k == 1 or not body.temperature
    return DecodingParams(
        temperature=0.0 if greedy else body.temperature or 0.0,
        seed=body.seed or 0,
        max_tokens=body.limit,
        **{name: given for name in OWN_PARAMS if (given := getattr(body, name)) is not None},
    )
