"""Documents at once and in the background, MinerU's routes, and what is left on disk."""

from __future__ import annotations

import io
import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.errors import UsageError
from mineru_diffusion.serving import documents
from mineru_diffusion.serving.job_store import Job, JobOptions, JobStore, safe_file_name

from .serving_fakes import FakeEngine, chat, data_uri, running, until

LINES = CheckpointProfile(tasks=("text",), text_unit="line", line_height=32, prompts={"text": "\nText Recognition:"})


def page(text: str = "Some words on a page") -> Image.Image:
    """A paragraph: a single line may be taken for a picture."""
    image = Image.new("RGB", (800, 600), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(22)
    for i in range(6):
        draw.text((80, 120 + 32 * i), f"{text}, and some more of them in line {i}", fill="black", font=font)
    return image


def pdf(pages: int = 2) -> bytes:
    buffer = io.BytesIO()
    page().save(buffer, format="PDF", save_all=True, append_images=[page(f"Page {i}") for i in range(1, pages)])
    return buffer.getvalue()


def upload(name: str = "report.pdf", data: bytes | None = None) -> dict[str, Any]:
    return {"file": (name, pdf() if data is None else data)}


def wait(client: httpx.Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def over() -> bool:
        found.update(client.get(f"/v1/jobs/{job_id}").json())
        return found["status"] not in ("queued", "running")

    until(over)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def client(data: Path) -> Iterator[httpx.Client]:
    with running(FakeEngine(lambda request: "words", LINES), data, max_pages=3) as client:
        yield client


def no_files(data: Path) -> bool:
    return not list((data / "data" / "jobs").iterdir())


def test_parse_gives_markdown_and_both_kinds_of_json(client: httpx.Client, data: Path) -> None:
    answer = client.post("/v1/parse", files=upload())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["file"] == "report.pdf"
    assert (body["status"], body["pages"]) == ("ok", 2)
    assert "words" in body["markdown"]
    # A paragraph may go on over the page break, and is one item then.
    assert {item["page_idx"] for item in body["content_list"]} <= {0, 1}
    assert [page["index"] for page in body["document"]["pages"]] == [0, 1]
    assert all(page["regions"] for page in body["document"]["pages"])
    assert str(data) not in answer.text
    until(lambda: no_files(data))


def test_parse_in_other_forms(client: httpx.Client, data: Path) -> None:
    markdown = client.post("/v1/parse", files=upload(), data={"output": "md", "pages": "2"})
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert "words" in markdown.text
    packed = client.post("/v1/parse", files=upload(), data={"output": "zip", "formats": "html"})
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        names = archive.namelist()
        everything = b"".join(archive.read(name) for name in names)
    assert {"report/report.md", "report/report.json", "report/report.html"} <= set(names)
    assert not any("/." in name for name in names)
    assert str(data).encode() not in everything
    until(lambda: no_files(data))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"pages": "0"}, 400),
        ({"pages": "two"}, 400),
        ({"pages": "9"}, 422),
        ({"dpi": "5"}, 400),
        ({"threshold": "2"}, 400),
        ({"policy": "best"}, 400),
        ({"max_tokens": "0"}, 400),
        ({"max_tokens": "999999"}, 400),
        ({"formats": "docx"}, 400),
        ({"output": "docx"}, 400),
    ],
)
def test_wrong_options(client: httpx.Client, fields: dict[str, str], status: int) -> None:
    answer = client.post("/v1/parse", files=upload(), data=fields)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"]
    assert error["param"] == (None if status == 422 else next(iter(fields)))


@pytest.mark.parametrize(
    "content", [b"", b"no document", b"%PDF-1.7 cut off", pdf()[:500], b"%!PS-Adobe-3.0 EPSF-3.0\n"]
)
def test_what_cannot_be_read_is_422_and_names_the_file_only(client: httpx.Client, data: Path, content: bytes) -> None:
    answer = client.post("/v1/parse", files=upload("bad.pdf", content))
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("bad.pdf: ")
    assert str(data) not in answer.text


def test_pages_are_limited(client: httpx.Client) -> None:
    answer = client.post("/v1/parse", files=upload(data=pdf(4)))
    assert answer.status_code == 422
    assert "3 at most" in answer.json()["error"]["message"]
    assert client.post("/v1/parse", files=upload(data=pdf(4)), data={"pages": "2-3"}).status_code == 200


@pytest.mark.parametrize("name", ["../../x.pdf", "/etc/x.pdf", "..\\..\\x.pdf", "a/b/../../../x.pdf", "x.pdf/", ".."])
def test_names_stay_inside(client: httpx.Client, data: Path, name: str) -> None:
    outside = {p for p in data.parent.rglob("*") if data not in p.parents}
    submitted = client.post("/v1/jobs", files=upload(name))
    assert submitted.status_code == 202
    job = wait(client, submitted.json()["id"])
    assert job["status"] == "done"
    assert "/" not in job["files"][0]["name"]
    inside = (data / "data" / "jobs" / job["id"]).rglob("*")
    assert any(p.name == job["files"][0]["name"] for p in inside)
    assert {p for p in data.parent.rglob("*") if data not in p.parents} == outside
    assert client.delete(f"/v1/jobs/{job['id']}").json()["deleted"]
    assert client.get(f"/v1/jobs/{job['id']}").status_code == 404
    until(lambda: no_files(data))


@given(st.text(max_size=300))
def test_any_name_becomes_one_harmless_part(name: str) -> None:
    safe = safe_file_name(name)
    assert safe
    assert safe not in (".", "..")
    assert not set(safe) & set("/\\\0:")
    assert len(safe.encode()) < 200
    assert safe_file_name(safe) == safe


@pytest.mark.parametrize("job_id", ["..", "%2e%2e", "x" * 32, "0" * 32, "../../etc/passwd"])
def test_ids_that_are_none(client: httpx.Client, job_id: str) -> None:
    for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/result", f"/tasks/{job_id}"):
        assert client.get(path).status_code == 404
    assert client.delete(f"/v1/jobs/{job_id}").status_code in (404, 405)


def test_a_job_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words", LINES)
    with running(engine, tmp_path) as client:
        engine.gate.clear()
        submitted = client.post("/v1/jobs", files=upload(), data={"pages": "1-2"})
        assert submitted.status_code == 202
        job_id = submitted.json()["id"]
        assert submitted.headers["location"] == f"/v1/jobs/{job_id}"
        until(lambda: client.get(f"/v1/jobs/{job_id}").json()["progress"]["pages"] == 2)
        assert client.get(f"/v1/jobs/{job_id}/result").status_code == 202
        engine.gate.set()
        job = wait(client, job_id)
        assert job["status"] == "done"
        assert job["progress"] == {"pages": 2, "pages_done": 2}
        first = client.get(f"/v1/jobs/{job_id}/result").json()
        assert "words" in first["markdown"]
    # After a restart it is still there, and its result too.
    with running(FakeEngine(profile=LINES), tmp_path) as client:
        assert client.get(f"/v1/jobs/{job_id}").json()["status"] == "done"
        assert client.get(f"/v1/jobs/{job_id}/result").json() == first
    # ... until it is too old.
    with running(FakeEngine(profile=LINES), tmp_path, job_max_age=0.001) as client:
        until(lambda: client.get(f"/v1/jobs/{job_id}").status_code == 404)
        until(lambda: no_files(tmp_path))


def test_a_job_that_a_restart_interrupts_goes_on(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words" * 10_000, LINES, pause=0.01)
    with running(engine, tmp_path) as client:
        job_id = client.post("/v1/jobs", files=upload()).json()["id"]
        secret = client.post("/v1/jobs", files=upload(), data={"password": "secret"}).json()["id"]
        until(lambda: inside_engine(client) > 0)
    stored = (tmp_path / "data" / "jobs" / job_id / "job.json").read_text()
    assert json.loads(stored)["state"] == "queued"
    assert "secret" not in (tmp_path / "data" / "jobs" / secret / "job.json").read_text()
    with running(FakeEngine(lambda request: "words", LINES), tmp_path) as client:
        assert wait(client, job_id)["status"] == "done"
        assert "password" in wait(client, secret)["error"]


def test_what_is_not_done_at_the_end_is_told_to_come_back(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words" * 100_000, LINES, pause=0.01)
    answers: dict[str, httpx.Response] = {}

    def ask(client: httpx.Client, name: str, path: str, **call: Any) -> threading.Thread:
        url = client.base_url.join(path)  # not by the client, which is closed before the server
        thread = threading.Thread(target=lambda: answers.update({name: httpx.post(url, timeout=300, **call)}))
        thread.start()
        return thread

    with running(engine, tmp_path, parse_workers=2) as client:
        uri = data_uri(png_of(page()))
        asked = [
            ask(client, "plain", "/v1/chat/completions", json=chat(url=uri)),
            ask(client, "stream", "/v1/chat/completions", json=chat(url=uri, stream=True, as_is=True)),
        ]
        until(lambda: inside_engine(client) > 1)
        asked.append(ask(client, "parse", "/v1/parse", files=upload()))
        asked.append(ask(client, "mineru", "/file_parse", files={"files": ("a.pdf", pdf(1))}))
        until(lambda: client.get("/health").json()["processing_tasks"] == 2)
        asked.append(ask(client, "waiting", "/v1/parse", files=upload()))  # both threads are taken
        until(lambda: client.get("/health").json()["queued_tasks"] == 1)
    for thread in asked:
        thread.join(60)
    assert len(answers) == 5
    last = json.loads(answers.pop("stream").text.strip().rpartition("data: ")[2])
    assert last["error"]["code"] == "shutting_down"
    for name, answer in answers.items():
        assert answer.status_code == 503, name
        assert answer.json()["error"]["code"] == "shutting_down", name
        assert int(answer.headers["retry-after"]) > 0
    kept = list((tmp_path / "data" / "jobs").glob("*/job.json"))
    assert [json.loads(path.read_text())["state"] for path in kept] == [
        "queued"
    ]  # MinerU's task; others were asked for


def png_of(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def inside_engine(client: httpx.Client) -> int:
    return int(client.get("/health").json()["requests"]["running"])


def test_a_job_is_cancelled_and_its_pages_are_free(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words" * 10_000, LINES, pause=0.01)
    with running(engine, tmp_path, max_jobs=2, parse_workers=1) as client:
        job_id = client.post("/v1/jobs", files=upload()).json()["id"]
        until(lambda: inside_engine(client) > 0)
        second = client.post("/v1/jobs", files=upload()).json()
        assert second["queued_before"] == 0
        full = client.post("/v1/jobs", files=upload())
        assert full.status_code == 429
        assert "retry-after" in full.headers
        for one in (second["id"], job_id):
            assert client.delete(f"/v1/jobs/{one}").status_code == 200
        until(lambda: engine.cache_pages[0] == 0)
        until(lambda: no_files(tmp_path))


def test_a_parse_whose_client_goes_away_ends(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words" * 10_000, LINES, pause=0.01)
    with running(engine, tmp_path) as client:
        with pytest.raises(httpx.TimeoutException):
            client.post("/v1/parse", files=upload(), timeout=5)
        until(lambda: engine.cache_pages[0] == 0)
        until(lambda: no_files(tmp_path))


def test_time_is_limited(tmp_path: Path) -> None:
    engine = FakeEngine(lambda request: "words" * 10_000, LINES, pause=0.01)
    with running(engine, tmp_path, request_timeout=1.0) as client:
        answer = client.post("/v1/parse", files=upload())
        assert answer.status_code == 504
        until(lambda: engine.cache_pages[0] == 0)


def test_file_parse_answers_like_mineru(client: httpx.Client) -> None:
    fields = {
        "return_md": "true",
        "return_content_list": "true",
        "return_images": "true",
        "return_middle_json": "true",
        "start_page_id": "1",
        "end_page_id": "7",
        "backend": "vlm-http-client",
        "server_url": "http://127.0.0.1:1",
        "lang_list": "en",
    }
    files = [("files", ("a.pdf", pdf())), ("files", ("b.pdf", pdf()))]
    answer = client.post("/file_parse", files=files, data=fields)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["status"] == "completed"
    assert body["file_names"] == ["a", "b"]
    assert set(body["results"]) == {"a", "b"}
    result = body["results"]["a"]
    assert "words" in result["md_content"]
    assert {item["page_idx"] for item in json.loads(result["content_list"])} == {1}
    assert result["images"] == {}
    assert result["middle_json"] is None


def test_tasks_answer_like_mineru(client: httpx.Client) -> None:
    form = {"response_format_zip": "true", "return_original_file": "true"}
    submitted = client.post("/tasks", files=[("files", ("a.pdf", pdf()))], data=form)
    assert submitted.status_code == 202
    task = submitted.json()
    assert task["status"] in ("pending", "processing")
    until(lambda: client.get(task["status_url"]).json()["status"] == "completed")
    result = client.get(task["result_url"])
    assert result.status_code == 200
    with zipfile.ZipFile(io.BytesIO(result.content)) as archive:
        assert {"a/a.md", "a/a_content_list.json", "a/a_origin.pdf"} <= set(archive.namelist())
    bad = client.post("/tasks", files=[("files", ("bad.pdf", b"nothing"))]).json()
    until(lambda: client.get(bad["status_url"]).json()["status"] == "failed")
    assert client.get(bad["result_url"]).status_code == 409
    assert client.post("/file_parse", files=[("files", ("bad.pdf", b"nothing"))]).status_code == 409
    missing = client.post("/file_parse", files=[("other", ("a.pdf", b""))])
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "files")


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    first = JobStore(tmp_path)
    with pytest.raises(UsageError, match="data-dir"):
        JobStore(tmp_path)
    first.close()
    JobStore(tmp_path).close()


@pytest.mark.parametrize("output", ["json", "zip"])
def test_nothing_is_left_of_an_answer_that_nobody_reads(
    tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large_zip(store: JobStore, job: Job) -> Path:
        path = store.folder(job.id) / "large.zip"
        path.write_bytes(bytes(20_000_000))
        return path

    monkeypatch.setattr(documents, "json_result", lambda *_, **__: {"markdown": "x" * 20_000_000})
    monkeypatch.setattr(documents, "zip_result", large_zip)
    with running(FakeEngine(profile=LINES), tmp_path, transfer_timeout=0.5) as client:
        form = httpx.Request("POST", client.base_url, files=upload(data=pdf(1)), data={"output": output})
        head = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
        address = (client.base_url.host, client.base_url.port or 80)
        with socket.create_connection(address, timeout=300) as connection:
            connection.sendall(f"POST /v1/parse HTTP/1.1\r\n{head}\r\n".encode() + form.read())
            until(lambda: 'route="/v1/parse"' in client.get("/metrics").text)
        until(lambda: no_files(tmp_path), 5)


def test_broken_job_files_are_removed_at_the_start(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    whole = store.new("job", JobOptions(formats=("html",)), ["a.pdf"])
    store.save(whole)
    sync = store.new("sync", JobOptions(), ["a.pdf"])
    store.save(sync)
    broken = store.new("job", JobOptions(), ["a.pdf"])
    (store.folder(broken.id) / "job.json").write_text("{")
    store.close()
    loaded = list(JobStore(tmp_path).load())
    assert loaded == [whole]
    assert [p.name for p in (tmp_path / "jobs").iterdir()] == [whole.id]
