"""Fetching images by URL. Off unless hosts are allow-listed; then every hop is checked: scheme, host, and the very
address that is connected to, so that neither a redirect nor a changing DNS answer leads inside.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urljoin, urlsplit

import anyio
import httpcore

from mineru_diffusion.serving.errors import ApiError, bad_request
from mineru_diffusion.serving.settings import ServerSettings

PARAM = "messages"
MAX_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class UrlFetcher:
    """Fetches what the settings allow.

    Args:
        settings: `url_*` and `max_url_bytes` of it count.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._hosts = tuple(host.lower() for host in settings.url_hosts)
        self._private = settings.url_allow_private
        self._limit = settings.max_url_bytes
        self._timeout = settings.url_timeout

    async def fetch(self, url: str) -> bytes:
        """The body behind a URL.

        Raises:
            ApiError: 400 for anything that is not allowed or does not work.
        """
        if not self._hosts:
            raise bad_request(
                "this server fetches no URLs; send the image as a data URI: data:image/png;base64,...",
                PARAM,
                "url_not_allowed",
            )
        try:
            with anyio.fail_after(self._timeout):
                return await self._follow(url)
        except TimeoutError as error:
            raise bad_request(f"the image could not be fetched in {self._timeout:g} s", PARAM, "url_failed") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError, ValueError) as error:
            # What exactly failed would tell an outsider about the inside.
            raise bad_request("the image could not be fetched", PARAM, "url_failed") from error

    async def _follow(self, url: str) -> bytes:
        async with httpcore.AsyncConnectionPool(network_backend=_CheckedNetwork(self._private), retries=0) as pool:
            for _ in range(MAX_REDIRECTS + 1):
                self.check(url)
                headers = [("Accept", "image/*"), ("Accept-Encoding", "identity"), ("User-Agent", "mineru-diffusion")]
                async with pool.stream("GET", url, headers=headers) as response:
                    if response.status in _REDIRECTS:
                        url = urljoin(url, _header(response.headers, b"location"))
                        continue
                    if response.status != 200:
                        raise bad_request(f"the image's server answered {response.status}", PARAM, "url_failed")
                    return await self._read(response)
        raise bad_request(f"more than {MAX_REDIRECTS} redirects", PARAM, "url_failed")

    async def _read(self, response: httpcore.Response) -> bytes:
        data = bytearray()
        async for piece in response.aiter_stream():
            data += piece
            if len(data) > self._limit:
                raise bad_request(f"the image is larger than {self._limit} bytes", PARAM, "image_too_large")
        return bytes(data)

    def check(self, url: str) -> None:
        """Raise ApiError unless scheme, host and port are allowed; looks nothing up."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError as error:
            raise bad_request("the image's URL is malformed", PARAM, "url_not_allowed") from error
        host = (parts.hostname or "").rstrip(".")
        if parts.scheme not in _PORTS or not host or parts.username is not None or parts.password is not None:
            raise bad_request("only plain http and https URLs are fetched", PARAM, "url_not_allowed")
        if not any(_matches(allowed, host, port, _PORTS[parts.scheme]) for allowed in self._hosts):
            raise bad_request(f"images are not fetched from {host}", PARAM, "url_not_allowed")


def _matches(allowed: str, host: str, port: int, usual_port: int) -> bool:
    name, _, wanted = allowed.rpartition(":") if allowed.rpartition(":")[2].isdecimal() else (allowed, "", "")
    if port != (int(wanted) if wanted else usual_port):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet: not private, loopback, link-local, shared, multicast or
    reserved, and no IPv6 form that wraps such an IPv4 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None and not is_public(str(inner)):
            return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to an address that was looked up once and checked; TLS still asks for the host's own name."""

    def __init__(self, allow_private: bool) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._allow_private = allow_private

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in found]
        # One bad address among good ones is reason enough: whoever controls the name chose it.
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise ApiError(400, f"{host} has an address that is not public", param=PARAM, code="url_not_allowed")
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise OSError("sockets of this machine are not connected to")

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
