"""The demo as users start and end it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("gradio")

COMMAND = [sys.executable, "-m", "mineru_diffusion.cli", "demo", "--device", "cpu", "--port"]


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_leaves_nothing_behind(tmp_path: Path, end: signal.Signals) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    log = tmp_path.with_name(f"{tmp_path.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen([*COMMAND, "0"], stdout=output, stderr=output, env=environment)
    try:
        until = time.monotonic() + 600
        while (said := re.search(r"http://localhost:\d+", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.2)
        answer = httpx.get(said.group(), timeout=300)
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert list(tmp_path.glob("mineru-demo-*"))
        # A browser holds a stream open for as long as its page is: it must not hold up the end.
        with httpx.stream("GET", f"{said.group()}/gradio_api/heartbeat/visitor", timeout=300) as stream:
            assert stream.status_code == 200
            process.send_signal(end)
            assert process.wait(120) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert not list(tmp_path.glob("mineru-demo-*"))
    assert "Traceback" not in log.read_text()


def test_a_port_that_is_taken_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = subprocess.run(
            [*COMMAND, str(taken.getsockname()[1])], capture_output=True, text=True, timeout=300, check=False
        )
    assert result.returncode == 2
    assert "choose another --host or --port" in result.stderr
    assert "Traceback" not in result.stderr
