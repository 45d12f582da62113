"""The page with its regions, as HTML: a picture under buttons, so that mouse, finger and keyboard all work."""

from __future__ import annotations

from mineru_diffusion.demo.markup import data_uri, safe
from mineru_diffusion.demo.sessions import PageReading, Session
from mineru_diffusion.document.overlay import kind_colour
from mineru_diffusion.document.types import Region

EMPTY = (
    '<div class="md-empty">Upload a document or pick an example: its page shows here, with what was found on it.</div>'
)


def region_label(region: Region) -> str:
    """A region in words: its number, kind, confidence and first words."""
    parts = [f"{region.order + 1} · {region.kind.replace('_', ' ')}"]
    if region.confidence is not None:
        parts.append(f"{region.confidence:.0%}")
    words = " ".join(region.content.split())
    if words and not words.startswith("<"):
        parts.append(words[:38] + ("…" if len(words) > 38 else ""))
    return " · ".join(parts)


def region_choices(session: Session, index: int) -> list[tuple[str, str]]:
    """Regions that can be replayed, as (label, key)."""
    reading = session.pages[index]
    return [(region_label(plan.region), session.key(index, order)) for order, plan in sorted(reading.plans.items())]


def first_choice(session: Session, index: int) -> str | None:
    """The region that shows most without taking long: the longest text of at most four lines, or any."""
    plans = session.pages[index].plans
    if not plans:
        return None
    short = [o for o, plan in plans.items() if max(plan.lines, default=0) < 4] or list(plans)
    return session.key(index, max(short, key=lambda order: len(plans[order].region.content)))


def page_html(session: Session, index: int) -> str:
    """The page; a click on a region tells its key (`data-region`)."""
    reading = session.pages[index]
    buttons = "".join(_button(session, index, reading, region) for region in reading.page.regions)
    picture = data_uri(reading.picture, "image/jpeg")
    said = f"Page {index + 1} of {session.name}, {len(reading.page.regions)} regions"
    return (
        f'<div class="md-page" role="group" aria-label="{safe(said)}">'
        f'<img src="{picture}" alt="{safe(said)}" draggable="false">{buttons}</div>'
    )


def _button(session: Session, index: int, reading: PageReading, region: Region) -> str:
    x0, y0, x1, y1 = region.bbox
    place = f"left:{x0:.3%};top:{y0:.3%};width:{x1 - x0:.3%};height:{y1 - y0:.3%}"
    colour = ",".join(map(str, kind_colour(region.kind)))
    kind = region.kind.replace("_", " ")
    sure = "" if region.confidence is None else f", {region.confidence:.0%} sure"
    warned = f". Note: {'; '.join(region.warnings)}" if region.warnings else ""
    tag = f"{region.order + 1}" + ("" if region.confidence is None else f" · {region.confidence:.0%}")
    style = f'style="{place};--md-kind:{colour}"'
    label = f"<span>{safe(tag)}</span>"
    if region.order not in reading.plans:
        title = f"Region {region.order + 1}: {kind}{sure}{warned}"
        return f'<div class="md-region md-still" {style} title="{safe(title)}">{label}</div>'
    title = f"Region {region.order + 1}: {kind}{sure}{warned}. Replay how it was read"
    key = safe(session.key(index, region.order))
    return (
        f'<button type="button" class="md-region" data-region="{key}" aria-pressed="false" {style} '
        f'aria-label="{safe(title)}" title="{safe(title)}">{label}</button>'
    )
