"""Many clients of every kind against a running server, and what it leaves behind.

    mineru-diffusion serve --port 8000 &
    python scripts/load_test.py --url http://127.0.0.1:8000 --pid $! --clients 64 --seconds 120

Good clients send small lines and wait. Among them are some that hang up half-way, send bodies that are too large or no
JSON, or read a byte at a time. Printed and written as JSON: answers by kind and status, latencies of good requests,
throughput, memory and cache pages before and after; with --compare also how many such lines a second the packaged
checkpoint reads in this process, without a server. The exit code is 1 if there was a 5xx other than 503, a page or a
request left behind, or memory that grew by more than --growth MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import os
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw, ImageFont

PATH = "/v1/chat/completions"
KINDS = ("good", "stream", "hang_up", "oversize", "malformed", "slow_reader")
WEIGHTS = (60, 15, 10, 3, 7, 5)
LINES = 1000
"""Different lines."""
WORDS = ("light", "tower", "keeper", "storm", "harbour", "lens", "winter", "island")


@dataclass
class Record:
    """What happened: (kind, status) counts, and seconds of good answers."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0


def line_uri(seed: int) -> str:
    """A printed line of three words and a number as a data URI."""
    # The number makes every line another one: the engine reads identical crops in flight once.
    text = " ".join([*random.Random(seed).sample(WORDS, 3), str(seed)])
    image = Image.new("RGB", (420, 40), "white")
    ImageDraw.Draw(image).text((6, 6), text, fill="black", font=ImageFont.load_default(24))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def body(uri: str, **more: Any) -> dict[str, Any]:
    """A chat request."""
    content = [{"type": "image_url", "image_url": {"url": uri}}, {"type": "text", "text": "\nText Recognition:"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 64, **more}


async def good(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    started = time.monotonic()
    answer = await client.post(PATH, json=body(uri))
    if answer.status_code == 200:
        record.seconds.append(time.monotonic() - started)
        record.tokens += answer.json()["usage"]["completion_tokens"]
    return str(answer.status_code)


async def stream(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    async with client.stream("POST", PATH, json=body(uri, stream=True)) as answer:
        text = "".join([piece async for piece in answer.aiter_text()])
        ended = answer.status_code != 200 or text.endswith("data: [DONE]\n\n")
        return str(answer.status_code) if ended else "cut off"


async def hang_up(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    try:
        answer = await client.post(PATH, json=body(uri, max_tokens=2000), timeout=random.uniform(0.05, 1.5))
    except httpx.TimeoutException:
        return "hung up"
    return str(answer.status_code)


async def oversize(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    async def pieces() -> Any:
        for _ in range(40):
            yield bytes(1 << 20)

    try:
        answer = await client.post(PATH, content=pieces(), headers={"Content-Type": "application/json"})
    except (httpx.WriteError, httpx.RemoteProtocolError):
        return "refused"
    return str(answer.status_code)


async def malformed(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    content = random.choice(
        [b"{", b"[]", b"\xff", b"[" * 20_000, json.dumps(body("data:image/png;base64,AAAA")).encode()]
    )
    answer = await client.post(PATH, content=content, headers={"Content-Type": "application/json"})
    return str(answer.status_code)


async def slow_reader(client: httpx.AsyncClient, uri: str, record: Record) -> str:
    """Reads a few bytes at a time, on a connection of its own with a small window."""
    content = json.dumps(body(uri, stream=True)).encode()
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port, limit=1024)
    key = client.headers.get("Authorization", "")
    head = f"POST {PATH} HTTP/1.1\r\nHost: load\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n"
    try:
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        first = await reader.readline()
        while await reader.read(64):
            await asyncio.sleep(0.02)
        return first.split()[1].decode() if first else "cut off"
    except ConnectionError:
        return "cut off"
    finally:
        writer.close()


async def one_client(client: httpx.AsyncClient, uris: list[str], record: Record, end: float) -> None:
    while time.monotonic() < end:
        kind = random.choices(KINDS, WEIGHTS)[0]
        try:
            status = await globals()[kind](client, random.choice(uris), record)
        except httpx.HTTPError as error:
            status = type(error).__name__
        record.answers[kind, status] += 1


def resident_mib(pid: int | None) -> float | None:
    statm = Path(f"/proc/{pid}/statm")
    if pid is None or not statm.is_file():
        return None
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def left_behind(client: httpx.AsyncClient) -> dict[str, float]:
    text = (await client.get("/metrics")).text
    names = ("cache_pages_used", "engine_requests_running", "engine_requests_waiting")
    return {name: float(re.findall(rf"^mineru_diffusion_{name} (\S+)", text, re.M)[0]) for name in names}


async def run(options: argparse.Namespace) -> dict[str, Any]:
    uris = [line_uri(seed) for seed in range(LINES)]
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    limits = httpx.Limits(max_connections=2 * options.clients)
    async with httpx.AsyncClient(base_url=options.url, headers=headers, timeout=300, limits=limits) as client:
        # Whatever is loaded late is loaded now, and buffers have the size that so many at a time need.
        await asyncio.gather(*(good(client, uri, Record()) for uri in uris[: 2 * options.clients]))
        memory = [resident_mib(options.pid)]
        record, started = Record(), time.monotonic()
        end = started + options.seconds
        await asyncio.gather(*(one_client(client, uris, record, end) for _ in range(options.clients)))
        seconds = time.monotonic() - started
        for _ in range(100):
            left = await left_behind(client)
            if not any(left.values()):
                break
            await asyncio.sleep(0.1)
        memory.append(resident_mib(options.pid))
    answers: dict[str, dict[str, int]] = {}
    for (kind, status), number in sorted(record.answers.items()):
        answers.setdefault(kind, {})[status] = number
    took = sorted(record.seconds)
    return {
        "clients": options.clients,
        "seconds": round(seconds, 1),
        "answers": answers,
        "requests_per_second": round(sum(record.answers.values()) / seconds, 2),
        "good_per_second": round(len(took) / seconds, 2),
        "tokens_per_second": round(record.tokens / seconds, 1),
        "p50_seconds": round(took[len(took) // 2], 3) if took else None,
        "p99_seconds": round(took[int(len(took) * 0.99)], 3) if took else None,
        "left_behind": left,
        "memory_mib": memory,
    }


def without_server(number: int) -> float:
    """Lines a second through an engine in this process, in one batch, as `parse` sends a page's lines."""
    from mineru_diffusion.engine import DecodingParams, Request, load_engine

    images = [Image.open(io.BytesIO(base64.b64decode(line_uri(seed).split(",")[1]))) for seed in range(number)]
    with load_engine() as engine:
        requests = [Request(image.convert("RGB"), params=DecodingParams(max_tokens=64)) for image in images]
        engine.generate(requests[:64])
        started = time.monotonic()
        engine.generate(requests)
        return number / (time.monotonic() - started)


def faults(result: dict[str, Any], growth: float) -> list[str]:
    """What should not have happened."""
    found = [
        f"{number} x {status} for {kind}"
        for kind, statuses in result["answers"].items()
        for status, number in statuses.items()
        if (status.startswith("5") and status != "503") or (kind in ("good", "stream") and not status.isdecimal())
    ]
    found += [f"{name} = {value} in the end" for name, value in result["left_behind"].items() if value]
    before, after = result["memory_mib"]
    if before is not None and after - before > growth:
        found.append(f"memory grew from {before:.0f} to {after:.0f} MiB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--api-key")
    parser.add_argument("--pid", type=int, help="the server's process, to watch its memory")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--growth", type=float, default=100, help="MiB that memory may grow by")
    parser.add_argument("--compare", action="store_true", help="also read such lines without a server")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    result = asyncio.run(run(options))
    if options.compare:
        result["lines_per_second_without_server"] = round(without_server(LINES), 2)
    print(json.dumps(result, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    problems = faults(result, options.growth)
    for problem in problems:
        print(f"fault: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
