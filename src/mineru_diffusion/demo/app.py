"""The page: components and what they call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from mineru_diffusion.demo.handlers import PAGE, REGION, Handlers
from mineru_diffusion.demo.page_view import EMPTY
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.serving.settings import MIB

FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "DejaVu Sans Mono", "Consolas", "monospace")
ENGINE = "engine"
"""Everything that uses the engine waits in one queue."""

PICK = """
element.addEventListener("click", (event) => {
  const region = event.target.closest("[data-region]");
  if (region) trigger("select", { region: region.dataset.region });
});
"""
MARK = "(key) => { requestAnimationFrame(() => window.mineruMark && window.mineruMark(key)); }"
_STATIC = Path(__file__).parent / "static"


def head() -> str:
    """What goes into the page's head: the replay's script."""
    return f"<script>{(_STATIC / 'replay.js').read_text(encoding='utf-8')}</script>"


def css() -> str:
    """The page's own styles."""
    return (_STATIC / "demo.css").read_text(encoding="utf-8")


def theme() -> gr.themes.Base:
    """Fonts that the visitor's machine has: nothing is fetched from anywhere."""
    made = gr.themes.Soft(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO)
    return made.set(
        # Soft's own, which `set` turns to white: fields and buttons, which are white, should stand out from the page.
        background_fill_primary="*neutral_50",
        block_title_background_fill="transparent",
        block_title_background_fill_dark="transparent",
        block_title_text_color="*body_text_color",
        block_title_text_color_dark="*body_text_color",
        block_title_padding="0",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_text_color="*body_text_color",
        block_label_text_color_dark="*body_text_color",
    )


def build(handlers: Handlers, settings: DemoSettings, threshold: float) -> gr.Blocks:
    """The page.

    Args:
        handlers: what its components call.
        settings: limits, and the examples.
        threshold: where the slider stands at first.
    """
    with gr.Blocks(title="MinerU-Diffusion", analytics_enabled=False, delete_cache=(600, 3600)) as blocks:
        token = gr.State(None, delete_callback=handlers.forget)
        gr.HTML(
            '<div class="md-head"><h1>MinerU-Diffusion</h1><p>Reads documents by block-wise masked diffusion: many '
            "tokens a pass, the sure ones first. Pick a region and watch how it was read.</p></div>"
        )
        with gr.Row():
            with gr.Column(scale=4, min_width=320):
                upload = gr.File(
                    label=f"PDF or image, up to {settings.max_upload_bytes // MIB} MiB",
                    height=120,
                    elem_id="md-upload",
                )
                with gr.Row():
                    examples = [
                        gr.Button(f"Example: {path.name}", size="sm", elem_id=f"md-example-{path.stem}")
                        for path in settings.examples
                    ]
                with gr.Accordion("Protected document?", open=False), gr.Row():
                    password = gr.Textbox(label="Password", type="password", elem_id="md-password", scale=3)
                    unlock = gr.Button("Open", elem_id="md-unlock", scale=1)
                with gr.Row(elem_id="md-pages"):
                    number = gr.Dropdown(
                        [1], value=1, label="Page", interactive=False, elem_id="md-number", min_width=120
                    )
                    all_pages = gr.Button("Read all pages", elem_id="md-all", size="sm", min_width=120)
                status = gr.HTML(elem_id="md-status")
                view = gr.HTML(EMPTY, js_on_load=PICK, elem_id="md-view")
            with gr.Column(scale=6, min_width=320):
                region = gr.Dropdown(
                    [], label="Region", info="Or click it on the page.", interactive=False, elem_id="md-region"
                )
                slider = gr.Slider(
                    0.3,
                    1.0,
                    value=threshold,
                    step=0.01,
                    label="Threshold",
                    info="A step keeps what it is surer of than this. Lower is faster, higher is more careful.",
                    elem_id="md-threshold",
                )
                with gr.Tabs():
                    with gr.Tab("Replay"):
                        crop = gr.HTML(elem_id="md-crop")
                        replay = gr.HTML(elem_id="md-replay")
                        replay_again = gr.Button("Read it again at this threshold", size="sm", elem_id="md-race")
                    with gr.Tab("Accuracy and speed"):
                        scope = gr.Radio([REGION, PAGE], value=REGION, label="Read again", elem_id="md-scope")
                        with gr.Row():
                            again = gr.Button("At this threshold", variant="primary", elem_id="md-again")
                            many = gr.Button("At many thresholds", elem_id="md-sweep")
                        trials = gr.HTML(elem_id="md-trials")
                        difference = gr.HTML(elem_id="md-difference")
                    with gr.Tab("Document"):
                        rendered = gr.HTML(elem_id="md-rendered")
                    with gr.Tab("Markdown"):
                        markdown = gr.Code(
                            language="markdown", label="Markdown", wrap_lines=True, max_lines=30, elem_id="md-markdown"
                        )
                    with gr.Tab("JSON"):
                        json = gr.Code(language="json", label="JSON", max_lines=30, elem_id="md-json")
                    with gr.Tab("Downloads"):
                        files = gr.HTML(elem_id="md-downloads")

        texts: list[Any] = [rendered, markdown, json, files]
        opened: list[Any] = [status, token, number, view, region, *texts]
        slow: dict[str, Any] = {"concurrency_id": ENGINE, "concurrency_limit": 1, "api_visibility": "private"}

        # Gradio finds the progress bar by the default value of a parameter.
        def on_upload(file: str | None, word: str, key: str | None, bar: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
            return handlers.open_upload(file, word, key, bar)

        def on_unlock(word: str, key: str | None, bar: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
            return handlers.open_again(word, key, bar)

        def on_page(page: int | None, key: str | None, bar: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
            return handlers.turn_to(page, key, bar)

        def on_all(key: str | None, page: int | None, bar: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
            return handlers.read_all(key, page, bar)

        def on_sweep(
            at: float,
            what: str,
            chosen: str | None,
            key: str | None,
            bar: gr.Progress = gr.Progress(),  # noqa: B008
        ) -> list[Any]:
            return handlers.sweep(at, what, chosen, key, bar)

        upload.upload(on_upload, [upload, password, token], opened, show_progress_on=[status], **slow)
        gr.on([unlock.click, password.submit], on_unlock, [password, token], opened, show_progress_on=[status], **slow)
        for button, path in zip(examples, settings.examples, strict=True):
            button.click(_example(handlers, path), [token], opened, show_progress_on=[status], **slow)
        number.input(on_page, [number, token], opened, show_progress_on=[status], **slow)
        all_pages.click(on_all, [token, number], [status, *texts], show_progress_on=[status], **slow)

        def picked(event: gr.EventData) -> str:
            return str(event.region)

        view.select(picked, None, region, queue=False, api_visibility="private")
        chosen: list[Any] = [region, slider, token]
        shown: list[Any] = [crop, replay]
        tried: list[Any] = [trials, difference]
        given: list[Any] = [slider, scope, region, token]
        region.change(None, region, None, js=MARK)
        region.change(lambda: ("", ""), None, tried, queue=False, api_visibility="private")
        region.change(handlers.replay, chosen, shown, show_progress_on=[replay], trigger_mode="always_last", **slow)
        replay_again.click(handlers.replay, chosen, shown, show_progress_on=[replay], **slow)
        slider.release(handlers.replay, chosen, shown, show_progress_on=[replay], **slow).then(
            handlers.try_one, given, tried, show_progress_on=[trials], **slow
        )
        again.click(handlers.try_one, given, tried, show_progress_on=[trials], **slow)
        many.click(on_sweep, given, tried, show_progress_on=[trials], **slow)
    return blocks.queue(max_size=settings.max_queue, api_open=False)


def _example(handlers: Handlers, path: Path) -> Any:
    def on_example(key: str | None, bar: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
        return handlers.open_example(path, key, bar)

    return on_example
