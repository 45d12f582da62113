"""An engine on another machine: any OpenAI-compatible server, ours, vLLM or SGLang. Torch-free.

In: requests. Out: results, in the order in which the server answers. What goes wrong with one request stays with it: it
is tried again a few times, then its result has `finish_reason` `error`.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, FinishReason, Request, Result
from mineru_diffusion.errors import EngineError, MissingExtra, UsageError

if TYPE_CHECKING:
    import httpx

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
_USUAL = frozenset({"temperature", "seed", "max_tokens", "stop_ids", "skip_after_stop"})
OWN_PARAMS = tuple(f.name for f in fields(DecodingParams) if f.name not in _USUAL)
"""Fields of `DecodingParams` that our own server takes by the same names: what decides how blocks are unmasked."""
_END = "<|im_end|>"
Value = TypeVar("Value")


@dataclass(frozen=True)
class RemoteOptions:
    """How a server is talked to.

    Attributes:
        url: of the server; a trailing `/v1` may be left out.
        api_key: sent as `Authorization: Bearer`.
        model: the server's name for the model; None: the only one that it lists.
        concurrency: requests on their way at a time.
        timeout: seconds that one answer may take.
        connect_timeout: seconds until a connection is there.
        retries: further tries of a request that failed for a reason that may pass.
    """

    url: str
    api_key: str | None = None
    model: str | None = None
    concurrency: int = 32
    timeout: float = 600
    connect_timeout: float = 10
    retries: int = 4

    @property
    def base(self) -> str:
        """The URL up to and including `/v1`.

        Raises:
            UsageError: it is no http URL.
        """
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"{self.url!r} is no URL of a server; it should look like http://host:8000")
        trimmed = self.url.rstrip("/")
        last = trimmed.rpartition("/")[2]
        return trimmed if last[:1] == "v" and last[1:].isdecimal() else f"{trimmed}/v1"


class RemoteEngine:
    """The Engine protocol over HTTP. One thread drives it; the network has a thread of its own.

    Args:
        options: where the server is, and how patient to be.

    Raises:
        MissingExtra: httpx is not installed.
        UsageError: the URL, or the model's name, is wrong.
        EngineError: the server cannot be reached or refuses the key.
    """

    def __init__(self, options: RemoteOptions) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise MissingExtra("a remote engine", "remote") from error
        self._options = options
        headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
        self._http = httpx.AsyncClient(
            base_url=options.base,
            headers=headers,
            timeout=httpx.Timeout(options.timeout, connect=options.connect_timeout, pool=None),
            limits=httpx.Limits(max_connections=options.concurrency, max_keepalive_connections=options.concurrency),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="remote-engine", daemon=True)
        self._thread.start()
        self._ids = count()
        self._done: SimpleQueue[tuple[int, Result]] = SimpleQueue()
        self._early: deque[tuple[int, Result]] = deque()
        self._running: dict[int, Future[None]] = {}
        self._requests: dict[int, Request] = {}
        self._closed = False
        try:
            self._places = self._wait(self._new_places())
            self._model, self._profile, self._ours = self._wait(self._discover())
        except BaseException:
            self.close()
            raise

    @property
    def profile(self) -> CheckpointProfile:
        """What our server says of its checkpoint; of any other server, the published checkpoint is assumed."""
        return self._profile

    @property
    def model(self) -> str:
        """The server's name for the model."""
        return self._model

    def submit(self, request: Request) -> int:
        """Send a request as soon as there is room; returns its id.

        Raises:
            UsageError: a task that the checkpoint does not have.
            EngineError: the engine is closed.
        """
        if self._closed:
            raise EngineError("the engine is closed")
        if request.prompt is None and request.task not in self._profile.tasks:
            raise UsageError(f"this checkpoint cannot do {request.task!r}; it can do {', '.join(self._profile.tasks)}")
        request_id = next(self._ids)
        self._requests[request_id] = request
        self._running[request_id] = asyncio.run_coroutine_threadsafe(self._run(request_id, request), self._loop)
        return request_id

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Results as they come, until none is outstanding."""
        while self._early:
            yield self._early.popleft()
        while self._running:
            found = self._next()
            if found is not None:
                yield found

    def _next(self) -> tuple[int, Result] | None:
        request_id, result = self._done.get()
        if self._running.pop(request_id, None) is None:
            return None  # cancelled meanwhile
        del self._requests[request_id]
        return request_id, result

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """Run these requests; results in the same order, results of others stay for `stream`."""
        ids = [self.submit(request) for request in requests]
        mine: dict[int, Result] = {}
        while len(mine) < len(ids):
            found = self._next()
            if found is not None and found[0] in ids:
                mine[found[0]] = found[1]
            elif found is not None:
                self._early.append(found)
        return [mine[request_id] for request_id in ids]

    def cancel(self, request_id: int) -> bool:
        """Give up a request: its connection is closed, which ends it on our server too. Its result says `cancelled`."""
        future = self._running.pop(request_id, None)
        if future is None:
            return False
        future.cancel()
        request = self._requests.pop(request_id)
        self._early.append((request_id, Result("", finish_reason="cancelled", tag=request.tag)))
        return True

    def close(self) -> None:
        """Give up all requests and close the connections."""
        if self._closed:
            return
        self._closed = True
        for future in self._running.values():
            future.cancel()
        self._running.clear()
        self._requests.clear()
        self._early.clear()
        self._wait(self._http.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # From here on: the network's thread.

    async def _new_places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._options.concurrency)

    async def _discover(self) -> tuple[str, CheckpointProfile, bool]:
        """The model's name, its profile, and whether the server is one of ours."""
        reply = await self._send("GET", "models", None)
        try:
            cards = {str(card["id"]): card for card in reply["data"]}
        except (KeyError, TypeError) as error:
            raise EngineError(f"{self._options.url} does not answer like an OpenAI-compatible server") from error
        name = self._options.model
        if name is None:
            if len(cards) != 1:
                raise UsageError(f"{self._options.url} has the models {', '.join(cards) or 'none'}; name one of them")
            (name,) = cards
        if name not in cards:
            raise UsageError(f"{self._options.url} has no model {name!r}; it has {', '.join(cards) or 'none'}")
        said = cards[name].get("mineru_diffusion")
        if not isinstance(said, dict):
            return name, CheckpointProfile(), False
        return name, _profile(said.get("profile")), True

    async def _run(self, request_id: int, request: Request) -> None:
        try:
            async with self._places:
                body = await asyncio.to_thread(self._body, request)
                result = _result(await self._send("POST", "chat/completions", body))
        except (EngineError, OSError, ValueError, SyntaxError) as error:  # the image may be broken
            result = Result("", finish_reason="error", error=str(error) or type(error).__name__)
        self._done.put((request_id, replace(result, tag=request.tag)))

    def _body(self, request: Request) -> dict[str, Any]:
        prompt = request.prompt if request.prompt is not None else self._profile.prompts[request.task]
        content: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        if request.image is not None:
            content.insert(0, {"type": "image_url", "image_url": {"url": _data_uri(request.image)}})
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": request.system or self._profile.system_prompt},
                {"role": "user", "content": content},
            ],
            # Layout and table tokens are special to some tokenizers, and are all that matters in those answers.
            "skip_special_tokens": False,
            **_sampling(request.params),
        }
        return {**body, **_own_fields(request.params)} if self._ours else body

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """The server's answer, tried again while there is hope.

        Raises:
            EngineError: with the last cause.
        """
        import httpx

        cause, wait = "", 0.0
        for attempt in range(self._options.retries + 1):
            if attempt:
                await asyncio.sleep(
                    max(wait, min(LONGEST_WAIT, FIRST_WAIT * 2 ** (attempt - 1)) * random.uniform(0.5, 1.5))
                )
            wait = 0.0
            try:
                response = await self._http.request(method, path, json=body)
            except httpx.HTTPError as error:
                cause = f"{self._options.url} gave no answer: {type(error).__name__}: {error}".rstrip(": ")
                continue
            if response.status_code == 200:
                return _json(response)
            cause = f"{self._options.url} answered {response.status_code}: {_message(response)}"
            if response.status_code not in RETRIED_STATUSES:
                raise EngineError(cause)
            wait = _retry_after(response)
        raise EngineError(f"{cause} (after {self._options.retries + 1} tries)")


def connect_engine(
    url: str, *, api_key: str | None = None, model: str | None = None, concurrency: int = 32, timeout: float = 600
) -> RemoteEngine:
    """An engine on the server at `url`; see `RemoteOptions` and `RemoteEngine`."""
    return RemoteEngine(RemoteOptions(url, api_key, model, concurrency, timeout))


def _profile(said: Any) -> CheckpointProfile:
    """A profile as our server writes it; unknown fields are ignored."""
    if not isinstance(said, dict):
        return CheckpointProfile()
    known = {f.name: said[f.name] for f in fields(CheckpointProfile) if f.name in said}
    for name in ("tasks", "layout_image_size"):
        if name in known:
            known[name] = tuple(known[name])
    return CheckpointProfile(**known)


def _data_uri(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _sampling(params: DecodingParams) -> dict[str, Any]:
    """Fields that every server knows."""
    body: dict[str, Any] = {"temperature": params.temperature}
    if params.temperature > 0:
        body["seed"] = params.seed
    if params.max_tokens is not None:
        body["max_tokens"] = params.max_tokens
    return body


def _own_fields(params: DecodingParams) -> dict[str, Any]:
    """Fields that only our server knows. The crops are cut already: it must not cut them again."""
    return {"as_is": True, **{name: v for name in OWN_PARAMS if (v := getattr(params, name)) is not None}}


def _result(reply: dict[str, Any]) -> Result:
    """A chat completion as a result.

    Raises:
        EngineError: it is none.
    """
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"] or ""
        finish: FinishReason = "stop" if choice["finish_reason"] == "stop" else "length"
        usage = reply.get("usage") or {}
        own = choice.get("mineru_diffusion") or {}
        if choice.get("stop_reason") == "repetition":
            finish = "repetition"
        return Result(
            text=text.removesuffix(_END),
            tokens=tuple(int(t) for t in own.get("token_ids", ())),
            confidences=tuple(float(c) for c in own.get("confidences", ())),
            steps=tuple(int(s) for s in own.get("steps", ())),
            nfe=int(own.get("passes", 0)),
            finish_reason=finish,
            prompt_tokens=int(usage.get("prompt_tokens", 0)),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise EngineError(f"the server's answer is no chat completion: {type(error).__name__}: {error}") from error


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        reply = response.json()
    except ValueError as error:
        raise EngineError(f"the server's answer is no JSON: {response.text[:200]!r}") from error
    if not isinstance(reply, dict):
        raise EngineError(f"the server's answer is no JSON object: {response.text[:200]!r}")
    return reply


def _message(response: httpx.Response) -> str:
    """What a server says of an error: OpenAI's form, FastAPI's, or the beginning of whatever it is."""
    try:
        reply = response.json()
        error = reply.get("error", reply)
        return str(error.get("message") or error.get("detail") or error)[:300]
    except (ValueError, AttributeError):
        return response.text[:300]


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(LONGEST_WAIT, max(0.0, float(response.headers.get("retry-after", "0"))))
    except ValueError:
        return 0.0
