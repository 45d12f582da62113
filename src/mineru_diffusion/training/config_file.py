"""YAML files to configurations. Unknown keys and wrong values are errors that name their place, not surprises."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mineru_diffusion.errors import UsageError
from mineru_diffusion.training.config import TrainConfig
from mineru_diffusion.training.streams import noise_config


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
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise UsageError(f"{place}: expected names with numbers, not {value!r}")
        return {str(key): _checked(get_args(kind)[1], item, f"{place}.{key}") for key, item in value.items()}
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
    _check_together(config, str(path))
    return config


def _check_together(config: TrainConfig, where: str) -> None:
    """What single values cannot show."""
    diffusion = config.diffusion
    if config.objective == "diffusion":
        try:
            noise_config(diffusion)
        except ValueError as error:
            raise UsageError(f"{where}: diffusion: {error}") from error
        if diffusion.complementary and diffusion.draws % 2:
            raise UsageError(f"{where}: diffusion.complementary pairs its draws: make diffusion.draws even")
    if min(diffusion.block_length, diffusion.draws, config.accumulate, config.log_every) < 1:
        raise UsageError(f"{where}: block_length, draws, accumulate and log_every must be at least 1")
    bad = [name for name, share in config.sources.items() if not share > 0]
    if bad:
        raise UsageError(f"{where}: data.mixture.{bad[0]}: a share must be above 0; leave the source out instead")
    if config.lora.rank and not (config.checkpoint or config.init_from):
        raise UsageError(f"{where}: lora adapts a trained network: set checkpoint (or init_from)")
