"""What a visitor has open: one document, its pages that were read, and a folder that goes when the visitor does."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mineru_diffusion.demo.errors import Refused
from mineru_diffusion.demo.plans import RegionPlan
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.document.names import safe_stem
from mineru_diffusion.document.types import Document, Page


@dataclass(frozen=True)
class PageReading:
    """A page that was read.

    Attributes:
        page: its regions.
        picture: the page as JPEG, for the browser.
        plans: of the regions that can be read again, by `Region.order`.
    """

    page: Page
    picture: bytes
    plans: Mapping[int, RegionPlan]

    @property
    def has_truth(self) -> bool:
        """The document itself says what stands here."""
        return any(plan.truth.strip() for plan in self.plans.values())


@dataclass(frozen=True)
class Trial:
    """One decoding at a threshold. `accuracy` is against the reference that the trial was made with, or None."""

    threshold: float
    passes: int
    tokens: int
    seconds: float
    tokens_per_step: float
    accuracy: float | None


@dataclass
class Session:
    """One document of one visitor.

    Attributes:
        token: what the browser knows it by; unguessable.
        folder: of its files; nobody else's are in there.
        path: the document.
        page_count: pages that can be chosen.
        notes: what a careful reader should know, such as that there are more pages.
        password: of an encrypted document.
        pages: by index.
        meta: facts about the run.
        references: texts at one token a step, by region key, made when first needed.
        trials: by what was decoded (a region key, or a page).
    """

    token: str
    folder: Path
    path: Path
    page_count: int = 1
    notes: tuple[str, ...] = ()
    password: str | None = None
    pages: dict[int, PageReading] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    trials: dict[str, dict[float, Trial]] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.name

    @property
    def pictures(self) -> Path:
        """Folder below which pictures that were cut out are, as `Region.image_path` names them."""
        return self.folder / "out" / safe_stem(self.path.stem)

    def key(self, index: int, order: int) -> str:
        """What a region is called between browser and server."""
        return f"{self.token[:8]}-{index}-{order}"

    def plan_of(self, key: str | None) -> tuple[int, RegionPlan]:
        """The page's index and the plan of a region.

        Raises:
            Refused: there is no such region in this document.
        """
        try:
            start, index, order = (key or "").rsplit("-", 2)
            if start == self.token[:8]:
                return int(index), self.pages[int(index)].plans[int(order)]
        except (ValueError, KeyError):
            pass
        raise Refused("Choose a region first.")

    def document(self) -> Document:
        """The pages that were read, as a document that names no folder."""
        pages = tuple(self.pages[index].page for index in sorted(self.pages))
        return Document(source=self.name, pages=pages, meta={**self.meta, "page_count": len(pages)})


class Sessions:
    """All visitors.

    Args:
        root: folder for their files.
        settings: how long, and how many.
    """

    def __init__(self, root: Path, settings: DemoSettings) -> None:
        self._root, self._settings = root, settings
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, upload: Path, name: str, *, keep: bool = False) -> Session:
        """Take a file in.

        Args:
            upload: where it is; it is moved, or copied with `keep`.
            name: what the visitor calls it.
        """
        self.sweep(room=1)
        token = secrets.token_urlsafe(24).replace("-", "_")
        folder = self._root / token
        folder.mkdir(parents=True)
        given = Path(name.replace("\\", "/")).name
        path = folder / f"{safe_stem(Path(given).stem)}{Path(given).suffix[:12]}"
        (shutil.copyfile if keep else shutil.move)(upload, path)
        session = Session(token, folder, path)
        with self._lock:
            self._sessions[token] = session
        return session

    def get(self, token: str | None) -> Session:
        """A session by its token.

        Raises:
            Refused: there is none, or none any more.
        """
        with self._lock:
            session = self._sessions.get(token or "")
            if session is not None:
                session.used = time.monotonic()
                return session
        raise Refused(
            "Choose a document first." if not token else "This document was put away; open it once more, please."
        )

    def close(self, token: str | None) -> None:
        """Forget a session and remove its files."""
        with self._lock:
            session = self._sessions.pop(token or "", None)
        if session is not None:
            shutil.rmtree(session.folder, ignore_errors=True)

    def sweep(self, room: int = 0) -> None:
        """Close sessions that were idle too long, and the longest idle ones until there is room for so many more."""
        now = time.monotonic()
        with self._lock:
            idle = sorted(self._sessions.values(), key=lambda session: session.used)
        beyond = max(0, len(idle) + room - self._settings.max_sessions)
        for at, session in enumerate(idle):
            if at < beyond or now - session.used > self._settings.session_seconds:
                self.close(session.token)


def with_truth(reading: PageReading, truths: Mapping[int, str]) -> PageReading:
    """The reading with what the text layer says about its regions, by `Region.order`."""
    plans = {order: replace(plan, truth=truths.get(order, "")) for order, plan in reading.plans.items()}
    return replace(reading, plans=plans)
