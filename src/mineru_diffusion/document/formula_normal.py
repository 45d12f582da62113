r"""One spelling for formulas that look alike: the normal form that targets are written in and answers compared in.

In: any LaTeX formula. Out: the normal form. It is compact (a space only where `\alpha x` needs it, and inside `\text`).
Every argument stands in braces (`\frac{1}{2}`, `\hat{x}`), a script only where it is longer than one token (`x_i^2`,
`x_{ij}`); the subscript comes first, primes are `'`. Braces that do nothing, spacing and size commands are gone; of
several names for one picture the first of `_ALIASES` is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mineru_diffusion.document.formulas import clean_formula

_TOKEN = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\(?:operatorname|hspace)\*|\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
_SINGLE = re.compile(r"[a-zA-Z0-9*+-]|\\[a-zA-Z]+")
_PRIME = r"\prime"
_DEEPEST = 100

_ALIASES = {
    name: kept
    for kept, names in {
        r"\leq": (r"\le", r"\leqslant"), r"\geq": (r"\ge", r"\geqslant"), r"\neq": (r"\ne",),
        r"\to": (r"\rightarrow",), r"\leftarrow": (r"\gets",), r"\ldots": (r"\dots", r"\dotsc"),
        r"\cdots": (r"\dotsb", r"\dotsm"), r"\wedge": (r"\land",), r"\vee": (r"\lor",), r"\neg": (r"\lnot",),
        r"\in": (r"\isin",), r"\ni": (r"\owns",), r"\emptyset": (r"\varnothing",), r"\hbar": (r"\hslash",),
        r"\{": (r"\lbrace",), r"\}": (r"\rbrace",), "[": (r"\lbrack",), "]": (r"\rbrack",),
        "|": (r"\vert", r"\lvert", r"\rvert", r"\mid"), r"\|": (r"\Vert", r"\lVert", r"\rVert", r"\parallel"),
        r"\frac": (r"\dfrac", r"\tfrac", r"\cfrac"), r"\binom": (r"\dbinom", r"\tbinom"),
        r"\text": (r"\mbox", r"\textrm", r"\hbox", r"\textnormal"), r"\boldsymbol": (r"\bm",),
        r"\Leftrightarrow": (r"\iff",), r"\Rightarrow": (r"\implies",), ":": (r"\colon",), "*": (r"\ast",),
        r"\setminus": (r"\backslash", r"\smallsetminus"), r"\big": (r"\bigl", r"\bigr", r"\bigm"),
        r"\Big": (r"\Bigl", r"\Bigr"), r"\bigg": (r"\biggl", r"\biggr"), r"\Bigg": (r"\Biggl", r"\Biggr"),
        r"\operatorname": (r"\operatorname*",), r"\mathbf": (r"\textbf",),
        "-": ("−",), "'": ("′",),
    }.items()
    for name in names
}  # fmt: skip
_DROPPED = frozenset({
    "~", r"\,", r"\;", r"\:", r"\!", r"\>", r"\ ", r"\/", r"\quad", r"\qquad", r"\thinspace", r"\limits", r"\nolimits",
    r"\displaystyle", r"\textstyle", r"\scriptstyle", r"\scriptscriptstyle", r"\nonumber", r"\notag", r"\strut",
    r"\displaylimits", r"\allowbreak", r"\nobreak", r"\relax",
})  # fmt: skip
_DROPPED_WITH_ARGUMENT = frozenset({r"\hspace", r"\hspace*", r"\vspace", r"\label", r"\kern", r"\hskip"})
_TEXT = frozenset({r"\text", r"\textit", r"\textsf", r"\texttt", r"\textsc"})
_DELIMITED = frozenset({r"\left", r"\right", r"\middle", r"\big", r"\Big", r"\bigg", r"\Bigg"})
_ARGUMENTS = {
    **dict.fromkeys((r"\frac", r"\binom", r"\overset", r"\underset", r"\stackrel"), 2),
    **dict.fromkeys((
        r"\sqrt", r"\hat", r"\bar", r"\vec", r"\tilde", r"\dot", r"\ddot", r"\check", r"\breve", r"\acute", r"\grave",
        r"\mathring", r"\widehat", r"\widetilde", r"\overline", r"\underline", r"\overbrace", r"\underbrace",
        r"\overrightarrow", r"\overleftarrow", r"\mathrm", r"\mathbf", r"\mathit", r"\mathsf", r"\mathtt", r"\mathcal",
        r"\mathbb", r"\mathfrak", r"\mathscr", r"\boldsymbol", r"\operatorname", r"\boxed", r"\phantom", r"\substack",
        r"\pmod", r"\tag",
    ), 1),
}  # fmt: skip
# These act on the rest of their group, so that its braces mean something.
_SWITCHES = frozenset({
    r"\over", r"\atop", r"\choose", r"\rm", r"\bf", r"\it", r"\cal", r"\sf", r"\tt", r"\bfseries", r"\color",
})  # fmt: skip
_WITH_COLUMNS = re.compile(r"\\begin\{(?:array|tabular|alignat\*?|alignedat|subarray)\}")
_LENGTH = re.compile(r"\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in|mu)\s*\]")


def normalise_formula(latex: str) -> str:
    """The normal form of a formula. Never raises.

    Delimiters such as `$` are taken off and what is unbalanced is repaired first (see `formulas.clean_formula`).
    Applying it to its own result changes nothing, as long as every command of the formula has its arguments.
    """
    return join_tokens(formula_tokens(latex))


def formula_tokens(latex: str) -> list[str]:
    r"""The normal form as tokens: commands, `\begin{...}`, single characters, the inside of `\text` as one token."""
    tokens = _TOKEN.findall(clean_formula(latex))
    depth = deepest = 0
    for token in tokens:
        depth += (token == "{") - (token == "}")
        deepest = max(deepest, depth)
    if deepest > _DEEPEST:  # no formula, and deeper than functions should call themselves
        return [token for token in tokens if not token.isspace()]
    return [token for atom in _Reader(tokens).sequence("") for token in atom.tokens]


@dataclass
class _Atom:
    """What a script can be set on: a base, and its scripts if it has any."""

    base: list[str]
    sub: list[str] | None = None
    sup: list[str] | None = None

    @property
    def bare(self) -> bool:
        return self.sub is None and self.sup is None

    @property
    def tokens(self) -> list[str]:
        sup = self.sup
        primes = next((i for i, t in enumerate(sup or []) if t != _PRIME), len(sup or []))
        out = [*self.base, *(["_", *_braced(self.sub)] if self.sub is not None else []), *["'"] * primes]
        rest = (sup or [])[primes:]
        return [*out, "^", *_braced(rest)] if sup is not None and (rest or not primes) else out


def _braced(script: list[str]) -> list[str]:
    return script if len(script) == 1 and _SINGLE.fullmatch(script[0]) else ["{", *script, "}"]


@dataclass
class _Reader:
    tokens: list[str]
    at: int = field(default=0)

    def peek(self) -> str:
        """The next token that is not white space or spacing; "" at the end."""
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token in _DROPPED_WITH_ARGUMENT:
                self.at += 1
                self.argument()
            elif token.isspace() or token in _DROPPED:
                self.at += 1
            else:
                return _ALIASES.get(token, token)
        return ""

    def sequence(self, closer: str) -> list[_Atom]:
        """Atoms up to `closer`, which is taken as well."""
        atoms: list[_Atom] = []
        while token := self.peek():
            if token == closer:
                self.at += 1
                break
            if token in ("_", "^", "'"):
                if not atoms or not atoms[-1].bare:
                    atoms.append(_Atom(["{", "}"] if atoms else []))
                self.scripts(atoms[-1])
            elif token == "{":
                self.at += 1
                atoms += self.group(self.sequence("}"))
            elif token.startswith(r"\end{"):
                self.at += 1
                if atoms and atoms[-1].bare and atoms[-1].base == ["\\\\"]:
                    atoms.pop()
                atoms.append(_Atom([re.sub(r"\s", "", token)]))
            else:
                atoms.append(_Atom(self.single()))
        return atoms

    def group(self, inner: list[_Atom]) -> list[_Atom]:
        """A group that is no argument: kept only where its braces do something."""
        scripted = self.peek() in ("_", "^", "'")
        tokens = [token for atom in inner for token in atom.tokens]
        if (scripted and not (len(inner) == 1 and inner[0].bare)) or not _SWITCHES.isdisjoint(tokens):
            return [_Atom(["{", *tokens, "}"])]
        return inner

    def scripts(self, atom: _Atom) -> None:
        while (token := self.peek()) in ("_", "^", "'"):
            if token == "'":
                self.at += 1
                atom.sup = [*(atom.sup or []), _PRIME]
                continue
            only_primes = atom.sup is not None and all(t == _PRIME for t in atom.sup)
            if (token == "_" and atom.sub is not None) or (token == "^" and atom.sup is not None and not only_primes):
                return
            self.at += 1
            if token == "_":
                atom.sub = self.argument()
            else:
                atom.sup = [*(atom.sup or []), *self.argument()]

    def argument(self) -> list[str]:
        token = self.peek()
        if token == "{":
            self.at += 1
            inner = self.sequence("}")
            # `{{x}}`: the inner braces are already gone.
            return [t for atom in inner for t in atom.tokens]
        if token in ("", "}", "_", "^", "&", "\\\\") or token.startswith(r"\end{"):
            return []
        return self.single()

    def single(self) -> list[str]:
        """One command with its arguments, or one character."""
        token = self.peek()
        self.at += 1
        if token in _TEXT:
            return [token, "{", self.raw(), "}"]
        if token in _DELIMITED:
            delimiter = self.peek()
            if delimiter in ("", "{", "}", "_", "^"):
                return [token]
            self.at += 1
            return [token, delimiter]
        if token == "\\\\":
            rest = _LENGTH.match("".join(self.tokens[self.at : self.at + 12]))
            if rest:
                self.at += len(_TOKEN.findall(rest.group()))
            return [token]
        if token.startswith(r"\begin"):
            token = re.sub(r"\s", "", token)
            if _WITH_COLUMNS.fullmatch(token) and self.peek() == "{":
                return [token, "{", "".join(self.raw().split()), "}"]
            return [token]
        out = [token]
        if token == r"\sqrt" and self.peek() == "[":
            self.at += 1
            out += ["[", *(t for atom in self.sequence("]") for t in atom.tokens), "]"]
        for _ in range(_ARGUMENTS.get(token, 0)):
            out += ["{", *self.argument(), "}"]
        return out

    def raw(self) -> str:
        """A text argument as it is written, white space collapsed."""
        if self.peek() != "{":
            return "".join(self.argument())
        depth, start = 0, self.at
        while self.at < len(self.tokens):
            depth += (self.tokens[self.at] == "{") - (self.tokens[self.at] == "}")
            self.at += 1
            if depth == 0:
                break
        return " ".join("".join(self.tokens[start + 1 : self.at - 1]).replace("~", " ").split())


def join_tokens(tokens: Iterable[str]) -> str:
    """Tokens of the normal form as one string: without spaces, except between a command's name and a letter."""
    out: list[str] = []
    for token in tokens:
        if out and token[:1].isascii() and token[:1].isalpha() and re.fullmatch(r"\\[a-zA-Z]+", out[-1]):
            out.append(" ")
        out.append(token)
    return "".join(out)
