"""The pipeline with a fake engine: order, batching, fallbacks, failures, bounded memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from parsing_fakes import LINE_PROFILE, REGION_PROFILE, FakeEngine, FixedDetector, draw_lines, save_pdf
from PIL import Image

from mineru_diffusion.document.source_types import PageImage, Source
from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.errors import SourceError, UsageError
from mineru_diffusion.parsing import ParseOptions, Pipeline, parse, parse_many, prepare
from mineru_diffusion.parsing.page_steps import PreparedPage
from mineru_diffusion.parsing.pipeline import Outcome

TOP = Region("text", (0.0, 0.0, 1.0, 0.5), source={"layout": "fixed"})
BOTTOM = Region("text", (0.0, 0.5, 1.0, 1.0), source={"layout": "fixed"})


def page(*texts: str) -> Image.Image:
    """A page with lines in its upper half and nothing below."""
    image = Image.new("RGB", (900, 500), "white")
    image.paste(draw_lines(texts or ("some words", "more words")), (0, 0))
    return image


def by_width(request: Request) -> str:
    assert request.image is not None
    return f"w{request.image.width}"


def run(
    tmp_path: Path, engine: FakeEngine, *regions: Region, pages: int = 1, options: ParseOptions | None = None
) -> Outcome:
    path = save_pdf(tmp_path / "a.pdf", [page() for _ in range(pages)])
    (outcome,) = Pipeline(engine, FixedDetector(*regions), options).run([path])
    return outcome


def test_lines_are_fitted_read_and_joined(tmp_path: Path) -> None:
    engine = FakeEngine(by_width)
    outcome = run(tmp_path, engine, TOP)
    assert outcome.document is not None
    (region,) = outcome.document.pages[0].regions
    widths = [r.image.width for r in engine.requests if r.image]
    assert len(widths) == 2
    assert all(r.image is not None and r.image.height == 32 and r.image.width % 32 == 0 for r in engine.requests)
    assert region.content == f"w{widths[0]} w{widths[1]}"
    assert region.confidence == pytest.approx(0.9)
    assert region.finish_reason == "stop"
    assert region.source == {"layout": "fixed", "content": "model"}
    assert len(region.lines) == 2
    for x0, y0, x1, y1 in region.lines:
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 0.5


def test_blank_regions_are_never_asked_for(tmp_path: Path) -> None:
    engine = FakeEngine()
    outcome = run(tmp_path, engine, BOTTOM)
    assert engine.requests == []
    assert outcome.document is not None
    assert outcome.document.pages[0].regions == ()
    assert not outcome.failed


@pytest.mark.parametrize("kind", ["table", "equation"])
def test_missing_tasks_fall_back_to_lines_and_say_so(tmp_path: Path, kind: str) -> None:
    engine = FakeEngine(by_width)
    outcome = run(tmp_path, engine, Region(kind, TOP.bbox, source={"layout": "fixed"}))
    assert outcome.document is not None
    (region,) = outcome.document.pages[0].regions
    assert {r.task for r in engine.requests} == {"text"}
    assert region.kind == ("table" if kind == "table" else "text")
    assert region.content.count("\n") == 1
    assert region.source["kind"] == kind
    assert any("no" in w and "task" in w for w in region.warnings)
    assert outcome.counters.fallbacks == 1


def test_pictures_are_not_read(tmp_path: Path) -> None:
    engine = FakeEngine()
    outcome = run(tmp_path, engine, Region("image", TOP.bbox))
    assert engine.requests == []
    assert outcome.document is not None
    assert outcome.document.pages[0].regions[0].source["content"] == "picture"


def test_whole_regions_go_to_their_tasks(tmp_path: Path) -> None:
    answers = {"text": " prose ", "table": "<fcel>a<fcel>b<nl>", "formula": r"\[ x_1 \]"}
    engine = FakeEngine(lambda r: answers[r.task], REGION_PROFILE)
    kinds = ["text", "table", "equation"]
    outcome = run(tmp_path, engine, *[Region(k, TOP.bbox) for k in kinds])
    assert outcome.document is not None
    regions = outcome.document.pages[0].regions
    assert [r.task for r in engine.requests] == ["text", "table", "formula"]
    assert regions[0].content == "prose"
    assert regions[1].content.startswith("<table>")
    assert regions[2].content == "x_1"
    assert [r.order for r in regions] == [0, 1, 2]


def test_an_answer_without_a_table_is_kept_as_text(tmp_path: Path) -> None:
    outcome = run(tmp_path, FakeEngine(lambda r: "just words", REGION_PROFILE), Region("table", TOP.bbox))
    assert outcome.document is not None
    (region,) = outcome.document.pages[0].regions
    assert "just words" in region.content
    assert region.warnings


def test_confidence_is_weighted_by_tokens_and_the_worst_line_counts(tmp_path: Path) -> None:
    answers = iter(
        [Result("short", (1,), (0.5,), (1,), 1, "length"), Result("x y z", (1, 2, 3), (0.9,) * 3, (1,) * 3, 1)]
    )
    outcome = run(tmp_path, FakeEngine(lambda r: next(answers)), TOP)
    assert outcome.document is not None
    (region,) = outcome.document.pages[0].regions
    assert region.confidence == pytest.approx(0.8)
    assert region.finish_reason == "length"
    assert "1 of 2 lines" in region.warnings[0]
    assert outcome.counters.tokens_per_pass == pytest.approx(2.0)


def test_crops_of_several_pages_and_files_are_in_the_engine_together(tmp_path: Path) -> None:
    paths = [save_pdf(tmp_path / f"{i}.pdf", [page()] * 2) for i in range(3)]
    engine = FakeEngine()
    outcomes = list(Pipeline(engine, FixedDetector(TOP)).run(paths))
    assert [o.path for o in outcomes] == paths
    assert engine.most_queued >= 4
    assert all(o.document is not None and len(o.document.pages) == 2 for o in outcomes)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_more_pages_than_the_window_are_in_flight(
    tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered, finished, most = 0, 0, 0
    lock = threading.Lock()
    original = prepare.render

    def counted(source: Source, index: int) -> PreparedPage:
        nonlocal rendered, most
        with lock:
            rendered += 1
            most = max(most, rendered - finished)
        return original(source, index)

    def hook(path: Path, done: Page, image: Image.Image) -> Page:
        nonlocal finished
        with lock:
            finished += 1
        return done

    monkeypatch.setattr(prepare, "render", counted)
    path = save_pdf(tmp_path / "long.pdf", [page()] * 20)
    pipeline = Pipeline(FakeEngine(), FixedDetector(TOP), ParseOptions(window=window), on_page=hook)
    (outcome,) = pipeline.run([path])
    assert outcome.document is not None
    assert [p.index for p in outcome.document.pages] == list(range(20))
    # As many prepared as in flight, and the one in the making.
    assert most <= 2 * window + 1


def test_one_bad_page_does_not_take_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mineru_diffusion.document.pdf_source import PdfSource

    original = PdfSource.page

    def broken(self: PdfSource, index: int) -> PageImage:
        if index == 1:
            raise SourceError(self.path, "damaged", page=index + 1)
        return original(self, index)

    monkeypatch.setattr(PdfSource, "page", broken)
    outcome = run(tmp_path, FakeEngine(), TOP, pages=3)
    assert outcome.document is not None
    assert outcome.failed
    assert [bool(p.error) for p in outcome.document.pages] == [False, True, False]
    assert "damaged" in outcome.document.pages[1].error
    assert outcome.counters.failed_pages == 1
    assert any(w.startswith("page 2:") for w in outcome.document.warnings)


def test_a_failing_layout_fails_its_page_only(tmp_path: Path) -> None:
    class Moody(FixedDetector):
        calls = 0

        def detect(self, images):  # type: ignore[no-untyped-def]
            self.calls += 1
            if self.calls == 2:
                raise ValueError("no idea")
            return super().detect(images)

    path = save_pdf(tmp_path / "a.pdf", [page()] * 3)
    (outcome,) = Pipeline(FakeEngine(), Moody(TOP)).run([path])
    assert outcome.document is not None
    assert [bool(p.error) for p in outcome.document.pages] == [False, True, False]
    assert "no idea" in outcome.document.pages[1].error


def test_a_failing_crop_marks_its_region_only(tmp_path: Path) -> None:
    answers = iter([Result("", finish_reason="error", error="too large"), Result("fine", (1,), (0.9,), (1,), 1)])
    outcome = run(tmp_path, FakeEngine(lambda r: next(answers)), TOP)
    assert outcome.document is not None
    (region,) = outcome.document.pages[0].regions
    assert region.content == "fine"
    assert region.finish_reason == "error"
    assert "too large" in region.warnings[0]


def test_a_broken_engine_marks_what_was_in_flight_and_goes_on(tmp_path: Path) -> None:
    engine = FakeEngine(break_after=3)
    outcome = run(tmp_path, engine, TOP, pages=4, options=ParseOptions(window=2))
    assert outcome.document is not None
    reasons = [r.finish_reason for p in outcome.document.pages for r in p.regions]
    assert len(outcome.document.pages) == 4
    assert "error" in reasons
    assert "stop" in reasons


def test_one_bad_file_of_three(tmp_path: Path) -> None:
    good = save_pdf(tmp_path / "good.pdf", [page()])
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(good.read_bytes()[:500])
    last = save_pdf(tmp_path / "last.pdf", [page()])
    outcomes = list(Pipeline(FakeEngine(), FixedDetector(TOP)).run([good, bad, last]))
    assert [o.path for o in outcomes] == [good, bad, last]
    assert [o.error is None for o in outcomes] == [True, False, True]
    assert isinstance(outcomes[1].error, SourceError)


def test_closing_the_iterator_takes_the_crops_back(tmp_path: Path) -> None:
    paths = [save_pdf(tmp_path / f"{i}.pdf", [page()] * 3) for i in range(4)]
    engine = FakeEngine()
    outcomes = Pipeline(engine, FixedDetector(TOP), ParseOptions(window=4)).run(paths)
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert engine._queue == []
    assert not any(t.name.startswith("pages") for t in threading.enumerate())


def test_a_detector_that_uses_the_engine_gets_many_pages_at_once(tmp_path: Path) -> None:
    sizes: list[int] = []
    threads: set[str] = set()

    class Asking(FixedDetector):
        uses_engine = True

        def detect(self, images):  # type: ignore[no-untyped-def]
            sizes.append(len(images))
            threads.add(threading.current_thread().name)
            return super().detect(images)

    path = save_pdf(tmp_path / "a.pdf", [page()] * 6)
    (outcome,) = Pipeline(FakeEngine(profile=REGION_PROFILE), Asking(TOP), ParseOptions(window=3)).run([path])
    assert outcome.document is not None
    assert len(outcome.document.pages) == 6
    assert max(sizes) >= 2
    assert threads == {threading.current_thread().name}


def test_heading_levels_run_over_all_pages(tmp_path: Path) -> None:
    first = Image.new("RGB", (900, 500), "white")
    first.paste(draw_lines(["The Title"], size=48, pitch=60), (0, 0))
    second = Image.new("RGB", (900, 500), "white")
    second.paste(draw_lines(["A Section"], size=24), (0, 0))
    path = save_pdf(tmp_path / "a.pdf", [first, second])
    title = Region("title", TOP.bbox)
    for profile in (LINE_PROFILE, REGION_PROFILE):
        (outcome,) = Pipeline(FakeEngine(profile=profile), FixedDetector(title)).run([path])
        assert outcome.document is not None
        assert [r.level for p in outcome.document.pages for r in p.regions] == [1, 2]


def test_page_numbers_and_captions_are_told_by_their_text(tmp_path: Path) -> None:
    texts = {"footer": "- 12 -", "text": "Figure 3: A tower."}
    for kind, text in texts.items():
        outcome = run(tmp_path, FakeEngine(lambda r, t=text: t, REGION_PROFILE), Region(kind, TOP.bbox))  # type: ignore[misc]
        assert outcome.document is not None
        assert outcome.document.pages[0].regions[0].kind == {"footer": "page_number", "text": "image_caption"}[kind]


def test_parse_gives_a_document_or_raises(tmp_path: Path) -> None:
    path = save_pdf(tmp_path / "a.pdf", [page()] * 3)
    engine = FakeEngine()
    document = parse(path, engine=engine, detector=FixedDetector(TOP), pages="2-3")
    assert [p.index for p in document.pages] == [1, 2]
    assert "text" in document.to_markdown()
    assert not engine.closed
    with pytest.raises(UsageError, match="3 page"):
        parse(path, engine=engine, detector=FixedDetector(TOP), pages="99")
    with pytest.raises(SourceError, match="no such file"):
        parse(tmp_path / "none.pdf", engine=engine)
    for wrong in ({"threshold": 2.0}, {"policy": "best"}, {"dpi": 0}, {"max_tokens": 0}):
        with pytest.raises(UsageError):
            parse(path, engine=engine, **wrong)  # type: ignore[arg-type]


def test_parse_many_looks_into_folders(tmp_path: Path) -> None:
    for name in ("b.pdf", "a.pdf"):
        save_pdf(tmp_path / name, [page()])
    outcomes = list(parse_many([tmp_path], engine=FakeEngine(), detector=FixedDetector(TOP)))
    assert [o.path.name for o in outcomes] == ["a.pdf", "b.pdf"]


def test_decoding_options_reach_every_request(tmp_path: Path) -> None:
    engine = FakeEngine(profile=CheckpointProfile(tasks=("text",)))
    path = save_pdf(tmp_path / "a.pdf", [page()])
    parse(path, engine=engine, detector=FixedDetector(TOP), threshold=0.7, policy="threshold", max_tokens=9)
    params = engine.requests[0].params
    assert (params.threshold, params.policy, params.max_tokens) == (0.7, "threshold", 9)


def test_lines_are_padded_to_whole_visual_tokens_where_their_size_is_known(tmp_path: Path) -> None:
    engine = FakeEngine(by_width, replace(LINE_PROFILE, image_factor=16))
    path = save_pdf(tmp_path / "a.pdf", [page("one line of text", "and another", "or a third one", "or", "four")])
    parse(path, engine=engine, detector=FixedDetector(TOP))
    widths = [request.image.width for request in engine.requests if request.image is not None]
    assert widths
    assert all(width % 16 == 0 for width in widths)
    assert any(width % 32 for width in widths)
