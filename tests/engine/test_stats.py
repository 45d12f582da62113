"""The counters add up, and a trace can be written."""

from __future__ import annotations

import json
from pathlib import Path

from mineru_diffusion.engine import LocalEngine, Request
from mineru_diffusion.engine.profiling import chrome_trace
from tests.engine.test_engine import CROPS, SHORT
from tests.tiny import random_checkpoint


def test_counters_add_up() -> None:
    with LocalEngine(random_checkpoint()) as engine:
        results = engine.generate([Request(image, params=SHORT) for image in CROPS])
        stats = engine.stats()
    assert stats.requests == stats.images == len(CROPS)
    assert stats.tokens == sum(len(result.tokens) for result in results)
    assert stats.sequences == sum(result.nfe for result in results)
    assert stats.prompt_positions == sum(result.prompt_tokens for result in results)
    assert stats.decided >= stats.tokens
    denoised = stats.positions - stats.prompt_positions - stats.commit_positions
    assert 0 < stats.asked <= denoised
    assert 0 < stats.occupancy <= 1
    assert 0 < stats.peak_pages <= stats.pages
    assert set(stats.seconds) == {"prepare", "vision", "plan", "forward", "head", "decide"}
    assert stats.prefill_seconds + stats.denoise_seconds == stats.seconds["forward"]
    assert f"{stats.tokens} tokens" in stats.lines()[0]
    assert stats.since(stats).passes == 0


def test_a_trace_shows_the_phases(tmp_path: Path) -> None:
    with LocalEngine(random_checkpoint()) as engine, chrome_trace(tmp_path / "new" / "trace.json"):
        engine.generate([Request(CROPS[0], params=SHORT)])
    events = json.loads((tmp_path / "new" / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {"vision", "forward", "head", "decide"} <= {event.get("name") for event in events}
