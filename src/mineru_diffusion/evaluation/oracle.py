"""A recogniser that knows the answers: it reads every crop from the PDF's own text layer.

What goes wrong with it, the layout, the line splitting, the reading order or the structure did: nothing is misread.
One object is both the layout detector and the engine of a pipeline:

    oracle = Oracle(path)
    document = parse(path, engine=oracle, detector=oracle)

It reads line by line, as a small checkpoint does, and tables whole, their columns told from where the words stand. It
has no formula task: a text layer knows no LaTeX. A scan without a text layer says nothing.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from PIL import Image

from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import BBox, Region
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Request, Result
from mineru_diffusion.evaluation.text_layer import TextLayer, Word
from mineru_diffusion.evaluation.text_tables import table_of_words
from mineru_diffusion.parsing.crops import RegionJob, plan_page
from mineru_diffusion.parsing.layout import RapidLayoutDetector
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout
from mineru_diffusion.parsing.orientation import turn_back

LINES = CheckpointProfile(tasks=("text", "table"), text_unit="line", line_height=16, line_max_aspect=1000.0)
REGIONS = CheckpointProfile(tasks=("text", "table"))


class Oracle:
    """Detector and engine in one, for one PDF; any other file it finds the regions of, and reads nothing.

    Args:
        path: the PDF.
        password: of an encrypted one.
        dpi: as for the parse: pages are told apart by their pictures.
        profile: `LINES`, or `REGIONS` to read whole paragraphs as the published checkpoint does.
        detector: finds the regions; by default the packaged one.
    """

    uses_engine = False

    def __init__(
        self,
        path: Path,
        *,
        password: str | None = None,
        dpi: float = 200,
        profile: CheckpointProfile = LINES,
        detector: LayoutDetector | None = None,
    ) -> None:
        self._detector = detector or RapidLayoutDetector()
        self.name = self._detector.name
        self._profile = profile
        self._answers: dict[str, deque[str]] = defaultdict(deque)
        self._queue: list[tuple[int, Request]] = []
        self._ids = count()
        self._source = open_source(path, password=password, dpi=dpi)
        is_pdf = path.read_bytes()[:1024].find(b"%PDF-") >= 0
        self._layer = TextLayer(path, password) if is_pdf else None
        self._next = 0
        self._seen: dict[str, int] = {}

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        """The detector's layouts; what every crop of them says is noted on the way. See `LayoutDetector`."""
        layouts = self._detector.detect(images)
        for image, layout in zip(images, layouts, strict=True):
            index = self._page_of(image)
            words = self._layer.words(index) if self._layer is not None and index is not None else []
            jobs, requests = plan_page(image, layout.regions, self._profile, DecodingParams())
            answers = [_answers(job, words) for job in jobs]
            for job, slot, request in requests:
                assert request.image is not None
                self._answers[_digest(request.image)].append(answers[job][slot])
        return layouts

    def _page_of(self, image: Image.Image) -> int | None:
        """Pages come in the file's order, though some may be left out."""
        digest = _digest(image)
        while digest not in self._seen and self._next < self._source.page_count:
            self._seen[_digest(self._source.page(self._next).image)] = self._next
            self._next += 1
        return self._seen.get(digest)

    @property
    def profile(self) -> CheckpointProfile:
        """See `Engine`."""
        return self._profile

    def submit(self, request: Request) -> int:
        """Queue a request."""
        self._queue.append((next(self._ids), request))
        return self._queue[-1][0]

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Answers in order of submission."""
        while self._queue:
            request_id, request = self._queue.pop(0)
            yield request_id, self._result(request)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """The answers."""
        return [self._result(request) for request in requests]

    def _result(self, request: Request) -> Result:
        assert request.image is not None
        waiting = self._answers[_digest(request.image)]
        # Crops that look alike are asked for in the order in which they were planned.
        text = waiting.popleft() if len(waiting) > 1 else waiting[0]
        return Result(text, (0,) * len(text), (1.0,) * len(text), (1,) * len(text), nfe=1)

    def cancel(self, request_id: int) -> bool:
        """Give up a request."""
        before = len(self._queue)
        self._queue = [item for item in self._queue if item[0] != request_id]
        return len(self._queue) < before

    def close(self) -> None:
        """Forget all requests and release the file."""
        self._queue.clear()
        self._source.close()
        if self._layer is not None:
            self._layer.close()


def _digest(image: Image.Image) -> str:
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


def _answers(job: RegionJob, words: Sequence[Word]) -> list[str]:
    """What a perfect model would say to each of the job's requests."""
    region = job.region
    upright = [Word(word.text, _upright(word.box, region.angle), _upright(word.last, region.angle)) for word in words]
    if job.by_line:
        return _lines(job, upright)
    bbox = _upright(region.bbox, region.angle)
    inside = [word for word in upright if _holds(bbox, word)]
    if region.kind == "table":
        return [table_of_words(inside)]
    return [_region_text(region, inside)] * len(job.results)


def _upright(box: BBox, angle: int) -> BBox:
    return turn_back(box, -angle % 360)


def _holds(box: BBox, word: Word) -> bool:
    x, y = word.middle
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _lines(job: RegionJob, words: Sequence[Word]) -> list[str]:
    """Every word goes to one line: of those whose crops hold its middle, to the one whose middle is nearest.

    Within a line it goes to the piece that it stands in.
    """
    boxes = [_upright(box, job.region.angle) for box in job.region.lines]
    lines: list[list[Word]] = [[] for _ in boxes]
    for word in words:
        near = [(abs((b[1] + b[3]) / 2 - word.middle[1]), i) for i, b in enumerate(boxes) if _holds(b, word)]
        if near:
            lines[min(near)[1]].append(word)
    answers = []
    for line, box, inside in zip(job.lines, boxes, lines, strict=True):
        # From the pixels of the crop to the page: a line and its box there are the same stretch.
        scale = (box[2] - box[0]) / max(1, line.box[2] - line.box[0])
        ends = [box[0] + (piece[2] - line.box[0]) * scale for piece in line.pieces[:-1]]
        pieces: list[list[Word]] = [[] for _ in line.pieces]
        for word in in_reading_order(inside):
            pieces[sum(end < word.middle[0] for end in ends)].append(word)
        answers += [" ".join(word.text for word in piece) for piece in pieces]
    return answers


def in_reading_order(words: Sequence[Word]) -> list[Word]:
    """The words of one line from left to right; of a right-to-left script in the file's order."""
    letters = "".join(word.text for word in words)
    if sum("\u0590" <= char <= "\u08ff" for char in letters) > len(letters) / 2:
        return list(words)
    return sorted(words, key=lambda word: word.box[0])


def _region_text(region: Region, words: Sequence[Word]) -> str:
    """A region's text by line, in the file's order, a new line where a word stands below or to the left."""
    lines: list[list[Word]] = []
    for word in words:
        last = lines[-1][-1].box if lines else (0.0, 0.0, 0.0, 0.0)
        if lines and last[1] < word.middle[1] < last[3] and word.box[0] > last[0]:
            lines[-1].append(word)
        else:
            lines.append([word])
    texts = [" ".join(word.text for word in line) for line in lines]
    return "\n".join(texts) if region.kind in ("list", "code", "algorithm") else join_lines(texts)
