"""The grammar of random formulas: sums of products of what can stand in a formula, equations, matrices, cases.

In: a random generator, a depth, a length. Out: a `formula_tree.Part`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mineru_diffusion.synthesis import formula_symbols as symbols
from mineru_diffusion.synthesis import formula_tree as tree
from mineru_diffusion.synthesis.cells import pick
from mineru_diffusion.synthesis.formula_tree import Part

_WORDS = (
    "if",
    "for all",
    "otherwise",
    "else",
    "where",
    "and",
    "as",
    "with",
    "for some",
    "such that",
    "or",
    "when",
    "on",
)
_SUBSCRIPT_WORDS = (
    "max",
    "min",
    "eff",
    "in",
    "out",
    "eq",
    "ref",
    "tot",
    "obs",
    "rms",
    "kin",
    "rel",
    "opt",
    "crit",
    "eV",
)
_LATIN = "abcdefghijkmnpqrstuvwxyzABCDEFGHIJKLMNPQRSTUVWXYZ"
_BRACKETS = ("round",) * 6 + ("square", "bars", "bars", "curly", "norm", "angle", "floor", "ceil")


class Grammar:
    """One formula's vocabulary, and the rules.

    Args:
        rng: its state decides everything.
        budget: about how many tokens may be written; a rule that needs more than is left is not taken.
    """

    def __init__(self, rng: np.random.Generator, budget: int) -> None:
        self.rng = rng
        self.budget = budget
        names = [tree.symbol(c, c) for c in rng.permutation(list(_LATIN))[: int(rng.integers(2, 7))].tolist()]
        greek = list(symbols.GREEK.items())
        some = rng.permutation(len(greek))[: int(rng.integers(0, 5))].tolist()
        names += [tree.symbol(*greek[i]) for i in some]
        self.names = names

    def top(self, depth: int) -> Part:
        """A whole formula; fractions, roots and the like stand at most `depth` deep in each other."""
        roll = self.rng.random()
        if depth and self.budget > 18:
            if roll < 0.09:
                return self.matrix_equation(depth)
            if roll < 0.14:
                return self.cases(depth)
            if roll < 0.19:
                return self.aligned(depth)
        if roll > 0.97 and self.budget > 10:
            return self.listing()
        if roll < 0.44:
            return self.sum(depth)
        parts = [self.left_side() if roll < 0.75 else self.sum(depth), self.relation(), self.sum(depth)]
        while self.budget > 8 and self.rng.random() < 0.25:
            parts += [self.relation(), self.sum(depth)]
        if self.budget > 8 and self.rng.random() < 0.06:
            parts += [tree.symbol(",", ","), tree.text(pick(self.rng, _WORDS), before=True, after=True)]
            parts += [self.name(), self.relation(), self.small()]
        return tree.sequence(parts)

    def listing(self) -> Part:
        r"""Members of a series, the middle left out: `x_1,\ldots,x_n`."""
        base, comma, dots = self.name(), tree.symbol(",", ","), tree.symbol(r"\ldots", symbols.DOTS[r"\ldots"])
        ends = [tree.scripts(base, end) for end in (tree.number("1"), self.name())]
        inner = tree.sequence([ends[0], comma, dots, comma, ends[1]])
        roll = self.rng.random()
        if roll < 0.3:
            return tree.sequence([inner, tree.symbol(r"\in", "∈"), self.decorated()])
        kind = pick(self.rng, ("round", "curly", "angle"))
        group = tree.brackets(kind, inner)
        return tree.sequence([self.left_side(), tree.symbol("=", "="), group]) if roll < 0.75 else group

    def sum(self, depth: int) -> Part:
        parts = [self.term(depth)]
        while self.budget > 4 and self.rng.random() < 0.42:
            parts += [self.operator(), self.term(depth)]
        if self.rng.random() < 0.07:
            parts.insert(0, tree.symbol("-", "-"))
        elif self.budget > 6 and self.rng.random() < 0.04:
            dots = tree.symbol(r"\cdots", symbols.DOTS[r"\cdots"])
            parts += [tree.symbol("+", "+"), dots, tree.symbol("+", "+"), self.scripted()]
        return tree.sequence(parts)

    def term(self, depth: int) -> Part:
        """A product: perhaps a number, then factors; numbers only in front, where nobody reads two as one."""
        parts = []
        if self.rng.random() < 0.22:
            parts.append(self.number())
            if self.rng.random() < 0.25:
                return parts[0]
        parts.append(self.factor(depth))
        while self.budget > 3 and self.rng.random() < 0.3:
            parts.append(self.factor(depth))
        return tree.sequence(parts)

    def factor(self, depth: int) -> Part:
        if depth == 0 or self.budget < 6:
            return self.call(0) if self.rng.random() < 0.08 and self.budget > 4 else self.scripted()
        rules = (
            (0.38, lambda _: self.scripted()),
            (0.16, lambda d: tree.fraction(self.sum(d), self.sum(d))),
            (0.07, self.root),
            (0.10, self.power),
            (0.09, self.large),
            (0.05, self.integral),
            (0.07, self.call),
            (0.02, lambda d: tree.binomial(self.small(), self.small())),
            (0.05, self.limit),
            (0.03, self.derivative),
        )
        ends = np.cumsum([share for share, _ in rules])
        return rules[int(np.searchsorted(ends, self.rng.random() * ends[-1]))][1](depth - 1)

    def root(self, depth: int) -> Part:
        degree = tree.number(str(self.rng.integers(3, 6))) if self.rng.random() < 0.25 else None
        if degree and self.rng.random() < 0.3:
            degree = tree.symbol("n", "n")
        return tree.root(self.sum(depth), degree)

    def power(self, depth: int) -> Part:
        """Brackets around a sum, mostly with something above."""
        group = tree.brackets(pick(self.rng, _BRACKETS), self.sum(depth))
        roll = self.rng.random()
        if roll > 0.6:
            return group
        # The script is set on the closing bracket, as LaTeX has it; typst must be given the whole group.
        sup = self.number() if roll < 0.35 else self.small()
        sub = self.index() if roll < 0.1 else None
        return tree.scripts(group, sub, sup)

    def large(self, depth: int) -> Part:
        """Sums, products, unions with their limits, and what they act on."""
        sign = tree.symbol(*pick(self.rng, tuple(symbols.SUMS.items())[:2] * 4 + tuple(symbols.SUMS.items())))
        roll = self.rng.random()
        counter = self.name()
        if roll < 0.65:
            lower = tree.sequence([counter, tree.symbol("=", "="), tree.number(str(self.rng.integers(0, 3)))])
            sign = tree.scripts(sign, lower, self.bound(), tall=True)
        elif roll < 0.8:
            relation = tree.symbol(*pick(self.rng, ((r"\in", "∈"), ("<", "<"), (r"\neq", "≠"), (r"\leq", "≤"))))
            sign = tree.scripts(sign, tree.sequence([counter, relation, self.name()]), tall=True)
        elif roll < 0.92:
            sign = tree.scripts(sign, counter, tall=True)
        return tree.sequence([sign, self.term(depth)])

    def integral(self, depth: int) -> Part:
        signs = tuple(symbols.INTEGRALS.items())
        sign = tree.symbol(*pick(self.rng, signs[:1] * 6 + signs))
        roll = self.rng.random()
        if roll < 0.6:
            sign = tree.scripts(sign, self.bound(low=True), self.bound(), tall=True)
        elif roll < 0.8:
            sign = tree.scripts(sign, self.name(), tall=True)
        sign = Part(sign.tokens, sign.typst, sign.mathtext, tall=True)
        return tree.sequence([sign, self.term(depth), self.differential(), self.name()])

    def limit(self, depth: int) -> Part:
        name = pick(self.rng, symbols.LIMITS)
        relation = (r"\to", "→") if name == "lim" else (r"\in", "∈")
        target = self.bound() if name == "lim" else self.name()
        below = tree.sequence([self.name(), tree.symbol(*relation), target])
        return tree.sequence([tree.scripts(tree.function(name), below, tall=True), self.term(depth)])

    def derivative(self, depth: int) -> Part:
        sign = tree.symbol(r"\partial", "∂") if self.rng.random() < 0.6 else self.differential()
        twice = self.rng.random() < 0.25
        order = tree.number("2") if twice else None
        above = tree.scripts(sign, None, order) if order else sign
        below = tree.scripts(self.name(), None, order) if order else self.name()
        return tree.fraction(tree.sequence([above, self.name()]), tree.sequence([sign, below]))

    def call(self, depth: int) -> Part:
        roll = self.rng.random()
        if roll < 0.5:
            word = pick(self.rng, symbols.FUNCTIONS)
            name = tree.function(word)
            self.budget -= 1
            if word in ("det", "gcd"):  # their scripts would stand above and below
                pass
            elif roll < 0.1:
                name = tree.scripts(name, None, tree.number("2"))
            elif roll < 0.15:
                name = tree.scripts(name, self.name())
            if roll > 0.35:
                return tree.sequence([name, self.scripted()])
        else:
            name = self.name()
            name = tree.scripts(name, primes=int(self.rng.integers(1, 3))) if roll < 0.58 else name
        arguments = [self.sum(depth) if roll < 0.9 else self.scripted()]
        if roll > 0.8:
            arguments += [tree.symbol(",", ","), self.name()]
        return tree.sequence([name, tree.brackets("round", tree.sequence(arguments))])

    def matrix_equation(self, depth: int) -> Part:
        kind = pick(self.rng, ("pmatrix", "pmatrix", "bmatrix", "bmatrix", "vmatrix", "matrix"))
        n_rows, n_cols = (int(v) for v in self.rng.integers(1, 4, 2))
        if n_rows == 1 or kind == "matrix":
            n_rows = 2
        plain = self.rng.random() < 0.4
        rows = [[self.entry(plain) for _ in range(n_cols)] for _ in range(n_rows)]
        body = tree.matrix("pmatrix" if kind == "matrix" else kind, rows)
        roll = self.rng.random()
        if roll < 0.3:
            return body
        if roll < 0.4:
            exponent = tree.symbol("T", "T") if self.rng.random() < 0.5 else tree.number(str(self.rng.integers(2, 4)))
            body = tree.scripts(body, None, exponent)
        name = self.name() if roll < 0.7 else tree.command(r"\mathbf", "bold(upright({}))", self.latin())
        if roll > 0.9 and self.budget > 6:
            column = tree.matrix(kind if kind != "matrix" else "bmatrix", [[self.name()] for _ in range(n_cols)])
            return tree.sequence([body, column, tree.symbol("=", "="), self.small()])
        return tree.sequence([name, tree.symbol("=", "="), body])

    def entry(self, plain: bool) -> Part:
        if plain:
            return tree.sequence([tree.symbol("-", "-"), self.number()]) if self.rng.random() < 0.2 else self.number()
        roll = self.rng.random()
        return self.number() if roll < 0.3 else self.scripted() if roll < 0.8 else self.sum(0)

    def cases(self, depth: int) -> Part:
        rows = []
        for _ in range(int(self.rng.integers(2, 4))):
            condition = [self.name(), self.relation(), self.small()]
            if self.rng.random() < 0.7:
                condition.insert(0, tree.text(pick(self.rng, ("if", "if", "for", "when")), after=True))
            rows.append((self.sum(min(depth, 1) if self.rng.random() < 0.2 else 0), tree.sequence(condition)))
        if self.rng.random() < 0.4:
            rows[-1] = (rows[-1][0], tree.text(pick(self.rng, ("otherwise", "else"))))
        return tree.sequence([self.left_side(), tree.symbol("=", "="), tree.cases(rows)])

    def aligned(self, depth: int) -> Part:
        empty = tree.sequence([])
        rows = []
        for i in range(int(self.rng.integers(2, 4))):
            sign = tree.symbol("=", "=") if self.rng.random() < 0.85 else self.relation()
            left = self.left_side() if i == 0 or self.rng.random() < 0.4 else empty
            rows.append((left, tree.sequence([sign, self.sum(max(0, depth - 1))])))
        return tree.aligned(rows)

    def left_side(self) -> Part:
        return self.call(0) if self.rng.random() < 0.35 else self.scripted()

    def scripted(self) -> Part:
        """A letter, plain or with an accent, and what stands at its corners."""
        base = self.decorated()
        roll = self.rng.random()
        if roll < 0.5:
            return base
        if roll < 0.72:
            return tree.scripts(base, self.index())
        if roll < 0.88:
            sup = self.number(single=True) if self.rng.random() < 0.6 else self.exponent()
            return tree.scripts(base, None, sup)
        if roll < 0.94:
            return tree.scripts(base, self.index(), self.number(single=True))
        return tree.scripts(base, primes=int(self.rng.integers(1, 3)))

    def decorated(self) -> Part:
        roll = self.rng.random()
        if roll < 0.82:
            return self.name()
        if roll < 0.87:
            self.budget -= 2
            return tree.command(*pick(self.rng, tuple(symbols.ACCENTS.items())), self.undotted())
        if roll < 0.90:
            self.budget -= 3
            both = tree.sequence([self.undotted(), self.undotted()])
            return tree.command(*pick(self.rng, tuple(symbols.OVER.items())), both)
        if roll < 0.93:
            self.budget -= 1
            return tree.symbol(*pick(self.rng, tuple(symbols.CONSTANTS.items())))
        self.budget -= 2
        name, form = pick(self.rng, tuple(symbols.ALPHABETS.items()))
        letter = pick(self.rng, "RNZCQEPF" if name == r"\mathbb" else "ABCDEFGHLMNPRSTXYZ")
        small = name in (r"\mathbf", r"\mathrm") and self.rng.random() < 0.5
        return tree.command(name, form, tree.symbol(*[letter.lower() if small else letter] * 2))

    def index(self) -> Part:
        roll = self.rng.random()
        if roll < 0.35:
            return self.number(single=True)
        if roll < 0.75:
            return self.name()
        if roll < 0.83:
            return tree.sequence([self.name(), self.name()])
        if roll < 0.93:
            return tree.sequence([self.name(), tree.symbol(*pick(self.rng, (("+", "+"), ("-", "-"), (",", ",")))),
                                  self.number(single=True)])  # fmt: skip
        words = pick(self.rng, _SUBSCRIPT_WORDS)
        self.budget -= len(words)
        return Part((r"\mathrm", "{", *words, "}"), f'upright("{words}")', rf"\mathrm{{{words}}}")

    def exponent(self) -> Part:
        roll = self.rng.random()
        if roll < 0.4:
            return self.name()
        if roll < 0.7:
            return tree.sequence([tree.symbol("-", "-"), self.number(single=True) if roll < 0.55 else self.name()])
        if roll < 0.8:
            return tree.symbol(*pick(self.rng, (("*", "∗"), ("+", "+"), (r"\circ", "∘"), ("T", "T"))))
        return self.small()

    def small(self) -> Part:
        """A number, a name, or a short sum of both."""
        roll = self.rng.random()
        if roll < 0.4:
            return self.number(single=True)
        if roll < 0.75:
            return self.name()
        return tree.sequence(
            [self.name(), tree.symbol(*pick(self.rng, (("+", "+"), ("-", "-")))), self.number(single=True)]
        )

    def bound(self, *, low: bool = False) -> Part:
        roll = self.rng.random()
        if roll < 0.4:
            return self.number(single=True) if low or roll < 0.1 else self.name()
        if roll < 0.7:
            infinite = tree.symbol(r"\infty", "∞")
            return tree.sequence([tree.symbol("-", "-"), infinite]) if low else infinite
        return self.small()

    def number(self, *, single: bool = False) -> Part:
        if single:
            text = str(self.rng.integers(0, 10)) if self.rng.random() < 0.3 else pick(self.rng, "12")
        else:
            roll = self.rng.random()
            text = str(self.rng.integers(1, 10) if roll < 0.6 else self.rng.integers(10, 1000))
            text = f"{self.rng.uniform(0, 20):.{int(self.rng.integers(1, 3))}f}" if roll > 0.88 else text
        self.budget -= len(text)
        return tree.number(text)

    def name(self) -> Part:
        self.budget -= 1
        return self.names[int(self.rng.integers(len(self.names)))]

    def latin(self) -> Part:
        letter = pick(self.rng, _LATIN)
        return tree.symbol(letter, letter)

    def undotted(self) -> Part:
        """A name that an accent can stand on: not i or j, which typst and careful authors set without their dots."""
        name = self.name()
        while name.latex in ("i", "j"):
            name = self.latin()
        return name

    def differential(self) -> Part:
        if self.rng.random() < 0.5:
            return tree.symbol("d", "d")
        return tree.command(r"\mathrm", "upright({})", tree.symbol("d", "d"))

    def operator(self) -> Part:
        self.budget -= 1
        return tree.symbol(*_weighted(self.rng, symbols.OPERATORS, (("+", "+"), ("-", "-"))))

    def relation(self) -> Part:
        self.budget -= 1
        return tree.symbol(*_weighted(self.rng, symbols.RELATIONS, (("=", "="),)))


def _weighted(rng: np.random.Generator, table: dict[str, str], common: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Mostly one of the common entries, else any."""
    return pick(rng, common) if rng.random() < 0.65 else pick(rng, tuple(table.items()))
