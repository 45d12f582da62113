"""What happens when something on the page is used. In: values of components. Out: values of components.

Errors become a line on the page. Each method's outputs are listed in `app.build`, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from mineru_diffusion.demo.accuracy import character_accuracy, difference_html
from mineru_diffusion.demo.downloads import KINDS, html_of
from mineru_diffusion.demo.errors import said
from mineru_diffusion.demo.markup import data_uri, json_attribute, message, safe
from mineru_diffusion.demo.page_view import EMPTY, first_choice, page_html, region_choices, region_label
from mineru_diffusion.demo.pages import open_document, read_page
from mineru_diffusion.demo.plans import RegionPlan
from mineru_diffusion.demo.readers import Readers
from mineru_diffusion.demo.sessions import Session, Sessions
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.demo.trials import reference_text, try_threshold
from mineru_diffusion.demo.trials_view import trials_html
from mineru_diffusion.document.document_json import document_to_json
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.types import Page

REGION, PAGE = "this region", "whole page"
SWEEP = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_LONGEST_JSON = 300_000


class PageProgress:
    """Tells the page how reading goes; a `parsing.progress.Progress`."""

    def __init__(self, bar: gr.Progress, said: str) -> None:
        self._bar, self._said = bar, said

    def document_opened(self, path: Path, pages: int) -> None:
        self._bar(0.05, desc=f"{self._said}: looking for regions")

    def page_finished(self, path: Path, page: Page) -> None:
        self._bar(1.0, desc=self._said)

    def crops(self, submitted: int, finished: int) -> None:
        self._bar(0.1 + 0.9 * finished / max(1, submitted), desc=f"{self._said}: {finished} of {submitted} pieces read")


class Handlers:
    """The demo's functions.

    Args:
        readers: shared by all visitors.
        sessions: what each of them has open.
        settings: limits.
    """

    def __init__(self, readers: Readers, sessions: Sessions, settings: DemoSettings) -> None:
        self._readers, self._sessions, self._settings = readers, sessions, settings

    def forget(self, token: str | None) -> None:
        """A visitor left."""
        self._sessions.close(token)

    def open_upload(self, upload: str | None, password: str, token: str | None, progress: gr.Progress) -> list[Any]:
        """A file was chosen."""
        if not upload:
            return self._nothing("")
        path = Path(upload)
        return self._open(path, path.name, password, token, progress, keep=False)

    def open_again(self, password: str, token: str | None, progress: gr.Progress) -> list[Any]:
        """A password was typed: the document that is there already, opened with it."""
        try:
            session = self._sessions.get(token)
            session.password = password or None
            session.pages.clear()
            open_document(session, self._settings)
            return self._read(session, 0, progress)
        except Exception as error:
            return self._nothing(said(error), token)

    def open_example(self, path: Path, token: str | None, progress: gr.Progress) -> list[Any]:
        """An example was picked."""
        return self._open(path, path.name, "", token, progress, keep=True)

    def _open(
        self, path: Path, name: str, password: str, token: str | None, progress: gr.Progress, *, keep: bool
    ) -> list[Any]:
        self._sessions.close(token)
        session = self._sessions.open(path, name, keep=keep)
        session.password = password or None
        try:
            progress(0, desc=f"opening {session.name}")
            open_document(session, self._settings)
            return self._read(session, 0, progress)
        except Exception as error:
            return self._nothing(said(error), session.token)

    def turn_to(self, number: int | None, token: str | None, progress: gr.Progress) -> list[Any]:
        """A page was chosen, by its number from 1."""
        try:
            return self._read(self._sessions.get(token), int(number or 1) - 1, progress)
        except Exception as error:
            return [message(said(error), "error"), *(gr.skip() for _ in range(8))]

    def read_all(self, token: str | None, number: int | None, progress: gr.Progress) -> list[Any]:
        """All pages, one after the other; the shown one stays."""
        try:
            session = self._sessions.get(token)
            for index in range(session.page_count):
                told = PageProgress(progress, f"page {index + 1} of {session.page_count}")
                read_page(session, index, self._readers, self._settings, progress=told)
            return [message(f"All {session.page_count} pages were read."), *self._texts(session, int(number or 1) - 1)]
        except Exception as error:
            return [message(said(error), "error"), gr.skip(), gr.skip(), gr.skip(), gr.skip()]

    def _read(self, session: Session, index: int, progress: gr.Progress) -> list[Any]:
        """Outputs: message, token, page number, page view, region list, rendered, Markdown, JSON, files."""
        told = PageProgress(progress, f"page {index + 1}")
        reading = read_page(session, index, self._readers, self._settings, progress=told)
        regions = reading.page.regions
        parts = [f"{session.name}, page {index + 1} of {session.page_count}: {len(regions)} regions."]
        parts += [f"Note: {note}." for note in session.notes]
        return [
            message(" ".join(parts)),
            session.token,
            gr.update(
                choices=list(range(1, session.page_count + 1)), value=index + 1, interactive=session.page_count > 1
            ),
            page_html(session, index),
            gr.update(
                choices=region_choices(session, index), value=first_choice(session, index), interactive=bool(regions)
            ),
            *self._texts(session, index),
        ]

    def _texts(self, session: Session, index: int) -> list[Any]:
        """Outputs: rendered, Markdown, JSON, files."""
        document = session.document()
        text = document_to_json(document)
        if len(text) > _LONGEST_JSON:
            text = text[:_LONGEST_JSON] + "\n… the rest is in the download"
        html = html_of(session)
        return [
            f'<iframe class="md-paper" sandbox="" title="The document as it was read" srcdoc="{safe(html)}"></iframe>',
            document_to_markdown(document),
            text,
            self._files(session),
        ]

    def _files(self, session: Session) -> str:
        links = "".join(
            f'<a href="download/{session.token}/{kind}" download>{label}</a>' for kind, (label, _, _) in KINDS.items()
        )
        read = ", ".join(str(index + 1) for index in sorted(session.pages))
        return f'<div class="md-files">{links}</div><p class="dr-small">Pages read so far: {read}.</p>'

    def _nothing(self, problem: str, token: str | None = None) -> list[Any]:
        """Outputs of `_read` when there is nothing to show."""
        empty = gr.update(choices=[], value=None, interactive=False)
        number = gr.update(choices=[1], value=1, interactive=False)
        return [message(problem, "error"), token, number, EMPTY, empty, "", "", "", ""]

    def replay(self, key: str | None, threshold: float, token: str | None) -> list[Any]:
        """A region or a threshold was chosen. Outputs: the region's crop, the replay."""
        if not key:
            return ["", ""]
        try:
            session = self._sessions.get(token)
            _, plan = session.plan_of(key)
            data = self._readers.replay(plan, self._readers.race(plan, threshold, self._settings.rounds))
            label = region_label(plan.region)
            crop = (
                f'<figure class="md-crop"><img src="{data_uri(plan.picture, "image/jpeg")}" '
                f'alt="Crop of region {safe(label)}"></figure>'
            )
            return [crop, f'<denoising-replay data-replay="{json_attribute(data)}"></denoising-replay>']
        except Exception as error:
            return ["", message(said(error), "error")]

    def try_one(self, threshold: float, scope: str, key: str | None, token: str | None) -> list[Any]:
        """The threshold was moved. Outputs: table and drawing, differences."""
        return self._try((threshold,), scope, key, token, None)

    def sweep(
        self, threshold: float, scope: str, key: str | None, token: str | None, progress: gr.Progress
    ) -> list[Any]:
        """Many thresholds, the chosen one last."""
        return self._try((*(t for t in SWEEP if t != threshold), threshold), scope, key, token, progress)

    def _try(
        self, thresholds: Sequence[float], scope: str, key: str | None, token: str | None, progress: gr.Progress | None
    ) -> list[Any]:
        try:
            session = self._sessions.get(token)
            index, plan = session.plan_of(key)
            plans = [plan] if scope == REGION else list(session.pages[index].plans.values())
            name = f"{key}" if scope == REGION else f"page {index}"
            reference, what = reference_text(session, name, plans, self._readers)
            text = ""
            for at, threshold in enumerate(thresholds):
                if progress is not None:
                    progress(at / len(thresholds), desc=f"reading at {threshold:.2f}")
                _, text = try_threshold(session, name, plans, self._readers, round(threshold, 3), reference)
            trials = [trial for _, trial in sorted(session.trials[name].items())]
            return [trials_html(trials, round(thresholds[-1], 3), what), self._difference(text, reference, what, plans)]
        except Exception as error:
            return [message(said(error), "error"), ""]

    def _difference(self, text: str, reference: str, what: str, plans: Sequence[RegionPlan]) -> str:
        accuracy = character_accuracy(text, reference)
        if accuracy is None:
            return message("There is nothing to compare with.")
        lines = sum(len(plan.requests) for plan in plans)
        said_so = f"{accuracy:.1%} of the characters agree with {what} ({lines} crops)."
        legend = "<del>only there</del> <ins>only in this reading</ins>"
        return (
            f'<p class="dr-small">{safe(said_so)} {legend}</p><p class="md-diff">{difference_html(text, reference)}</p>'
        )
