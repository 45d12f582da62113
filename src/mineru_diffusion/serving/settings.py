"""Every limit and switch of the server, in one frozen record; the command line builds it from the same fields."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from mineru_diffusion.errors import UsageError

MIB = 1 << 20


def default_data_dir() -> Path:
    """Where jobs live when nobody says: a folder of this user's below the system's temporary one."""
    user = str(os.getuid()) if hasattr(os, "getuid") else ""  # elsewhere the temporary folder is the user's own
    return Path(tempfile.gettempdir()) / f"mineru-diffusion-serve-{user}".rstrip("-")


@dataclass(frozen=True)
class ServerSettings:
    """How the server behaves.

    Attributes:
        model_name: the one id that `/v1/models` lists.
        api_keys: accepted bearer tokens; empty: no key is asked for.
        data_dir: uploads and results of jobs live here and survive a restart.
        max_body_bytes: body of a JSON request at most.
        max_upload_bytes: body of a multipart request at most.
        max_inflight_bytes: bodies of all running requests together at most.
        max_image_pixels: pixels of one image at most, checked before it is decoded.
        max_queue_pixels: pixels of the images of all queued and running chat requests together at most.
        max_pages: pages of one document that are parsed at most.
        max_tokens: largest `max_tokens` that a request may ask for.
        max_queue: chat requests that are queued or running at most; more get 429.
        max_jobs: documents that are queued or being parsed at most; more get 429.
        parse_workers: documents parsed at a time.
        request_timeout: seconds that a chat request or a synchronous parse may take.
        job_timeout: seconds that a job may run.
        transfer_timeout: seconds that a client may take to send its body, or to read a piece of the answer.
        job_max_age: seconds that a finished job and its files are kept.
        shutdown_timeout: seconds that running requests get to finish when the server is told to stop.
        url_hosts: hosts that images may be fetched from (`host`, `host:port` or `*.domain`); empty: nothing is fetched.
        url_allow_private: let allow-listed hosts have private addresses. Only for closed networks.
        max_url_bytes: bytes of a fetched image at most.
        url_timeout: seconds that fetching an image may take, redirects included.
        cors_origins: origins that browsers may call from; empty: none.
    """

    model_name: str = "mineru-diffusion"
    api_keys: tuple[str, ...] = ()
    data_dir: Path = field(default_factory=default_data_dir)
    max_body_bytes: int = 32 * MIB
    max_upload_bytes: int = 256 * MIB
    max_inflight_bytes: int = 1024 * MIB
    max_image_pixels: int = 50_000_000
    max_queue_pixels: int = 1_000_000_000
    max_pages: int = 500
    max_tokens: int = 16_384
    max_queue: int = 512
    max_jobs: int = 64
    parse_workers: int = 2
    request_timeout: float = 600
    job_timeout: float = 6 * 3600
    transfer_timeout: float = 60
    job_max_age: float = 24 * 3600
    shutdown_timeout: float = 30
    url_hosts: tuple[str, ...] = ()
    url_allow_private: bool = False
    max_url_bytes: int = 32 * MIB
    url_timeout: float = 10
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
                raise UsageError(f"--{name.replace('_', '-')} must be positive, not {value}")
        if not self.model_name.strip():
            raise UsageError("the served model needs a name")
        if any(not key.strip() for key in self.api_keys):
            raise UsageError("an API key is empty; leave the option out to serve without keys")
