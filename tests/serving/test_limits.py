"""The door: keys, sizes, times, malformed input, and the log."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mineru_diffusion.engine.types import Result
from mineru_diffusion.errors import UsageError
from mineru_diffusion.serving.guard import JsonFormatter
from mineru_diffusion.serving.settings import ServerSettings

from .serving_fakes import FakeEngine, chat, data_uri, inside, png, running, sent, until

PATH = "/v1/chat/completions"
JSON = "application/json"
KIB = 1024


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    limits = {
        "api_keys": ("first-key", "second-key"),
        "max_body_bytes": 64 * KIB,
        "max_upload_bytes": 128 * KIB,
        "max_image_pixels": 10_000,
        "transfer_timeout": 1.0,
    }
    with running(FakeEngine(), tmp_path_factory.mktemp("serve"), **limits) as client:
        client.headers["Authorization"] = "Bearer second-key"
        yield client


def message(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["message"])


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic second-key", "Bearer second-key2", "second-key"]
)
def test_a_key_is_asked_for(client: httpx.Client, given: str) -> None:
    for method, path in [("POST", PATH), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/v1/jobs/x")]:
        answer = client.request(method, path, json=chat(), headers={"Authorization": given})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "API key" in message(answer)
    assert client.get("/health", headers={"Authorization": given}).status_code == 200


def test_every_key_opens(client: httpx.Client) -> None:
    for key in ("first-key", "second-key"):
        answer = client.post(PATH, json=chat(), headers={"Authorization": f"bearer {key}"})
        assert answer.status_code == 200


def test_large_bodies_are_413(client: httpx.Client) -> None:
    answer = client.post(PATH, json=chat("x" * 70 * KIB))
    assert answer.status_code == 413
    assert "65536" in message(answer)
    upload = client.post("/v1/parse", files={"file": ("a.pdf", b"%PDF-" + bytes(200 * KIB))})
    assert upload.status_code == 413


def test_large_bodies_of_unknown_length_are_413(client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield bytes(8 * KIB)

    answer = client.post(PATH, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_a_body_that_does_not_come_is_408(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=10) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer first-key\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"messages": NaN}',
        b'{"messages":[{"role":7}]}',
    ],
)
def test_malformed_json_is_400(client: httpx.Client, content: bytes) -> None:
    answer = client.post(PATH, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    said = message(answer)
    assert "body" in said or "messages" in said
    assert not (answer.json()["error"]["param"] or "").isdecimal()


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", JSON])
@pytest.mark.parametrize("path", [PATH, "/v1/parse", "/v1/jobs", "/file_parse", "/tasks"])
def test_other_kinds_of_bodies_are_415(client: httpx.Client, path: str, kind: str) -> None:
    if kind == (JSON if path == PATH else "multipart/form-data"):
        return
    kind = kind.replace("multipart/form-data", "multipart/form-data; boundary=b")
    content = b"--b--\r\n" if "boundary" in kind else b'{"file": "x"}'
    answer = client.post(path, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert (JSON if path == PATH else "multipart/form-data") in message(answer)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "../../etc/passwd",
        "C:\\Windows\\win.ini",
        "ftp://example.org/a.png",
        "data:text/plain;base64,aGVsbG8=",
        "data:image/png,plain",
        "data:image/png;base64,####",
        "",
        data_uri(b"no image"),
        data_uri(png()[:40]),
        data_uri(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"),
        data_uri(png(200, 100)),
    ],
)
def test_what_is_no_image_is_400(client: httpx.Client, url: str) -> None:
    answer = client.post(PATH, json=chat(url=url))
    assert answer.status_code == 400
    assert "root:" not in message(answer)


def test_urls_are_not_fetched(client: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.settimeout(0.3)
        port = inside.getsockname()[1]
        answer = client.post(PATH, json=chat(url=f"http://127.0.0.1:{port}/a.png"))
        assert answer.status_code == 400
        assert "data URI" in message(answer)
        with pytest.raises(TimeoutError):
            inside.accept()


def test_request_ids(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    first, second = (client.get("/nothing", headers={"X-Request-Id": "bad id{}"}) for _ in range(2))
    assert first.status_code == 404
    assert message(first)
    assert len(first.headers["x-request-id"]) == 32
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert client.request("PUT", PATH).status_code == 405


def test_browsers_of_other_origins_get_nothing(client: httpx.Client, tmp_path: Path) -> None:
    origin = {"Origin": "https://elsewhere.example"}
    assert "access-control-allow-origin" not in client.get("/v1/models", headers=origin).headers
    with running(FakeEngine(), tmp_path, cors_origins=("https://here.example",)) as other:
        assert "access-control-allow-origin" not in other.get("/health", headers=origin).headers
        allowed = other.get("/health", headers={"Origin": "https://here.example"})
        assert allowed.headers["access-control-allow-origin"] == "https://here.example"
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, x-stainless-os",
        }
        assert other.options(PATH, headers={"Origin": "https://here.example", **asked}).status_code == 200
        refused = other.options(PATH, headers={**origin, **asked})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: Result("x" * 20_000_000))
    with running(engine, tmp_path, transfer_timeout=0.5, request_timeout=1.0) as client:
        with sent(client, PATH, chat()):
            until(lambda: 'route="/v1/chat/completions"' in client.get("/metrics").text)
        assert inside(client) == 0


def test_log_lines_are_json(client: httpx.Client) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Keep()
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("mineru_diffusion.serving")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        client.post(PATH, json=chat(), headers={"X-Request-Id": "logged-1"})
        until(lambda: any("logged-1" in line for line in lines))
    finally:
        log.removeHandler(handler)
    record = next(json.loads(line) for line in lines if "logged-1" in line)
    assert record["status"] == 200
    assert record["route"] == PATH
    assert record["ms"] > 0
    assert "second-key" not in "".join(lines)


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError, match="max-queue"):
        ServerSettings(max_queue=0)
    with pytest.raises(UsageError, match="key"):
        ServerSettings(api_keys=("",))
    with pytest.raises(UsageError, match="name"):
        ServerSettings(model_name=" ")
