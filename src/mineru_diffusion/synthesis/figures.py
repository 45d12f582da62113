"""Pictures for synthetic pages, as SVG text: photograph-like textures, diagrams and charts.

In: a random generator and a size. Out: SVG, whose words are part of the picture and of no truth.
"""

from __future__ import annotations

from typing import Literal
from xml.sax.saxutils import escape

import numpy as np

from mineru_diffusion.synthesis.text import TextSampler

FigureKind = Literal["image", "chart"]


def figure_svg(
    rng: np.random.Generator, kind: FigureKind, width: float, height: float, text: TextSampler, font: str
) -> str:
    """One figure of `width` x `height` points; its words are in the family `font`."""
    if kind == "chart":
        body = _pie(rng, width, height) if rng.random() < 0.15 else _plot(rng, width, height, text, font)
    else:
        body = _photo(rng, width, height) if rng.random() < 0.55 else _diagram(rng, width, height, text, font)
    frame = ""
    if rng.random() < 0.3:
        frame = f'<rect x="0.5" y="0.5" width="{width - 1:.1f}" height="{height - 1:.1f}" fill="none" stroke="#333"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.1f}" height="{height:.1f}" '
        f'viewBox="0 0 {width:.1f} {height:.1f}">{body}{frame}</svg>'
    )


def _colour(rng: np.random.Generator, low: int = 0, high: int = 256) -> str:
    red, green, blue = rng.integers(low, high, 3)
    return f"#{red:02x}{green:02x}{blue:02x}"


def _label(x: float, y: float, words: str, font: str, size: float, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="{escape(font)}" font-size="{size:.1f}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _photo(rng: np.random.Generator, width: float, height: float) -> str:
    """Sky, ground and things in between, under grain: what a page's photographs have in common."""
    grain, seed = rng.uniform(0.004, 0.05), rng.integers(1, 10_000)
    grey = rng.random() < 0.4
    tones = [_colour(rng, 20, 235) for _ in range(3)]
    if grey:
        tones = [f"#{v:02x}{v:02x}{v:02x}" for v in rng.integers(20, 235, 3)]
    saturation = 0 if grey else rng.uniform(0.2, 1)
    shapes = []
    for _ in range(int(rng.integers(2, 9))):
        x, y = rng.uniform(0, width), rng.uniform(0.2 * height, height)
        rx, ry = rng.uniform(0.03, 0.3) * width, rng.uniform(0.03, 0.3) * height
        value = int(rng.integers(10, 245))
        fill = f"#{value:02x}{value:02x}{value:02x}" if grey else _colour(rng, 10, 245)
        shapes.append(
            f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{rx:.1f}" ry="{ry:.1f}" fill="{fill}" opacity="0.8"/>'
            if rng.random() < 0.6
            else f'<rect x="{x:.1f}" y="{y:.1f}" width="{rx:.1f}" height="{ry:.1f}" fill="{fill}" opacity="0.9"/>'
        )
    return (
        f'<defs><linearGradient id="g" x1="0" y1="0" x2="{rng.uniform(0, 0.5):.2f}" y2="1">'
        f'<stop offset="0" stop-color="{tones[0]}"/>'
        f'<stop offset="{rng.uniform(0.3, 0.7):.2f}" stop-color="{tones[1]}"/>'
        f'<stop offset="1" stop-color="{tones[2]}"/></linearGradient>'
        f'<filter id="n" x="0" y="0" width="1" height="1">'
        f'<feTurbulence type="fractalNoise" baseFrequency="{grain:.4f}" numOctaves="4" seed="{seed}"/>'
        f'<feColorMatrix type="saturate" values="{saturation:.2f}"/></filter>'
        f'<clipPath id="c"><rect width="{width:.1f}" height="{height:.1f}"/></clipPath></defs>'
        f'<g clip-path="url(#c)">'
        f'<rect width="{width:.1f}" height="{height:.1f}" fill="url(#g)"/>{"".join(shapes)}'
        f'<rect width="{width:.1f}" height="{height:.1f}" filter="url(#n)" opacity="{rng.uniform(0.15, 0.6):.2f}"/></g>'
    )


def _diagram(rng: np.random.Generator, width: float, height: float, text: TextSampler, font: str) -> str:
    """Boxes in a row or a grid with arrows between them."""
    across = int(rng.integers(2, 5))
    down = int(rng.integers(1, 4))
    cell_x, cell_y = width / across, height / down
    box_x, box_y = cell_x * rng.uniform(0.5, 0.75), cell_y * rng.uniform(0.4, 0.7)
    rounding = rng.choice((0, 3, 8))
    fill = rng.choice(("#ffffff", "#eef2f8", "#f6e8d8", "#dddddd", "#cfe8cf"))
    size = min(8.0, box_y / 2)
    parts = []
    for row in range(down):
        for column in range(across):
            x, y = (column + 0.5) * cell_x, (row + 0.5) * cell_y
            parts.append(
                f'<rect x="{x - box_x / 2:.1f}" y="{y - box_y / 2:.1f}" width="{box_x:.1f}" height="{box_y:.1f}" '
                f'rx="{rounding}" fill="{fill}" stroke="#222"/>'
            )
            words = text.passage(rng, "heading", 8)[: max(3, int(box_x / size * 1.7))]
            parts.append(_label(x, y + size / 3, words, font, size, "middle"))
            if column + 1 < across:
                end = x + cell_x - box_x / 2
                parts.append(f'<path d="M{x + box_x / 2:.1f} {y:.1f} H{end:.1f}" stroke="#222" fill="none"/>')
                parts.append(f'<path d="M{end:.1f} {y:.1f} l-5 -3 v6 z" fill="#222"/>')
            if row + 1 < down and rng.random() < 0.7:
                end = y + cell_y - box_y / 2
                parts.append(f'<path d="M{x:.1f} {y + box_y / 2:.1f} V{end:.1f}" stroke="#222" fill="none"/>')
                parts.append(f'<path d="M{x:.1f} {end:.1f} l-3 -5 h6 z" fill="#222"/>')
    return "".join(parts)


def _pie(rng: np.random.Generator, width: float, height: float) -> str:
    radius, x, y = 0.46 * min(width, height), width / 2, height / 2
    ends = np.cumsum(rng.dirichlet(np.ones(int(rng.integers(3, 8))))) * 2 * np.pi
    parts, start = [], 0.0
    for end in ends:
        large = int(end - start > np.pi)
        x0, y0, x1, y1 = (v for a in (start, end) for v in (x + radius * np.cos(a), y + radius * np.sin(a)))
        parts.append(
            f'<path d="M{x:.1f} {y:.1f} L{x0:.2f} {y0:.2f} A{radius:.1f} {radius:.1f} 0 {large} 1 {x1:.2f} {y1:.2f} z" '
            f'fill="{_colour(rng, 60, 220)}" stroke="white"/>'
        )
        start = float(end)
    return "".join(parts)


def _plot(rng: np.random.Generator, width: float, height: float, text: TextSampler, font: str) -> str:
    """Axes with ticks and labels, and lines, bars or points between them."""
    size = 7.0
    left, right, top, bottom = 30.0, width - 6, 6.0, height - 24
    parts = [f'<path d="M{left} {top} V{bottom} H{right}" stroke="#000" fill="none"/>']
    scale = 10.0 ** int(rng.integers(-1, 4))
    for i in range(5):
        y = bottom - (bottom - top) * i / 4
        parts.append(f'<path d="M{left} {y:.1f} h-3" stroke="#000"/>')
        parts.append(_label(left - 5, y + 2.5, f"{scale * i / 4:g}", font, size, "end"))
        if i and rng.random() < 0.5:
            parts.append(f'<path d="M{left} {y:.1f} H{right}" stroke="#ccc" stroke-width="0.5"/>')
    points = int(rng.integers(4, 13))
    xs = np.linspace(left + 8, right - 8, points)
    labelled = range(0, points, max(1, points // 5))
    parts += [_label(xs[i], bottom + 9, str(i * 2), font, size, "middle") for i in labelled]
    name = text.passage(rng, "heading", 12)[:24]
    parts.append(_label((left + right) / 2, height - 3, name, font, size, "middle"))
    style = rng.choice(("line", "bar", "points"))
    for series in range(int(rng.integers(1, 4))):
        values = np.clip(np.cumsum(rng.normal(0.02, 0.12, points)) + rng.uniform(0.2, 0.7), 0.03, 0.97)
        ys = bottom - (bottom - top) * values
        colour = _colour(rng, 0, 190)
        if style == "bar":
            thick = (right - left) / points / 4
            parts += [
                f'<rect x="{x + series * thick - thick * 1.5:.1f}" y="{y:.1f}" width="{thick:.1f}" '
                f'height="{bottom - y:.1f}" fill="{colour}"/>'
                for x, y in zip(xs, ys, strict=True)
            ]
            continue
        if style == "line":
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
        if style == "points" or rng.random() < 0.5:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{colour}"/>' for x, y in zip(xs, ys, strict=True)
            ]
    return "".join(parts)
