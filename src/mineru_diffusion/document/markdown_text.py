"""Running text in Markdown: only what would change its meaning is escaped, formulas pass untouched."""

from __future__ import annotations

import re

from mineru_diffusion.document.export_options import MathStyle
from mineru_diffusion.document.inline_math import split_math
from mineru_diffusion.document.list_text import read_list

_LINE_START = re.compile(r"^( {0,3})(?:(#{1,6})(?=\s|$)|([-+*])(?=\s|$)|(\d{1,9})([.)])(?=\s|$)|(>)|(`{3,}|~{3,}))")
_RULE = re.compile(r"^ {0,3}(?:(?:-\s*){3,}|(?:_\s*){3,}|(?:\*\s*){3,}|=+\s*|-+\s*)$")
# Before punctuation it escapes, at a line's end it breaks the line.
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\s*(?:\n|$))")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#?\w{1,32};)")
_LINK = re.compile(r"\[(?=[^\]]*\]\s?[(\[:])")
_EDGE_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")


def escape_text(text: str, *, in_table: bool = False, math: MathStyle = "dollar") -> str:
    r"""Text as Markdown that shows exactly this text; `\( \)` and `$ $` formulas get the delimiters of `math`.

    Args:
        text: running text; line breaks stay line breaks of one paragraph, empty lines part paragraphs.
        in_table: the text stands in a cell of a GitHub table, on one line.
        math: see `ExportOptions`.
    """
    opening, closing = ("$", "$") if math == "dollar" else ("\\(", "\\)")
    escaped = "".join(
        f"{opening}{piece}{closing}" if is_math else _escape_inline(piece) for is_math, piece in split_math(text)
    )
    if in_table:
        return "<br>".join(line.strip() for line in escaped.replace("|", r"\|").splitlines() if line.strip())
    lines = (_escape_line_start(line.strip()) for line in escaped.strip().splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


def _escape_inline(text: str) -> str:
    text = _BACKSLASH.sub(r"\\\\", text)
    text = _TAG.sub(r"\\<", text)
    text = _ENTITY.sub(r"\\&", text)
    text = _LINK.sub(r"\\[", text)
    # One star, backtick or dollar alone means nothing to Markdown; two may mark what is between them.
    for mark in ("*", "`", "$"):
        if text.count(mark) > 1:
            text = text.replace(mark, "\\" + mark)
    if "~~" in text:
        text = text.replace("~~", r"\~\~")
    if len(_EDGE_UNDERSCORE.findall(text)) > 1:
        text = _EDGE_UNDERSCORE.sub(r"\\_", text)
    return text


def _escape_line_start(line: str) -> str:
    """Keep a line from becoming a heading, list item, quotation, fence or rule."""
    if _RULE.match(line):
        return "\\" + line
    match = _LINE_START.match(line)
    if match is None:
        return line
    if match[4]:  # "1. " is escaped at its dot
        return f"{match[4]}\\{line[match.end(4) :]}"
    return "\\" + line


def fenced(code: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code.strip(chr(10))}\n{fence}"


def list_markdown(content: str, *, math: MathStyle = "dollar") -> str:
    """A list region as a Markdown list; numbers as they were read, nested items set in below their parent's text."""
    out: list[str] = []
    margins = [0]  # per depth, the column where its marks stand
    for item in read_list(content):
        mark = item.number or "-"
        margins[item.depth + 1 :] = [margins[item.depth] + len(mark) + 1]
        out.append(f"{' ' * margins[item.depth]}{mark} {escape_text(item.text, math=math)}")
    return "\n".join(out)
