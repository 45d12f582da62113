"""The document as it is read: regions of all pages to one sequence of blocks, with what belongs together joined.

Every exporter that shows running text starts from here, so that Markdown, HTML and the others agree on what is one
paragraph, one list, one table, and which caption goes where. Regions themselves are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mineru_diffusion.document.captions import Attached, attach_captions
from mineru_diffusion.document.list_text import is_marked, read_list
from mineru_diffusion.document.paragraphs import is_continued, join_lines
from mineru_diffusion.document.table_merge import join_if_one, repeats_caption, says_it_goes_on
from mineru_diffusion.document.types import FURNITURE, Document, Page, Region

#: `Region.source["continued"]` says who found that a text goes on from the one before it.
CONTINUED = "continued"

#: Kind of the block that stands for a page which could not be read; its content is the reason.
PAGE_ERROR = "page_error"

#: Kinds that may stand between two halves of a paragraph without ending it.
_FLOATS = frozenset({"image", "chart", "table"} | FURNITURE)

#: Running text: what may go on in a text region of the next column or page.
_RUNNING = frozenset({"text", "list", "ref_text"})

# How far two lines of one heading may differ in where they begin, as a share of the page's width.
_INDENT = 0.05

# A heading that ends so has another line.
_UNFINISHED = re.compile(
    r"(?:[:,;&–—-]|\b(?:a|an|and|by|for|from|in|of|on|or|the|to|with|und|der|des|et|de))$", re.IGNORECASE
)

# A part that begins higher than the last one ended, by this share of the page, stands in another column.
_CLIMB = 0.02


@dataclass(frozen=True)
class Part:
    """One region and the index of the page that it stands on."""

    page: int
    region: Region


@dataclass(frozen=True)
class Block:
    """One thing that a reader meets.

    Attributes:
        kind: as `Region.kind`, or `PAGE_ERROR`.
        content: what it says, parts joined; the same format as `Region.content`.
        parts: the regions that it is made of, in order; none for `PAGE_ERROR`.
        page: index of the page where it begins.
        captions, footnotes: what belongs to it.
    """

    kind: str
    content: str
    parts: tuple[Part, ...]
    page: int
    captions: tuple[Part, ...] = ()
    footnotes: tuple[Part, ...] = ()

    @property
    def region(self) -> Region:
        """The region where the block begins. Raises IndexError for `PAGE_ERROR`."""
        return self.parts[0].region

    def captions_above(self) -> tuple[Part, ...]:
        """Captions that stand higher than the middle of their host."""
        return tuple(part for part in self.captions if self._is_above(part))

    def captions_below(self) -> tuple[Part, ...]:
        """The other captions."""
        return tuple(part for part in self.captions if not self._is_above(part))

    def _is_above(self, caption: Part) -> bool:
        host = next((part.region for part in self.parts if part.page == caption.page), self.region)
        return caption.region.bbox[1] + caption.region.bbox[3] < host.bbox[1] + host.bbox[3]


def flow(document: Document, *, furniture: bool = False, join_tables: bool = True) -> list[Block]:
    """All blocks of a document in reading order.

    Paragraphs, list items and references that go on in the next column or on the next page are joined, broken words
    with them; captions and footnotes are taken to their hosts; the lines of one heading, and list regions that count
    on, are one block.

    Args:
        document: regions are taken in the order in which they stand.
        furniture: keep headers, footers, page numbers and side notes.
        join_tables: join a table with its continuation on the next page; off, each part is a block.
    """
    blocks: list[Block] = []
    # Indices of the blocks that could still grow: running text, references, a table. References (footnotes, often)
    # may stand below each of two columns whose text goes on above them.
    body: int | None = None
    notes: int | None = None
    table: int | None = None
    for block in _blocks(document):
        if block.kind in FURNITURE:
            if furniture:
                blocks.append(block)
            continue
        grown: Block | None = None
        last = len(blocks) - 1
        places: dict[str, list[int | None]] = {
            "table": [table] if join_tables else [],
            "ref_text": [notes],
            "title": [last],
        }
        for place in places.get(block.kind, [body, notes if notes == last else None]):
            if place is not None and place >= 0 and (grown := _joined(blocks[place], block, adjacent=place == last)):
                blocks[place] = grown
                break
        if grown is None:
            blocks.append(block)
            place = len(blocks) - 1
        if block.kind == "table":
            table = place
        elif block.kind in ("text", "list") and block.content.strip():
            body, table = place, None
        elif block.kind == "ref_text" and block.content.strip():
            notes, table = place, None
        elif block.kind not in _FLOATS:
            body = notes = table = None
        else:
            table = None
    return blocks


def _joined(first: Block, second: Block, *, adjacent: bool) -> Block | None:
    """Both blocks as one, or None if the second begins something new."""
    if second.kind == "table":
        return _with_table(first, second) if first.kind == "table" else None
    if second.kind == "title":
        return _with_title(first, second) if first.kind == "title" and adjacent else None
    if second.kind in _RUNNING and first.kind in _RUNNING:
        return _with_text(first, second, adjacent=adjacent)
    return None


def _blocks(document: Document) -> Iterator[Block]:
    """One block a region, captions with their hosts; a page that failed is a block as well."""
    for page in document.pages:
        if page.error:
            yield Block(PAGE_ERROR, page.error, (), page.index)
        attached = attach_captions(page.regions)
        taken = {index for group in attached.values() for index in (*group.captions, *group.footnotes)}
        for index, region in enumerate(page.regions):
            if index not in taken:
                yield _block(page, region, attached.get(index, Attached()))


def _block(page: Page, region: Region, group: Attached) -> Block:
    captions, footnotes = (
        tuple(Part(page.index, page.regions[index]) for index in sorted(indices))
        for indices in (group.captions, group.footnotes)
    )
    return Block(region.kind, region.content, (Part(page.index, region),), page.index, captions, footnotes)


def _with_table(first: Block, second: Block) -> Block | None:
    """Both parts of a table, or None if the second does not go on from the first."""
    last = first.parts[-1]
    if second.page != last.page + 1:
        return None
    said = [part.region.content for part in first.captions]
    captioned = any(
        not says_it_goes_on(part.region.content)
        and not any(repeats_caption(part.region.content, text) for text in said)
        for part in second.captions
    )
    content = join_if_one(replace(last.region, content=first.content), second.region, captioned=captioned)
    if content is None:
        return None
    news = [part for part in second.captions if not any(repeats_caption(part.region.content, text) for text in said)]
    return replace(
        first,
        content=content,
        parts=(*first.parts, *second.parts),
        captions=(*first.captions, *news),
        footnotes=(*first.footnotes, *second.footnotes),
    )


def _with_title(first: Block, second: Block) -> Block | None:
    """A heading of several lines whose lines were found one by one."""
    above, below = first.parts[-1].region.bbox, second.region.bbox
    height = min(above[3] - above[1], below[3] - below[1])
    stacked = above[1] < below[1] and below[1] - above[3] < 0.8 * height and abs(above[0] - below[0]) < _INDENT
    if second.page != first.parts[-1].page or not stacked or first.region.level != second.region.level:
        return None
    before, after = first.content.strip(), second.content.strip()
    if not before or not after or not (_UNFINISHED.search(before) or after[0].islower()):
        return None
    return replace(first, content=join_lines([before, after]), parts=(*first.parts, *second.parts))


def _with_text(first: Block, second: Block, *, adjacent: bool) -> Block | None:
    """Running text with its continuation, or None if the second begins something new."""
    last, region = first.parts[-1], second.region
    grown = replace(first, parts=(*first.parts, *second.parts))
    if not second.content.strip():
        return None
    # In one column, paragraphs are what the layout says they are; over a column or page break it cannot know.
    moved_on = second.page != last.page or region.bbox[1] < last.region.bbox[3] - _CLIMB
    goes_on = bool(region.source.get(CONTINUED))
    if first.kind != "list" and second.kind in ("text", first.kind):
        if goes_on or (moved_on and _reads_on(first.content, second.content)):
            return replace(grown, content=_join_ends(first.content, second.content, "\n\n"))
        return None
    if first.kind == "list" and second.kind in ("text", "list"):
        head = second.content.strip().splitlines()[0]
        if not is_marked(head) and (goes_on or (moved_on and _reads_on(first.content, second.content))):
            return replace(grown, content=_join_ends(first.content, second.content, "\n"))
        if adjacent and second.kind == "list" and _is_next(first.content, second.content):
            return replace(grown, content=f"{first.content.rstrip()}\n{second.content.strip()}")
    return None


def _reads_on(before: str, after: str) -> bool:
    return is_continued(before.rstrip().rsplit("\n\n", 1)[-1], after.lstrip().split("\n\n", 1)[0])


def _join_ends(before: str, after: str, separator: str) -> str:
    """Two texts whose last and first paragraph (or item) are one; the other paragraphs stay as they are."""
    *earlier, tail = before.strip().split(separator)
    head, *later = after.strip().split(separator)
    return separator.join([*earlier, join_lines([tail, head]), *later])


def _is_next(before: str, after: str) -> bool:
    """Two list regions are one list if neither has marks, both have bullets, or their numbers count on."""
    last, first = read_list(before)[-1:], read_list(after)[:1]
    if not last or not first or any(map(is_marked, before.splitlines())) != any(map(is_marked, after.splitlines())):
        return False
    numbers = [int(item.number.rstrip(".)") or -1) for item in (last[0], first[0])]
    return numbers[1] == numbers[0] + (numbers[0] >= 0)
