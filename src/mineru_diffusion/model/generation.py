"""`model.generate` for Hugging Face users, in the conventions of transformers' own block-diffusion model: a
`GenerationConfig` that carries the sampler's fields and a `ModelOutput` with the sequences and the trace. The decoding
loop itself lives in the engine, once; this is a thin call into it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.modeling_outputs import ModelOutput

from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams
from mineru_diffusion.errors import CheckpointError, UsageError
from mineru_diffusion.model.configuration import MinerUDiffusionConfig

if TYPE_CHECKING:
    from mineru_diffusion.model.modeling import MinerUDiffusionForConditionalGeneration

SECTION = "mineru_diffusion"


def profile_from_dict(section: dict[str, Any] | None) -> CheckpointProfile:
    """The profile of a checkpoint from its `mineru_diffusion` section; None is the published checkpoint."""
    known = {k: v for k, v in (section or {}).items() if k in CheckpointProfile.__dataclass_fields__}
    if "tasks" in known:
        known["tasks"] = tuple(known["tasks"])
    if "layout_image_size" in known:
        known["layout_image_size"] = tuple(known["layout_image_size"])
    return CheckpointProfile(**known)


def read_profile(folder: str | Path) -> CheckpointProfile:
    """Read `generation_config.json` of a checkpoint folder; a missing file or section is the published checkpoint.

    Raises:
        CheckpointError: the file is not JSON.
    """
    path = Path(folder) / "generation_config.json"
    if not path.is_file():
        return CheckpointProfile()
    try:
        return profile_from_dict(json.loads(path.read_text(encoding="utf-8")).get(SECTION))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from error


class BlockDiffusionGenerationConfig(GenerationConfig):  # type: ignore[misc]
    """A `GenerationConfig` with the sampler's fields; `None` means: what the checkpoint says.

    Args:
        block_length: tokens denoised together.
        policy: `threshold`, `prefix`, `fixed`, `factor` or `entropy`.
        threshold: confidence of the `threshold` and `prefix` policies.
        denoising_steps: steps a block of the `fixed` policy.
        factor: f of the `factor` policy.
        entropy_bound: gamma of the `entropy` policy, nats.
        joint: joint confidence of the `prefix` policy that is enough for a run from the block's left end.
        seed: seed of the random stream when `temperature` is above 0.
        kwargs: everything else of `GenerationConfig` (`max_new_tokens`, `eos_token_id`, `temperature`, ...).
    """

    def __init__(self, **kwargs: Any) -> None:
        self.block_length: int | None = kwargs.pop("block_length", None)
        self.policy: str | None = kwargs.pop("policy", None)
        self.threshold: float | None = kwargs.pop("threshold", None)
        self.denoising_steps: int | None = kwargs.pop("denoising_steps", None)
        self.factor: float | None = kwargs.pop("factor", None)
        self.entropy_bound: float | None = kwargs.pop("entropy_bound", None)
        self.joint: float | None = kwargs.pop("joint", None)
        self.seed: int = kwargs.pop("seed", 0)
        super().__init__(**kwargs)

    def decoding_params(self) -> DecodingParams:
        """These settings as the engine takes them. Greedy unless `do_sample` is set, as everywhere in transformers."""
        eos = self.eos_token_id
        stop = None if eos is None else tuple(int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos]))
        sampling = bool(self.do_sample)
        return DecodingParams(
            policy=self.policy,  # type: ignore[arg-type]
            threshold=self.threshold,
            steps=self.denoising_steps,
            factor=self.factor,
            gamma=self.entropy_bound,
            joint=self.joint,
            temperature=float(self.temperature if self.temperature is not None else 1.0) if sampling else 0.0,
            seed=self.seed,
            max_tokens=self.max_new_tokens,
            stop_ids=stop,
        )


@dataclass
class BlockDiffusionOutput(ModelOutput):  # type: ignore[misc]
    """What `generate` returns.

    Attributes:
        sequences: prompt and generated ids [N, P + G], padded on the right with the pad id.
        steps: denoising step (from 1) at which each generated token was decided [N, G], 0 for padding.
        confidences: probability with which it was decided [N, G], 0 for padding.
        num_forward_passes: forward passes of each sample [N].
        tokens_per_forward: generated tokens per forward pass [N].
        finish_reasons: `stop`, `length` or `repetition`, one a sample.
    """

    sequences: Tensor | None = None
    steps: Tensor | None = None
    confidences: Tensor | None = None
    num_forward_passes: Tensor | None = None
    tokens_per_forward: Tensor | None = None
    finish_reasons: tuple[str, ...] | None = None


class BlockDiffusionMixin:
    """Gives the model `generate`."""

    config: MinerUDiffusionConfig
    generation_config: GenerationConfig | None

    @classmethod
    def can_generate(cls) -> bool:
        """transformers asks the class or an instance."""
        return True

    @torch.no_grad()
    def generate(
        self,
        input_ids: Tensor,
        pixel_values: Tensor | None = None,
        image_grid_thw: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> BlockDiffusionOutput | Tensor:
        """Decode by block-wise masked diffusion.

        Args:
            input_ids: prompts [N, P] of equal length, image tokens already expanded (the processor does that).
            pixel_values: patch rows of all images of all prompts.
            image_grid_thw: [images, 3].
            generation_config: settings; `kwargs` override single fields.
            attention_mask: must be all ones (a prompt is never padded), or None.

        Returns:
            `BlockDiffusionOutput`; only the sequences with `return_dict_in_generate=False`.

        Raises:
            UsageError: padded prompts, or fields that `BlockDiffusionGenerationConfig` does not know.
        """
        from mineru_diffusion.engine.batch import generate_batch

        if attention_mask is not None and not bool(attention_mask.all()):
            raise UsageError("padded prompts cannot share one call: pass them one by one, or use an Engine")
        config = _merged_config(generation_config, self.generation_config, kwargs)
        section = getattr(self.generation_config, SECTION, None)
        profile = profile_from_dict(section)
        results = generate_batch(
            cast("MinerUDiffusionForConditionalGeneration", self),
            input_ids,
            pixel_values,
            image_grid_thw,
            config.decoding_params(),
            profile,
            block_length=config.block_length,
        )
        pad = config.pad_token_id
        if pad is None:
            pad = getattr(self.config, "pad_token_id", None) or 0
        width = max((len(result.tokens) for result in results), default=0)
        shape = (len(results), width)
        device = input_ids.device
        tokens = torch.full(shape, int(pad), dtype=input_ids.dtype, device=device)
        steps = torch.zeros(shape, dtype=torch.long, device=device)
        confidences = torch.zeros(shape, device=device)
        for row, result in enumerate(results):
            length = len(result.tokens)
            tokens[row, :length] = torch.tensor(result.tokens, dtype=tokens.dtype)
            steps[row, :length] = torch.tensor(result.steps, dtype=torch.long)
            confidences[row, :length] = torch.tensor(result.confidences, dtype=torch.float32)
        sequences = torch.cat((input_ids, tokens), dim=1)
        if kwargs.get("return_dict_in_generate") is False:
            return sequences
        passes = torch.tensor([result.nfe for result in results], device=device)
        lengths = torch.tensor([len(result.tokens) for result in results], device=device)
        return BlockDiffusionOutput(
            sequences=sequences,
            steps=steps,
            confidences=confidences,
            num_forward_passes=passes,
            tokens_per_forward=lengths / passes.clamp_min(1),
            finish_reasons=tuple(result.finish_reason for result in results),
        )


def _merged_config(
    given: GenerationConfig | None, own: GenerationConfig | None, overrides: dict[str, Any]
) -> BlockDiffusionGenerationConfig:
    """The call's settings over the given configuration over the checkpoint's own."""
    fields: dict[str, Any] = {}
    for source in (own, given):
        if source is not None:
            fields.update({k: v for k, v in source.to_dict().items() if v is not None})
    overrides = {k: v for k, v in overrides.items() if k != "return_dict_in_generate"}
    unknown = sorted(
        set(overrides) - set(GenerationConfig().to_dict()) - set(BlockDiffusionGenerationConfig().__dict__)
    )
    if unknown:
        raise UsageError(f"generate() does not know {', '.join(unknown)}; see BlockDiffusionGenerationConfig")
    fields.update(overrides)
    for private in [key for key in fields if key.startswith("_") or key in ("transformers_version", SECTION)]:
        fields.pop(private)
    return BlockDiffusionGenerationConfig(**fields)
