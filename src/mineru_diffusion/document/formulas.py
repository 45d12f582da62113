"""LaTeX clean-up: what a renderer would refuse is repaired with the fewest marks, nothing that was read is dropped."""

from __future__ import annotations

import re

_DELIMITERS = (("\\[", "\\]"), ("\\(", "\\)"), ("$$", "$$"), ("$", "$"))
_TOKEN = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{([^{}]*)\}")
_NO_DELIMITER = re.compile(r"[{}&\w]|\\\\|\\(?:left|right|begin|end)(?![a-zA-Z])")
_DISPLAY_IN_TEXT = re.compile(r"(?<!\\)\\\[(.+?)(?<!\\)\\\]", re.DOTALL)


def clean_formula(latex: str) -> str:
    r"""A formula without its delimiters, in which braces, environments and `\left`/`\right` are balanced.

    Missing closers are added, closers that nothing opened are dropped, an unpaired `\left(` is closed at once with
    `\right.` (how far it was meant to reach is not known), and a second subscript gets an empty base of its own.
    A well-formed formula comes back as it is, without white space around it.
    """
    tokens = _TOKEN.findall(strip_delimiters(latex))
    return "".join(_separate_scripts(_pair_delimiters(_close_groups(tokens)))).strip()


def strip_delimiters(latex: str) -> str:
    r"""Take off `\[ \]`, `\( \)`, `$$` or `$` around a formula, also when only one of the two is there."""
    latex = latex.strip()
    for opening, closing in _DELIMITERS:
        starts = latex.startswith(opening)
        body = latex[len(opening) :] if starts else latex
        # `\\]` at the end is a line break and a bracket, `\$` is a dollar sign.
        ends = body.endswith(closing) and not body[: -len(closing)].endswith("\\")
        body = body[: -len(closing)] if ends else body
        if starts and ends and _is_delimited_twice(body, opening):
            continue  # `$a$ and $b$` is not one formula
        if starts or ends:
            return body.strip()
    return latex


def _is_delimited_twice(body: str, opening: str) -> bool:
    return re.search(r"(?<!\\)" + re.escape(opening), body) is not None


def inline_display_math(text: str) -> str:
    r"""Display formulas inside running text, `\[ x \]`, as inline ones, `\( x \)`."""
    return _DISPLAY_IN_TEXT.sub(lambda match: f"\\({match[1]}\\)", text)


def _close_groups(tokens: list[str]) -> list[str]:
    r"""Balance `{ }` and `\begin \end`, which may nest in each other."""
    out: list[str] = []
    stack: list[str] = []  # "{" or the name of an environment
    for token in tokens:
        environment = _ENVIRONMENT.fullmatch(token)
        if token == "{":
            stack.append(token)
        elif environment and environment[1] == "begin":
            stack.append(environment[2])
        elif token == "}" or environment:
            opener = "{" if environment is None else environment[2]
            if opener not in stack:
                continue
            while stack[-1] != opener:
                out.append(_closer(stack.pop()))
            stack.pop()
        out.append(token)
    while out and out[-1].isspace():
        out.pop()
    if stack and out and out[-1] == "\\":
        out[-1] = "\\ "  # a command that was cut off must not escape the closing brace
    out.extend(_closer(opener) for opener in reversed(stack))
    return out


def _closer(opener: str) -> str:
    return "}" if opener == "{" else f"\\end{{{opener}}}"


def _pair_delimiters(tokens: list[str]) -> list[str]:
    r"""Give every `\left x` its `\right` and the other way round, within one group, cell and row."""
    scopes: list[list[int]] = [[]]  # per open group: where its open `\left`s end, the delimiter included
    unclosed: set[int] = set()
    unopened: set[int] = set()

    def leave() -> None:
        unclosed.update(scopes[-1])
        scopes[-1].clear()

    for index, token in enumerate(tokens):
        if token == "{" or token.startswith("\\begin"):
            scopes.append([])
        elif token == "}" or _ENVIRONMENT.fullmatch(token):
            leave()
            scopes.pop()
        elif token in ("&", "\\\\"):
            leave()
        elif token == "\\left":
            scopes[-1].append(_delimiter_index(tokens, index))
        elif token == "\\right":
            if scopes[-1]:
                scopes[-1].pop()
            else:
                unopened.add(index)
    leave()
    out: list[str] = []
    for index, token in enumerate(tokens):
        if index in unopened:
            out.append("\\left. ")
        out.append(token)
        if index in unclosed:
            # A delimiter that was cut off as well is the empty one.
            out.append(" \\right." if token != "\\left" else ". \\right.")
    return out


def _delimiter_index(tokens: list[str], index: int) -> int:
    r"""Index of the delimiter after `\left`, or of `\left` itself if the formula ends there."""
    for after in range(index + 1, len(tokens)):
        if not tokens[after].isspace():
            return index if _NO_DELIMITER.match(tokens[after]) else after
    return index


def _separate_scripts(tokens: list[str]) -> list[str]:
    """Put `{}` before a second `_` or `^` on the same base, which TeX refuses: `a_{1}_{2}` is `a_{1}{}_{2}`."""
    out: list[str] = []
    seen: set[str] = set()
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token in ("_", "^"):
            if token in seen:
                out.append("{}")
                seen.clear()
            seen.add(token)
            out.append(token)
            end = _argument_end(tokens, index)
            out += _separate_scripts(tokens[index:end])
            index = end
        else:
            if not token.isspace():
                seen.clear()
            out.append(token)
    return out


def _argument_end(tokens: list[str], index: int) -> int:
    """Index behind the argument that starts at `index`: a group, or one token."""
    while index < len(tokens) and tokens[index].isspace():
        index += 1
    if index >= len(tokens) or tokens[index] != "{":
        # A script's own script is no argument, and a command takes its group with it.
        if index < len(tokens) and tokens[index].startswith("\\") and tokens[index][1:].isalpha():
            return _argument_end(tokens, index + 1) if tokens[index + 1 : index + 2] == ["{"] else index + 1
        return min(index + 1, len(tokens)) if tokens[index : index + 1] not in (["}"], ["_"], ["^"]) else index
    depth = 0
    for end in range(index, len(tokens)):
        depth += (tokens[end] == "{") - (tokens[end] == "}")
        if depth == 0:
            return end + 1
    return len(tokens)
