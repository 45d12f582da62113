"""YAML files to configurations. Unknown keys and wrong values are errors that name their place, not surprises."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mineru_diffusion.engine.types import Task
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
        return _tuple(get_args(kind), value, place)
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


def _tuple(kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"{place}: expected a list, not {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise UsageError(f"{place}: expected {len(kinds)} values, not {value!r}")
    return tuple(_checked(kind, item, f"{place}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


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
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); pass one of the files in configs/") from error
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
        try:
            target[last] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"--set {override}: the value is not valid YAML ({error})") from error
    config: TrainConfig = config_from_dict(TrainConfig, values, str(path))
    _check_together(config, str(path))
    return config


_LEAST = {
    "max_steps": 0,
    "batch_positions": 1,
    "accumulate": 1,
    "log_every": 1,
    "max_tokens": 1,
    "lines.min_chars": 1,
    "lines.max_chars": 1,
    "lines.chunk": 1,
    "lines.workers": 0,
    "data.chunk": 1,
    "data.workers": 0,
    "diffusion.block_length": 1,
    "diffusion.draws": 1,
    "lora.rank": 0,
    "evaluation.every": 0,
    "evaluation.samples": 1,
    "evaluation.show_every": 0,
    "evaluation.show": 1,
}
"""The smallest value that makes sense, by place."""


def _check_network(config: TrainConfig, where: str) -> None:
    """A new network's sizes fit each other."""
    network = config.network
    small = [f.name for f in fields(network) if getattr(network, f.name) <= 0]
    if small:
        raise UsageError(f"{where}: network.{small[0]}: must be above 0, not {getattr(network, small[0])}")
    if network.heads % network.kv_heads:
        raise UsageError(f"{where}: network.heads: {network.heads} must be a multiple of kv_heads {network.kv_heads}")
    if network.vision_width % network.vision_heads:
        raise UsageError(
            f"{where}: network.vision_width: {network.vision_width} must be a multiple of vision_heads "
            f"{network.vision_heads}"
        )
    lost = [layer for layer in config.helpers.alignment_layers if not 0 <= layer < network.layers]
    if config.helpers.alignment and lost:
        raise UsageError(
            f"{where}: helpers.alignment_layers: there is no layer {lost[0]}, only 0 to {network.layers - 1}"
        )


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
    for place, least in _LEAST.items():
        section, _, name = place.rpartition(".")
        value = getattr(getattr(config, section) if section else config, name)
        if value < least:
            raise UsageError(f"{where}: {place}: must be at least {least}, not {value}")
    if not 0 <= config.optimizer.ema < 1:
        raise UsageError(f"{where}: optimizer.ema: must be at least 0 and below 1, not {config.optimizer.ema}")
    shares = diffusion.ordered_share, diffusion.full_share
    if min(shares) < 0 or sum(shares) > 1:
        raise UsageError(f"{where}: diffusion.ordered_share and full_share are parts of one whole, not {shares}")
    unknown = [task for task in config.tasks if task not in get_args(Task)]
    if unknown or not config.tasks:
        raise UsageError(f"{where}: tasks: name some of {', '.join(get_args(Task))}, not {list(config.tasks)}")
    if not config.checkpoint:
        _check_network(config, where)
    bad = [name for name, share in config.sources.items() if not share > 0]
    if bad:
        raise UsageError(f"{where}: data.mixture.{bad[0]}: a share must be above 0; leave the source out instead")
    if config.lora.rank and not (config.checkpoint or config.init_from):
        raise UsageError(f"{where}: lora adapts a trained network: set checkpoint (or init_from)")
