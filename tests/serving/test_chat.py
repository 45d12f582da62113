"""`/v1/chat/completions`: what is taken, what is refused, and what comes back."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.otsl import parse_otsl
from mineru_diffusion.engine.remote import OWN_PARAMS
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Policy, Request, Result
from mineru_diffusion.serving.chat_types import ChatRequest

from .serving_fakes import FakeEngine, chat, data_uri, held, inside, png, running, sent, until

PATH = "/v1/chat/completions"


def reply(request: Request) -> str | Result:
    answers: dict[str, str | Result] = {
        "long": "abcdefghij" * 4,
        "loop": Result("kept", (1, 2), (0.5, 0.7), (1, 2), 5, "repetition"),
        "broken": Result("", finish_reason="error", error="encoding the image failed"),
        "umlaut": "ä\ufffd tail",
        "forever": "x" * 100_000,
    }
    return answers.get((request.prompt or "").strip(), "some text")


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine(reply, pause=0.002)


@pytest.fixture(scope="module")
def client(engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running(engine, tmp_path_factory.mktemp("serve")) as client:
        yield client


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_an_answer_has_the_shape_that_clients_expect(client: httpx.Client) -> None:
    answer = client.post(PATH, json=chat())
    assert answer.status_code == 200
    body = answer.json()
    assert body["object"] == "chat.completion"
    assert body["model"] == "m"
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "some text"
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] is None
    assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}
    own = choice["mineru_diffusion"]
    assert own["passes"] == 3
    assert own["confidences"] == [0.9] * 9
    assert own["confidence"] == pytest.approx(0.9)
    assert own["token_ids"] == [ord(c) for c in "some text"]


def test_a_stream_comes_block_by_block(
    client: httpx.Client, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "pause", 0.1)  # blocks that come while nobody listens are told of together
    response = client.post(PATH, json=chat("long", stream=True, stream_options={"include_usage": True}))
    assert response.headers["content-type"].startswith("text/event-stream")
    parts = events(response)
    texts = [p["choices"][0]["delta"].get("content") for p in parts if p["choices"]]
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(t for t in texts if t) == "abcdefghij" * 4
    assert sum(1 for t in texts if t) > 3
    assert parts[-2]["choices"][0]["finish_reason"] == "stop"
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"]["completion_tokens"] == 40


def test_half_a_character_is_not_streamed(client: httpx.Client) -> None:
    parts = events(client.post(PATH, json=chat("umlaut", stream=True)))
    texts = [p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"]]
    assert "".join(texts) == "ä\ufffd tail"
    assert not any(t.endswith("\ufffd") for t in texts)


def test_what_mineru_sends_is_taken(client: httpx.Client, engine: FakeEngine) -> None:
    more = {
        "temperature": 0.0,
        "top_p": 0.01,
        "top_k": 1,
        "presence_penalty": 1.0,
        "frequency_penalty": 0.05,
        "repetition_penalty": 1.0,
        "vllm_xargs": {"no_repeat_ngram_size": 100, "debug": False},
        "max_tokens": 5,
        "max_completion_tokens": 5,
        "skip_special_tokens": False,
        "priority": 3,
    }
    for prompt in ("Layout Detection:", "Table Recognition:", "Formula Recognition:", "Image Analysis:"):
        body = client.post(PATH, json=chat(f"\n{prompt}", **more)).json()
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["choices"][0]["message"]["content"] == "some "
    assert engine.submitted[-1].prompt == "\nImage Analysis:"
    assert engine.submitted[-1].system == "You are a helpful assistant."
    assert engine.submitted[-1].params.temperature == 0


def test_extension_fields_reach_the_engine(client: httpx.Client, engine: FakeEngine) -> None:
    client.post(PATH, json=chat(threshold=0.7, policy="factor", factor=1.5, temperature=0.4, seed=11))
    params = engine.submitted[-1].params
    assert (params.threshold, params.policy, params.factor, params.temperature, params.seed) == (
        0.7,
        "factor",
        1.5,
        0.4,
        11,
    )
    own = {f.name for f in fields(DecodingParams)} - {
        "temperature",
        "seed",
        "max_tokens",
        "stop_ids",
        "skip_after_stop",
    }
    assert set(OWN_PARAMS) == own <= set(ChatRequest.model_fields)
    values: dict[str, Any] = {
        "policy": "fixed",
        "repetition_guard": False,
        "steps": 3,
        **dict.fromkeys(("threshold", "factor"), 0.5),
    }
    values |= dict.fromkeys(("gamma", "joint"), 0.25)
    for body in (chat(**values), chat(vllm_xargs=values)):
        client.post(PATH, json=body)
        assert {name: getattr(engine.submitted[-1].params, name) for name in OWN_PARAMS} == values
    for policy in get_args(Policy):
        assert client.post(PATH, json=chat(policy=policy, steps=2)).status_code == 200
    client.post(PATH, json=chat(vllm_xargs={"threshold": 0.6, "no_repeat_ngram_size": 100}))
    assert engine.submitted[-1].params.threshold == 0.6
    client.post(PATH, json=chat(temperature=0.8, top_k=1))
    assert engine.submitted[-1].params.temperature == 0


def test_a_loop_is_length_on_the_wire(client: httpx.Client) -> None:
    choice = client.post(PATH, json=chat("loop")).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["stop_reason"] == "repetition"
    assert choice["message"]["content"] == "kept"


@pytest.mark.parametrize("stream", [False, True])
def test_stop_texts_end_the_answer(client: httpx.Client, engine: FakeEngine, stream: bool) -> None:
    response = client.post(PATH, json=chat("long", stop=["hij", "zzz"], stream=stream))
    if stream:
        parts = events(response)
        text = "".join(p["choices"][0]["delta"].get("content") or "" for p in parts)
        end = parts[-1]["choices"][0]
    else:
        end = response.json()["choices"][0]
        text = end["message"]["content"]
    assert text == "abcdefg"
    assert end["finish_reason"] == "stop"
    assert end["stop_reason"] == "hij"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"threshold": 1.5}, "threshold"),
        ({"policy": "best"}, "policy"),
        ({"policy": "fixed"}, None),
        ({"block_length": 7}, "block_length"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": "\ud800"}, "stop"),
        ({"messages": [{"role": "user", "content": "\udfff"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a\ud83d"}]}]}, "messages"),
        ({"messages": [{"role": "system", "content": "\ud800"}, {"role": "user", "content": "x"}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "read this"}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "hello"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages"),
    ],
)
def test_wrong_values_are_named(client: httpx.Client, more: dict[str, Any], param: str | None) -> None:
    content = json.dumps(chat(**more)).encode()  # httpx would refuse to write half a character
    answer = client.post(PATH, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert (error["param"] or "").split(".")[0] == (param or "")


def test_only_one_image(client: httpx.Client) -> None:
    body = chat()
    body["messages"][1]["content"] *= 2
    assert client.post(PATH, json=body).status_code == 400


def test_an_unknown_model_is_404(client: httpx.Client) -> None:
    answer = client.post(PATH, json={**chat(), "model": "gpt"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert client.get("/v1/models/gpt").status_code == 404
    assert client.get("/v1/models/m").json()["id"] == "m"


def test_exactly_one_model(client: httpx.Client) -> None:
    models = client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [m["id"] for m in models["data"]] == ["m"]
    assert models["data"][0]["mineru_diffusion"]["profile"]["block_length"] == 32


def test_the_engine_says_no_and_the_engine_breaks(client: httpx.Client, engine: FakeEngine) -> None:
    refused = client.post(PATH, json=chat("<|image_pad|>"))
    assert refused.status_code == 400
    assert "placeholders" in refused.json()["error"]["message"]
    assert client.post(PATH, json=chat("<|image_pad|>", stream=True)).status_code == 400
    assert client.post(PATH, json=chat("broken")).status_code == 500
    engine.break_next = 1
    answer = client.post(PATH, json=chat())
    assert answer.status_code == 500
    assert "device" in answer.json()["error"]["message"]
    assert client.post(PATH, json=chat()).status_code == 200
    assert client.get("/health").status_code == 200


def test_an_engine_that_keeps_failing_is_unhealthy(tmp_path: Path) -> None:
    engine = FakeEngine()
    with running(engine, tmp_path) as client:
        engine.break_next = 3
        for _ in range(3):
            assert client.post(PATH, json=chat()).status_code == 500
        answer = client.get("/health")
        assert answer.status_code == 503
        assert answer.json()["status"] == "unhealthy"
        assert client.post(PATH, json=chat()).status_code == 200
        assert client.get("/health").status_code == 200
        seen = client.head("/health")
        assert (seen.status_code, seen.content) == (200, b"")
    assert engine.closed


def test_an_odd_request_costs_the_others_nothing(tmp_path: Path) -> None:
    engine = FakeEngine(reply, pause=0.01)
    with running(engine, tmp_path) as client:
        with sent(client, PATH, chat("forever")):
            until(lambda: engine.cache_pages[0] == 1)
            answer = client.post(PATH, json=chat("odd"))
            assert answer.status_code == 500
            assert "nobody" not in answer.text
            assert engine.cache_pages[0] == 1
        until(lambda: inside(client) == 0)
        assert client.get("/health").status_code == 200


def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    engine = FakeEngine(reply)
    with running(engine, tmp_path, max_queue=2) as client:
        with held(engine, client, chat(), chat()):
            answer = client.post(PATH, json=chat())
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["type"] == "rate_limit_error"
        assert client.post(PATH, json=chat()).status_code == 200


def test_images_in_the_queue_are_bounded(tmp_path: Path) -> None:
    engine = FakeEngine(reply)
    with running(engine, tmp_path, max_queue_pixels=3000) as client:
        with held(engine, client, chat()):
            assert client.post(PATH, json=chat()).status_code == 429
        assert client.post(PATH, json=chat()).status_code == 200


def test_lower_priorities_go_first(tmp_path: Path) -> None:
    engine = FakeEngine(reply, max_rows=1)
    with running(engine, tmp_path) as client:
        bodies = [chat(str(i), priority=priority) for i, priority in enumerate([0, 0, 0, 5, -1, 0])]
        with held(engine, client, *bodies):
            pass
    # Two are in the engine's window, or one if the first pass began before the second came.
    order = [int(request.prompt or "") for request in engine.submitted]
    assert [i for i in order if i > 1] == [4, 2, 5, 3]


@pytest.mark.parametrize("stream", [False, True])
def test_time_is_limited(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine(reply, pause=0.01)
    with running(engine, tmp_path, request_timeout=0.4) as client:
        response = client.post(PATH, json=chat("forever", stream=stream))
        end = events(response)[-1]["choices"][0] if stream else response.json()["choices"][0]
        assert end["finish_reason"] == "length"
        assert end["stop_reason"] == "time_limit"
        until(lambda: engine.cache_pages[0] == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_pages(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine(reply, pause=0.005)
    with running(engine, tmp_path) as client:
        with sent(client, PATH, chat("forever", stream=stream)) as connection:
            until(lambda: engine.cache_pages[0] == 1)
            if stream:
                assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        until(lambda: engine.cache_pages[0] == 0)
        until(lambda: inside(client) == 0)
        until(lambda: "engine_cancelled_total 1.0" in client.get("/metrics").text)  # counted a moment later


def test_a_line_reader_answers_a_table_with_its_columns(tmp_path: Path) -> None:
    profile = CheckpointProfile(
        tasks=("text",), text_unit="line", line_height=32, prompts={"text": "\nText Recognition:"}
    )
    picture = Image.new("RGB", (640, 150), "white")
    for row in range(3):
        for left in (20, 260, 460):
            ImageDraw.Draw(picture).text((left, 20 + 40 * row), "178", fill="black", font=ImageFont.load_default(22))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    with running(FakeEngine(lambda request: "178", profile), tmp_path) as client:
        body = chat("\nTable Recognition:", data_uri(buffer.getvalue()))
        answer = client.post(PATH, json=body).json()["choices"][0]
    table = parse_otsl(answer["message"]["content"])
    assert table is not None
    assert (table.n_rows, table.n_cols) == (3, 3)
    assert {cell.text for cell in table.cells} == {"178"}
    assert any("rows and columns" in note for note in answer["mineru_diffusion"]["notes"])


def test_a_line_reader_gets_lines_and_layouts(tmp_path: Path) -> None:
    profile = CheckpointProfile(
        tasks=("text",), text_unit="line", line_height=32, prompts={"text": "\nText Recognition:"}
    )
    engine = FakeEngine(lambda request: "line", profile)
    page = Path(__file__).parents[2] / "examples" / "scan.png"
    uri = data_uri(page.read_bytes())
    with running(engine, tmp_path) as client:
        choice = client.post(PATH, json=chat(url=uri)).json()["choices"][0]
        assert len(engine.submitted) > 10
        assert choice["message"]["content"].count("line") > 10
        layout = client.post(PATH, json=chat("\nLayout Detection:", uri)).json()["choices"][0]
        assert layout["message"]["content"].startswith("<|box_start|>")
        assert layout["finish_reason"] == "stop"
        assert "no layout task" in layout["mineru_diffusion"]["notes"][0]
        blank = client.post(PATH, json=chat(url=data_uri(png(200, 80)))).json()["choices"][0]
        assert blank["message"]["content"] == ""
        picture = client.post(PATH, json=chat("\nImage Analysis:", uri)).json()["choices"][0]
        assert (picture["message"]["content"], picture["finish_reason"]) == ("", "stop")
        before = len(engine.submitted)
        client.post(PATH, json=chat(url=uri, as_is=True))
        assert len(engine.submitted) == before + 1
        table = client.post(PATH, json=chat("\nTable Recognition:", uri)).json()["choices"][0]
        grid = parse_otsl(table["message"]["content"])
        assert grid is not None
        assert {cell.text.split()[0] for cell in grid.cells} == {"line"}
        for limit in (1, 9, 30):  # a line has four tokens
            for answer in (client.post(PATH, json=chat(url=uri, max_tokens=limit)).json(),):
                assert answer["usage"]["completion_tokens"] == limit
                assert answer["choices"][0]["finish_reason"] == "length"
        assert client.post(PATH, json=chat(url=uri, max_tokens=9)).json()["choices"][0]["message"][
            "content"
        ].split() == ["line", "line", "l"]


def test_numbers_for_prometheus(client: httpx.Client) -> None:
    client.post(PATH, json=chat())
    text = client.get("/metrics").text
    assert 'mineru_diffusion_requests_total{route="/v1/chat/completions",status="200"}' in text
    assert f"mineru_diffusion_cache_pages {64.0}" in text
    assert "mineru_diffusion_cache_pages_used 0.0" in text
