"""From requests to sequences: prompts, settings with the checkpoint's defaults filled in, and stop tokens."""

from __future__ import annotations

import torch

from mineru_diffusion.diffusion.unmasking import make_policy
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams
from mineru_diffusion.errors import UsageError
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration


def block_length_of(profile: CheckpointProfile, block_length: int | None = None) -> int:
    """Block length to decode with: the given one or the checkpoint's; 1 for an autoregressive checkpoint.

    Raises:
        UsageError: another block length than 1 for an autoregressive checkpoint.
    """
    if profile.objective == "autoregressive":
        if block_length not in (None, 1):
            raise UsageError(f"an autoregressive checkpoint has blocks of one token, not {block_length}")
        return 1
    return block_length or profile.block_length


def new_sequence(
    request_id: int,
    prompt_ids: list[int],
    params: DecodingParams,
    profile: CheckpointProfile,
    *,
    block_length: int,
    mask_id: int,
    default_stops: frozenset[int],
    tag: object = None,
) -> Sequence:
    """A request's state, with the checkpoint's defaults filled in.

    Raises:
        UsageError: a parameter is out of range.
    """
    max_tokens = profile.max_tokens if params.max_tokens is None else params.max_tokens
    if max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, not {max_tokens}")
    if not prompt_ids:
        raise UsageError("the prompt is empty")
    if params.temperature < 0:
        raise UsageError(f"the temperature must not be negative, not {params.temperature}")
    try:
        policy = make_policy(
            params.policy or ("threshold" if params.threshold is not None else profile.policy),
            threshold=profile.threshold if params.threshold is None else params.threshold,
            steps=params.steps,
            factor=params.factor,
            gamma=params.gamma,
            joint=params.joint,
            block_length=block_length,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return Sequence(
        id=request_id,
        prompt_ids=prompt_ids,
        block_length=block_length,
        mask_id=mask_id,
        policy=policy,
        max_tokens=max_tokens,
        stop_ids=default_stops if params.stop_ids is None else frozenset(params.stop_ids),
        temperature=params.temperature,
        skip_after_stop=True if params.skip_after_stop is None else params.skip_after_stop,
        guard=params.repetition_guard,
        causal=profile.objective == "autoregressive",
        generator=torch.Generator().manual_seed(params.seed) if params.temperature > 0 else None,
        tag=tag,
    )


def stop_ids_of(model: MinerUDiffusionForConditionalGeneration) -> frozenset[int]:
    """End tokens as the checkpoint's generation configuration, or its config, has them."""
    for source in (model.generation_config, model.config, model.config.text_config):
        eos = getattr(source, "eos_token_id", None)
        if eos is not None:
            return frozenset(int(i) for i in (eos if isinstance(eos, (list, tuple)) else [eos]))
    return frozenset()
