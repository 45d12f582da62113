"""Typst in process: pictures, literals, and families that are only offered when all their faces are known."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.faces import FontSpec
from mineru_diffusion.synthesis.typst_engine import EMBEDDED_TEXT, compiler, draw, families, quote

typst = pytest.importorskip("typst")


def test_draw_and_refusal() -> None:
    page = draw("#set page(width: 72pt, height: 36pt, margin: 0pt)\n#rect(width: 36pt, height: 36pt, fill: black)", 100)
    assert page.shape == (50, 100)
    assert page.dtype == np.uint8
    assert page[25, 25] == 0
    assert page[25, 75] == 255
    with pytest.raises(UsageError, match="unknown variable"):
        draw("#nothing", 72)
    assert compiler() is compiler()


@pytest.mark.parametrize("text", ['say "x"', "a\\b", "#$*_`@<>~", "two\\\\"])
def test_quote_is_the_same_string_in_typst(text: str) -> None:
    found = typst.query(f"#metadata({quote(text)}) <x>".encode(), "<x>", field="value", one=True)
    assert found == '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_families_without_fonts_is_the_embedded_one() -> None:
    (only,) = families([])
    assert only.name == EMBEDDED_TEXT
    assert only.covers("Größe ≤ 5 μm")
    assert not only.covers("☃")


def test_a_family_with_an_unknown_face_is_not_offered() -> None:
    groups = defaultdict(list)
    for info in typst.Fonts().fonts():
        groups[info.family].append(info)
    system = {
        name: infos
        for name, infos in groups.items()
        if len({i.path for i in infos}) == len(infos) > 1
        and all(i.path and i.index == 0 and i.stretch == 1 for i in infos)
        and any(i.weight == 400 and i.style == "normal" for i in infos)
    }
    if not system:
        pytest.skip("no system family with several faces")
    name, infos = min(system.items(), key=lambda item: (len(item[1]), item[0]))
    specs = [FontSpec(info.path, 0, name, str(n)) for n, info in enumerate(infos)]
    assert [family.name for family in families(specs)] == [name]
    assert [family.name for family in families(specs[:-1])] == [EMBEDDED_TEXT]
