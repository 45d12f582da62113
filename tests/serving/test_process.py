"""The server as users run it: a process of its own, asked over a socket by other people's clients."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.assets import packaged_checkpoint
from mineru_diffusion.serving.listening import listen

from .serving_fakes import chat, data_uri, inside, sent, until

openai = pytest.importorskip("openai")
mineru = pytest.importorskip("mineru_vl_utils")

PATH = "/v1/chat/completions"
KEY = "a-key"
STRUCTURE = re.compile(r"<\|(?:box_start|box_end|ref_start|ref_end|rotate_\w+|txt_contd\w*)\|>|<(?:[felux]cel|nl)>")


def line(text: str, width: int = 420, height: int = 40) -> Image.Image:
    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((6, 6), text, fill="black", font=ImageFont.load_default(24))
    return image


def encoded(image: Image.Image, path: Path) -> str:
    image.save(path)
    return data_uri(path.read_bytes())


class Server:
    """`mineru-diffusion serve` in a process."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "log.txt"
        command = [sys.executable, "-m", "mineru_diffusion.cli", "serve", "--port", "0", "--device", "cpu"]
        command += ["--data-dir", str(folder / "data"), "--served-model-name", "m", *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MINERU_DIFFUSION_API_KEY": KEY}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, env=environment)
        try:
            until(self._listens, 900)
        except BaseException:
            self.process.kill()
            raise
        self.url = next(str(record["url"]) for record in self.records() if record.get("event") == "listening")
        self.client = httpx.Client(base_url=self.url, timeout=600, headers={"Authorization": f"Bearer {KEY}"})

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return '"event": "ready"' in self.log.read_text()

    def stop(self) -> int:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(text) for text in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("serve"), "--shutdown-timeout", "20")
    yield server
    server.stop()


@pytest.mark.slow
def test_the_load_test_runs_and_finds_no_fault(server: Server, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "load_test.py"
    command = [sys.executable, str(script), "--url", server.url, "--api-key", KEY, "--clients", "6", "--seconds", "5"]
    command += ["--pid", str(server.process.pid), "--growth", "400", "--out", str(tmp_path / "load.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "load.json").read_text())
    assert set(result["answers"]["good"]) == {"200"}
    assert not any(result["left_behind"].values())
    assert result["p99_seconds"] >= result["p50_seconds"] > 0


def test_plain_http(server: Server, tmp_path: Path) -> None:
    answer = server.client.post(PATH, json=chat(url=encoded(line("Hello world"), tmp_path / "a.png")))
    assert answer.status_code == 200
    choice = answer.json()["choices"][0]
    assert "Hello" in choice["message"]["content"]
    own = choice["mineru_diffusion"]
    assert len(own["confidences"]) == answer.json()["usage"]["completion_tokens"] > 0
    assert own["passes"] > 0
    assert answer.json()["usage"]["prompt_tokens"] > 10


def test_the_openai_sdk(server: Server, tmp_path: Path) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    assert [model.id for model in client.models.list()] == ["m"]
    messages = chat(url=encoded(line("Hello world"), tmp_path / "a.png"))["messages"]
    whole = client.chat.completions.create(model="m", messages=messages, temperature=0, extra_body={"as_is": True})
    assert "Hello" in whole.choices[0].message.content
    stream = client.chat.completions.create(
        model="m", messages=messages, stream=True, stream_options={"include_usage": True}, extra_body={"as_is": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Hello" in text
    assert sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) > 1
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with pytest.raises(openai.BadRequestError, match="n is not supported"):
        client.chat.completions.create(model="m", messages=messages, n=2)
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong").models.list()


def test_mineru_reads_a_page_in_two_steps(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINERU_VL_API_KEY", KEY)
    client = mineru.MinerUClient(backend="http-client", server_url=server.url, use_tqdm=False)
    page = Image.new("RGB", (800, 1000), "white")
    for i in range(6):
        page.paste(line(f"Plain line number {i}", 600), (80, 120 + 44 * i))
    blocks = client.two_step_extract(page)
    assert blocks
    content = " ".join(block.content or "" for block in blocks)
    assert content.count("line") >= 3
    assert all(0 <= value <= 1 for block in blocks for value in block.bbox)


def test_no_special_token_reaches_a_client(server: Server, tmp_path: Path) -> None:
    """Structural tokens may; they are what layouts and tables are made of."""
    uri = encoded(line("<|im_end|> MASK"), tmp_path / "a.png")
    for prompt in ("Text", "Table", "Formula", "Layout"):
        for skip in (True, False):
            kind = "Detection" if prompt == "Layout" else "Recognition"
            body = chat(f"\n{prompt} {kind}:", uri, max_tokens=40, skip_special_tokens=skip, as_is=True)
            choice = server.client.post(PATH, json=body).json()["choices"][0]
            assert "<|" not in STRUCTURE.sub("", choice["message"]["content"])
    layout = server.client.post(PATH, json=chat("\nLayout Detection:", uri, skip_special_tokens=True)).json()
    assert "<|box_start|>" in layout["choices"][0]["message"]["content"]


def test_a_closed_socket_frees_its_pages(server: Server, tmp_path: Path) -> None:
    noise = Image.effect_noise((1200, 1200), 90).convert("RGB")
    body = chat(url=encoded(noise, tmp_path / "a.png"), as_is=True, max_tokens=8000, repetition_guard=False)
    request = {**body, "stream": True, "threshold": 1.0}
    pages = re.compile(r"cache_pages_used (\d+)")

    def used() -> int:
        return int(pages.findall(server.client.get("/metrics").text)[0])

    assert used() == 0
    with sent(server.client, PATH, request, KEY):
        until(lambda: used() > 0)
    until(lambda: used() == 0)
    until(lambda: inside(server.client) == 0)


def test_memory_stays_flat(server: Server, tmp_path: Path) -> None:
    """200 small requests: what the first ones bring into memory stays, and nothing is added."""
    body = chat(url=encoded(line("Hi", 64, 32), tmp_path / "a.png"), max_tokens=4, as_is=True)

    def resident() -> int:
        pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    if not Path("/proc/self/statm").is_file():
        pytest.skip("no /proc")
    for _ in range(40):
        assert server.client.post(PATH, json=body).status_code == 200
    before = resident()
    for _ in range(160):
        assert server.client.post(PATH, json=body).status_code == 200
    assert resident() - before < 16 * 2**20


def test_the_packaged_checkpoint_is_what_is_served(server: Server) -> None:
    profile = server.client.get("/v1/models").json()["data"][0]["mineru_diffusion"]["profile"]
    section = json.loads((packaged_checkpoint() / "generation_config.json").read_text())["mineru_diffusion"]
    assert profile["block_length"] == section["block_length"]
    assert profile["tasks"] == section["tasks"]


def test_zz_sigterm_lets_running_requests_finish(server: Server, tmp_path: Path) -> None:
    """Last, because it ends the module's server."""
    noise = Image.effect_noise((400, 400), 90).convert("RGB")
    body = chat(url=encoded(noise, tmp_path / "a.png"), as_is=True, max_tokens=64, threshold=1.0)
    with sent(server.client, PATH, body, KEY) as connection:
        until(lambda: inside(server.client) > 0)
        server.process.send_signal(signal.SIGTERM)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200")
    assert server.stop() == 0
    events = [record.get("event") for record in server.records()]
    assert {"ready", "request", "stopped"} <= set(events)
    assert KEY not in server.log.read_text()


def test_a_wrong_argument_is_said_at_once() -> None:
    command = [sys.executable, "-m", "mineru_diffusion.cli", "serve", "--log-level", "loud"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "log level" in done.stderr


@pytest.mark.parametrize("name", ["serve", "demo"])
def test_a_taken_port_is_said_before_a_checkpoint_is_loaded(name: str, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        # An empty folder: loading it would be the error.
        command = [sys.executable, "-m", "mineru_diffusion.cli", name, "--model", str(tmp_path), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert "choose another" in done.stderr
