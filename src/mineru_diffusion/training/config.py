"""Training configuration: frozen dataclasses that a YAML file fills. Unknown keys are an error, not a surprise."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mineru_diffusion.errors import UsageError


@dataclass(frozen=True)
class NetworkConfig:
    """Size of a network that is trained from scratch (the published architecture, smaller)."""

    vision_width: int = 144
    vision_depth: int = 5
    vision_heads: int = 3
    patch_size: int = 8
    merge: int = 2
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 512
    rope_theta: float = 10000.0


@dataclass(frozen=True)
class LinesConfig:
    """Rendered text lines. Lengths are in characters; `degrade` scales all damage (0: clean). The exported checkpoint
    asks for lines wider than `max_aspect` times their height to be read in pieces."""

    min_chars: int = 1
    max_chars: int = 70
    degrade: float = 1.0
    chunk: int = 2048
    workers: int = 1
    max_aspect: float = 25.0


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW for embeddings, heads, norms and the projector; Muon (Jordan et al., 2024) for the layers' matrices.

    The rate warms up linearly, stays, and falls linearly to nothing over the last `decay_steps` (WSD schedule).
    """

    lr: float = 1e-3
    muon_lr: float = 0.01
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    warmup_steps: int = 200
    decay_steps: int = 0
    clip: float = 1.0
    ema: float = 0.999


@dataclass(frozen=True)
class HelpersConfig:
    """Weights of the training-only losses (see `training.helpers`); 0 leaves one out."""

    slots: float = 1.0
    count: float = 0.3
    alignment: float = 0.3
    spelling: float = 0.5
    place: float = 0.3
    alignment_layers: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class DiffusionConfig:
    """The objective: see `diffusion.noising.NoiseConfig`. `draws` noise draws share one clean pass."""

    block_length: int = 16
    weighting: Literal["mean", "inverse_t"] = "mean"
    ordered_share: float = 0.4
    full_share: float = 0.1
    draws: int = 2
    fill_weight: float = 0.2


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    Attributes:
        stage: `vision` trains the eye alone with the helper losses; `joint` trains everything.
        freeze_vision: in `joint`, keep vision tower and projector as they are (cheaper steps).
        batch_positions: decoder positions (or visual patches / 2) a batch holds at most.
        compile: compile the layers (needs a C++ compiler on CPUs; a minute at the start, then about 1.2 times as fast).
        grow: lines grow with skill: the longest line is widened when the loss falls under `grow_below`.
    """

    name: str = "tiny"
    seed: int = 0
    stage: Literal["vision", "joint"] = "joint"
    init_from: str = ""
    freeze_vision: bool = False
    max_steps: int = 100_000
    batch_positions: int = 6000
    compile: bool = False
    log_every: int = 20
    save_minutes: float = 4.0
    device: str = "auto"
    grow_from: int = 0
    grow_below: float = 0.5
    grow_by: int = 8
    network: NetworkConfig = field(default_factory=NetworkConfig)
    lines: LinesConfig = field(default_factory=LinesConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    helpers: HelpersConfig = field(default_factory=HelpersConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)


def config_from_dict(cls: type[Any], values: dict[str, Any], where: str = "") -> Any:
    """Fill a (nested) dataclass.

    Raises:
        UsageError: a key that the dataclass does not have, with the ones that it has.
    """
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise UsageError(
            f"{where or cls.__name__}: unknown key {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )
    out: dict[str, Any] = {}
    for key, value in values.items():
        place = f"{where}.{key}".lstrip(".")
        out[key] = _checked(hints[key], value, place)
    return cls(**out)


def _checked(kind: Any, value: Any, place: str) -> Any:
    """The value as `kind` wants it, or a UsageError that names the place."""
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise UsageError(f"{place}: expected a section of settings, not {value!r}")
        return config_from_dict(kind, value, place)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UsageError(f"{place}: {value!r} is not one of {', '.join(map(str, get_args(kind)))}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise UsageError(f"{place}: expected a list, not {value!r}")
        return tuple(value)
    if kind is float:
        # YAML reads 1e-3, without a point, as text.
        try:
            return float(value)
        except (TypeError, ValueError):
            raise UsageError(f"{place}: expected a number, not {value!r}") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{place}: expected {kind.__name__}, not {value!r}")
    return value


def load_config(path: str | Path, overrides: list[str] | None = None) -> TrainConfig:
    """Read a YAML file; `overrides` are `section.key=value` strings (values in YAML).

    Raises:
        UsageError: the file is missing or malformed, or a key is unknown.
    """
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; configurations are in configs/") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid YAML ({error})") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected sections of settings")
    for override in overrides or []:
        key, separator, value = override.partition("=")
        if not separator:
            raise UsageError(f"--set {override}: write section.key=value")
        target = values
        *parents, last = key.split(".")
        for parent in parents:
            target = target.setdefault(parent, {}) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise UsageError(f"--set {override}: {key.rpartition('.')[0]} is no section")
        target[last] = yaml.safe_load(value)
    config: TrainConfig = config_from_dict(TrainConfig, values, str(path))
    return config
