"""Fetching images by URL: what is refused, and that the address that was checked is the one that is connected to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.serving.errors import ApiError
from mineru_diffusion.serving.fetch import UrlFetcher, is_public
from mineru_diffusion.serving.settings import ServerSettings

from .serving_fakes import png


class Handler(BaseHTTPRequestHandler):
    """`/a.png`, redirects, an endless body and a slow one."""

    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif self.path == "/slow":
            time.sleep(5)
        elif self.path == "/missing":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(100_000 if self.path == "/endless" else 1):
                    self.wfile.write(png() if self.path == "/a.png" else bytes(10_000))
            except OSError:
                pass

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def inside() -> Iterator[tuple[str, list[str]]]:
    """A server on a private address, and the paths that it was asked for."""
    handler = type("Inside", (Handler,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", handler.seen  # type: ignore[attr-defined]
        server.shutdown()


def fetch(url: str, **settings: Any) -> bytes:
    return asyncio.run(UrlFetcher(ServerSettings(**settings)).fetch(url))


def refused(url: str, **settings: Any) -> str:
    with pytest.raises(ApiError) as error:
        fetch(url, **settings)
    assert error.value.status_code == 400
    return str(error.value.code)


def test_nothing_by_default(inside: tuple[str, list[str]]) -> None:
    host, seen = inside
    assert refused(f"http://{host}/a.png") == "url_not_allowed"
    assert not seen


def test_private_addresses_are_refused_even_if_listed(inside: tuple[str, list[str]]) -> None:
    host, seen = inside
    port = host.rpartition(":")[2]
    for name in (host, f"localhost:{port}"):
        assert refused(f"http://{name}/a.png", url_hosts=(name,)) == "url_not_allowed"
    assert not seen


def test_listed_hosts_in_a_closed_network(inside: tuple[str, list[str]]) -> None:
    host, _ = inside
    allowed: dict[str, Any] = {"url_hosts": (host,), "url_allow_private": True}
    assert fetch(f"http://{host}/a.png", **allowed) == png()
    assert fetch(f"http://{host}/to//to//a.png", **allowed) == png()
    assert refused(f"http://{host}/missing", **allowed) == "url_failed"
    assert refused("http://127.0.0.1:1/a.png", url_hosts=("127.0.0.1:1",), url_allow_private=True) == "url_failed"


def test_redirects_are_checked_like_the_first_url(inside: tuple[str, list[str]]) -> None:
    host, seen = inside
    allowed: dict[str, Any] = {"url_hosts": (host,), "url_allow_private": True}
    for target in ("http://127.0.0.1:22/", "file:///etc/passwd", "http://example.org/a.png", "//localhost/a.png"):
        assert refused(f"http://{host}/to/{target}", **allowed) == "url_not_allowed"
    assert refused(f"http://{host}" + "/to/" * 6 + "/a.png", **allowed) == "url_failed"
    assert all(path.startswith("/to/") for path in seen)


def test_size_and_time_are_limited(inside: tuple[str, list[str]]) -> None:
    host, _ = inside
    allowed: dict[str, Any] = {"url_hosts": (host,), "url_allow_private": True}
    assert refused(f"http://{host}/endless", max_url_bytes=50_000, **allowed) == "image_too_large"
    started = time.monotonic()
    assert refused(f"http://{host}/slow", url_timeout=0.3, **allowed) == "url_failed"
    assert time.monotonic() - started < 4


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("http://evil.example/a.png", ("good.example",)),
        ("http://good.example.evil.example/a.png", ("good.example",)),
        ("http://notgood.example/a.png", ("*.good.example",)),
        ("http://good.example/a.png", ("*.good.example",)),
        ("http://good.example:8080/a.png", ("good.example",)),
        ("http://user@good.example/a.png", ("good.example",)),
        ("http://good.example@evil.example/a.png", ("good.example",)),
        ("gopher://good.example/", ("good.example",)),
        ("http:///a.png", ("",)),
        ("http://good.example:99999/", ("good.example",)),
        ("http://[::1/", ("good.example",)),
    ],
)
def test_hosts_that_are_not_listed(url: str, hosts: tuple[str, ...]) -> None:
    with pytest.raises(ApiError):
        UrlFetcher(ServerSettings(url_hosts=hosts)).check(url)


def test_hosts_that_are_listed() -> None:
    fetcher = UrlFetcher(ServerSettings(url_hosts=("good.example", "other.example:8080", "*.cdn.example")))
    for url in (
        "http://good.example/a.png",
        "https://GOOD.example/a.png",
        "https://good.example:443/",
        "http://other.example:8080/",
        "https://a.b.cdn.example/x",
    ):
        fetcher.check(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "no address",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_addresses_that_are_public() -> None:
    assert is_public("8.8.8.8")
    assert is_public("2606:4700:4700::1111")


@given(st.ip_addresses(v=4, network="10.0.0.0/8"))
def test_no_form_of_a_private_address_is_public(address: Any) -> None:
    packed = int(address)
    assert not is_public(str(address))
    assert not is_public(f"::ffff:{address}")
    assert not is_public(f"2002:{packed >> 16:x}:{packed & 0xFFFF:x}::1")
