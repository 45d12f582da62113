"""Running text in Markdown: only what would change its meaning is escaped, formulas pass untouched."""

from __future__ import annotations

import re

# Formulas as models write them; dollars only where the content looks like mathematics and not like two prices.
_MATH = re.compile(
    r"(?<!\\)\\\((?P<paren>.+?)(?<!\\)\\\)"
    r"|(?<!\\)\\\[(?P<bracket>.+?)(?<!\\)\\\]"
    r"|(?<![\\$])\$\$(?P<double>[^$]+)\$\$(?!\$)"
    r"|(?<![\\$\w])\$(?P<dollar>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?![\d$])",
    re.DOTALL,
)
_MATHEMATICAL = re.compile(r"[\\^_{}=+<>|]|^[A-Za-z]'*$")

_LINE_START = re.compile(r"^( {0,3})(?:(#{1,6})(?=\s|$)|([-+*])(?=\s|$)|(\d{1,9})([.)])(?=\s|$)|(>)|(`{3,}|~{3,}))")
_RULE = re.compile(r"^ {0,3}(?:(?:-\s*){3,}|(?:_\s*){3,}|(?:\*\s*){3,}|=+\s*|-+\s*)$")
# Before punctuation it escapes, at a line's end it breaks the line.
_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\s*(?:\n|$))")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY = re.compile(r"&(?=#?\w{1,32};)")
_LINK = re.compile(r"\[(?=[^\]]*\]\s?[(\[:])")
_EDGE_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")


def escape_text(text: str, *, in_table: bool = False) -> str:
    r"""Text as Markdown that shows exactly this text; `\( \)` and `$ $` formulas become `$ $`.

    Args:
        text: running text; line breaks stay line breaks of one paragraph, empty lines part paragraphs.
        in_table: the text stands in a cell of a GitHub table, on one line.
    """
    parts: list[str] = []
    position = 0
    for match in _MATH.finditer(text):
        dollar = match["dollar"]
        if dollar is not None and not _MATHEMATICAL.search(dollar):
            continue
        body = next(group for group in match.groups() if group is not None)
        parts.append(_escape_inline(text[position : match.start()]))
        parts.append(f"${' '.join(body.split())}$")
        position = match.end()
    parts.append(_escape_inline(text[position:]))
    escaped = "".join(parts)
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


_BULLET = re.compile(r"^\s*(?:[-*+\u2022\u25e6\u25aa\u25cf\u2013\u00b7])\s+")
_NUMBERED = re.compile(r"^\s*(\d{1,9})([.)])\s+")


def list_items(content: str) -> list[str]:
    """The items of a list region, their bullets taken off and their numbers kept.

    A line without a mark continues the item above it, unless no line has one: then every line is an item.
    """
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not any(_BULLET.match(line) or _NUMBERED.match(line) for line in lines):
        return lines
    items: list[str] = []
    for line in lines:
        if bullet := _BULLET.match(line):
            items.append(line[bullet.end() :])
        elif _NUMBERED.match(line) or not items:
            items.append(line)
        else:
            items[-1] += f" {line}"
    return items


def list_markdown(content: str) -> str:
    """A list region as a Markdown list; numbers as they were read."""
    out: list[str] = []
    for item in list_items(content):
        if number := _NUMBERED.match(item):
            out.append(f"{number[1]}{number[2]} {escape_text(item[number.end() :])}")
        else:
            out.append(f"- {escape_text(item)}")
    return "\n".join(out)
