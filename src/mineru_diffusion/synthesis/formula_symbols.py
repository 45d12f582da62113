r"""What the symbols of formulas are called in LaTeX, and the character that typst draws for them.

The names are those of the normal form (`document.formula_normal`); all of them exist in matplotlib's mathtext as well.
"""

from __future__ import annotations

GREEK = {
    r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\epsilon": "ϵ", r"\varepsilon": "ε",
    r"\zeta": "ζ", r"\eta": "η", r"\theta": "θ", r"\vartheta": "ϑ", r"\kappa": "κ", r"\lambda": "λ", r"\mu": "μ",
    r"\nu": "ν", r"\xi": "ξ", r"\pi": "π", r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ", r"\phi": "ϕ", r"\varphi": "φ",
    r"\chi": "χ", r"\psi": "ψ", r"\omega": "ω", r"\Gamma": "Γ", r"\Delta": "Δ", r"\Theta": "Θ", r"\Lambda": "Λ",
    r"\Xi": "Ξ", r"\Pi": "Π", r"\Sigma": "Σ", r"\Phi": "Φ", r"\Psi": "Ψ", r"\Omega": "Ω",
}  # fmt: skip
CONSTANTS = {r"\infty": "∞", r"\partial": "∂", r"\nabla": "∇", r"\hbar": "ℏ", r"\ell": "ℓ", r"\emptyset": "∅"}
OPERATORS = {
    "+": "+", "-": "-", r"\pm": "±", r"\mp": "∓", r"\cdot": "⋅", r"\times": "×", r"\cup": "∪", r"\cap": "∩",
    r"\oplus": "⊕", r"\otimes": "⊗", r"\wedge": "∧", r"\vee": "∨", r"\setminus": "∖", r"\circ": "∘", "*": "∗",
}  # fmt: skip
RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\leq": "≤", r"\geq": "≥", r"\neq": "≠", r"\approx": "≈", r"\equiv": "≡",
    r"\sim": "∼", r"\simeq": "≃", r"\propto": "∝", r"\in": "∈", r"\notin": "∉", r"\subset": "⊂", r"\subseteq": "⊆",
    r"\to": "→", r"\mapsto": "↦", r"\Rightarrow": "⇒", r"\Leftrightarrow": "⇔", r"\ll": "≪", r"\gg": "≫",
}  # fmt: skip
SUMS = {r"\sum": "∑", r"\prod": "∏", r"\bigcup": "⋃", r"\bigcap": "⋂", r"\bigoplus": "⨁"}
INTEGRALS = {r"\int": "∫", r"\oint": "∮", r"\iint": "∬"}
FUNCTIONS = (
    "sin", "cos", "tan", "log", "ln", "exp", "det", "dim", "ker", "arg", "sinh", "cosh", "tanh", "arctan", "cot", "gcd",
    "deg",
)  # fmt: skip
LIMITS = ("lim", "lim", "lim", "max", "min", "sup", "inf")
DOTS = {r"\ldots": "…", r"\cdots": "⋯"}
ACCENTS = {
    r"\hat": "hat({})", r"\bar": "macron({})", r"\vec": "arrow({})", r"\tilde": "tilde({})", r"\dot": "dot({})",
    r"\ddot": "dot.double({})",
}  # fmt: skip
OVER = {r"\overline": "overline({})", r"\widehat": "hat({})", r"\widetilde": "tilde({})"}
ALPHABETS = {r"\mathbf": "bold(upright({}))", r"\mathbb": "bb({})", r"\mathcal": "cal({})", r"\mathrm": "upright({})"}
# (opening, closing) in LaTeX and in typst.
BRACKETS = {
    "round": (("(", ")"), ("(", ")")),
    "square": (("[", "]"), ("[", "]")),
    "curly": ((r"\{", r"\}"), ("{", "}")),
    "bars": (("|", "|"), ("|", "|")),
    "norm": ((r"\|", r"\|"), ("‖", "‖")),
    "angle": ((r"\langle", r"\rangle"), ("⟨", "⟩")),
    "floor": ((r"\lfloor", r"\rfloor"), ("⌊", "⌋")),
    "ceil": ((r"\lceil", r"\rceil"), ("⌈", "⌉")),
}
