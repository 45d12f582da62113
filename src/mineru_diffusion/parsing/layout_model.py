"""Layout by the model itself: the page is squashed to a small square, the answer is parsed by the layout grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PIL import Image

from mineru_diffusion.document.flow import CONTINUED
from mineru_diffusion.document.layout_grammar import parse_layout, unparsed_layout
from mineru_diffusion.document.nesting import resolve_nesting
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import DecodingParams, Engine, Request, Result
from mineru_diffusion.parsing.layout_rapid import page_ink, recovered_regions
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout


class ModelLayoutDetector:
    """Asks the engine's checkpoint for the layout, all given pages together.

    A page whose answer cannot be used goes to the fallback detector; an answer that broke off is completed by the ink
    it left out. Both are said in the page's warnings.

    Args:
        engine: of a checkpoint with the task `layout`.
        fallback: for pages without a usable answer.
        params: how to decode.
    """

    name = "model"
    uses_engine = True

    def __init__(self, engine: Engine, fallback: LayoutDetector, params: DecodingParams | None = None) -> None:
        self._engine = engine
        self._fallback = fallback
        self._params = params or DecodingParams()

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        """Layouts of the pages; see `LayoutDetector`."""
        size = self._engine.profile.layout_image_size
        inked = [page_ink(image) for image in images]
        # A blank page would be an invitation to invent something.
        asked = [i for i, ink in enumerate(inked) if ink.any()]
        requests = [
            Request(
                images[i].convert("RGB").resize(size, Image.Resampling.BICUBIC), "layout", params=self._params, tag=i
            )
            for i in asked
        ]
        layouts = [PageLayout() for _ in images]
        for i, result in zip(asked, self._engine.generate(requests), strict=True):
            layouts[i] = self._layout(images[i], result)
        return layouts

    def _layout(self, image: Image.Image, result: Result) -> PageLayout:
        boxes = resolve_nesting(parse_layout(result.text))
        if not boxes:
            layout = self._fallback.detect([image])[0]
            cause = result.error or "its answer holds no box"
            return replace(
                layout, warnings=(f"layout by {self._fallback.name}: the model gave none ({cause})", *layout.warnings)
            )
        regions = [
            Region(
                b.kind,
                b.bbox,
                order,
                b.angle,
                source={"layout": self.name, **({CONTINUED: self.name} if b.continued else {})},
                warnings=b.warnings,
            )
            for order, b in enumerate(boxes)
        ]
        warnings = [
            f"a part of the layout answer was not understood: {rest[:80]}" for rest in unparsed_layout(result.text)
        ]
        if result.finish_reason != "stop":
            warnings.append(f"the layout answer broke off ({result.finish_reason}); completed by the ink it left out")
            regions += recovered_regions(page_ink(image), regions)
        return PageLayout(tuple(replace(r, order=i) for i, r in enumerate(regions)), tuple(warnings))
