"""The decoding loop. It exists once: `model.generate`, the engine and the benchmarks all run it, for diffusion and for
autoregressive checkpoints.

Shapes: T positions of a pass, W decoder width, R sequences that take a step, B block length, M masked positions of
these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import record_function

from mineru_diffusion.diffusion.unmasking import BlockStatistics, UnmaskingPolicy
from mineru_diffusion.engine.blocks import BlockTable
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.graphs import make_passes
from mineru_diffusion.engine.head import predict
from mineru_diffusion.engine.kernels import choose_kernel
from mineru_diffusion.engine.passes import Passes
from mineru_diffusion.engine.scheduler import Planned, Scheduler
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.engine.stats import EngineStats
from mineru_diffusion.engine.transfer import to_device
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration

CAUSAL_PAGE = 32
"""Positions of a page where blocks have one position."""

CAUSAL_PREFILL = 16
"""Prompt positions of a pass for each sequence that may run, where blocks have one position."""


def page_tokens(block_length: int) -> int:
    """Positions of a cache page."""
    return block_length if block_length > 1 else CAUSAL_PAGE


class DecodingLoop:
    """Runs sequences to their end on one model.

    Args:
        model: in evaluation mode, on its device.
        block_length: B; 1 where `causal`.
        max_rows: sequences that run at a time.
        max_pages: pages of the cache.
        kernel: what attends over the cache: `sdpa`, `flex`, or `auto`: flex on CUDA where it works.
        graphs: record passes as CUDA graphs and replay them; None: on CUDA. Elsewhere they only get the graphs' shapes.

    Raises:
        UsageError: an unknown kernel.
    """

    def __init__(
        self,
        model: MinerUDiffusionForConditionalGeneration,
        *,
        block_length: int,
        max_rows: int,
        max_pages: int,
        kernel: str = "auto",
        graphs: bool | None = None,
    ) -> None:
        text = model.config.text_config
        weight = model.language_model.lm_head.weight
        self.model = model
        self.block_length = block_length
        self.mask_id = int(model.config.mask_token_id)
        self.device, self.dtype = weight.device, weight.dtype
        self.decoder = InferenceDecoder(model.language_model.model)
        self.cache = PagedCache(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            page_tokens=page_tokens(block_length),
            max_pages=max_pages,
            dtype=self.dtype,
            device=self.device,
        )
        attends = choose_kernel(
            kernel,
            self.device,
            self.dtype,
            heads=text.num_key_value_heads,
            repeats=self.decoder.repeats,
            length=block_length,
            width=text.head_dim,
        )
        self.passes: Passes = make_passes(
            self.decoder, self.cache, attends, block_length=block_length, device=self.device, graphs=graphs
        )
        rows = max(2, max_rows)
        self.scheduler = Scheduler(self.cache, rows, rows * (block_length if block_length > 1 else CAUSAL_PREFILL))
        self.blocks = BlockTable(block_length, self.mask_id, text.vocab_size)
        self.stats = EngineStats(
            max_rows=rows,
            page_tokens=self.cache.page_tokens,
            pages=max_pages,
            page_bytes=PagedCache.page_bytes(
                text.num_hidden_layers, text.num_key_value_heads, text.head_dim, self.cache.page_tokens, self.dtype
            ),
        )

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence: its pages and its block."""
        self.scheduler.release(sequence)
        self.blocks.release(sequence)

    @torch.inference_mode()
    def run_pass(self) -> Iterator[Sequence]:
        """One forward pass; yields the sequences that it finished."""
        stats = self.stats
        with stats.timed("plan"):
            planned = self.scheduler.plan()
            if not planned:
                return
            asking = [rows.sequence for rows in planned if rows.asks]
            table_rows = self.blocks.rows(asking)
            masked_RB = self.blocks.masked(table_rows)
            forward = self.passes.plan(
                self._embeddings(planned),
                [rows.run() for rows in planned],
                [rows.sequence.asked if rows.asks else None for rows in planned],
                None if masked_RB.all() else np.flatnonzero(masked_RB),
            )
        self._count(planned, masked_RB)
        with stats.timed("forward"), record_function("forward"):
            hidden_MW = forward()
        stats.graphed = self.passes.graphed
        for rows in planned:
            rows.sequence.nfe += 1
            rows.sequence.cached = rows.known
        if hidden_MW is None:
            return
        self._step(asking, table_rows, masked_RB, hidden_MW)
        for sequence in asking:
            if sequence.finish_reason is not None:
                stats.tokens += len(sequence.tokens)
                stats.requests += 1
                self.release(sequence)
                yield sequence

    def _count(self, planned: list[Planned], masked_RB: NDArray[np.bool_]) -> None:
        stats, block = self.stats, self.block_length
        stats.passes += 1
        stats.sequences += len(planned)
        stats.asked += int(masked_RB.sum())
        stats.preempted, stats.peak_pages = self.scheduler.preempted, self.cache.peak
        for rows in planned:
            count = rows.stop - rows.start
            prompt = max(0, min(rows.known, len(rows.sequence.prompt_ids)) - rows.start)
            stats.rows += -(-count // block)
            stats.positions += count
            stats.prompt_positions += prompt
            stats.commit_positions += rows.known - rows.start - prompt

    def _embeddings(self, planned: list[Planned]) -> Tensor:
        """The pass's input [T, W]."""
        ids: list[NDArray[np.int64]] = []
        prompts: list[tuple[int, Tensor]] = []
        at = 0
        for rows in planned:
            sequence, size = rows.sequence, len(rows.sequence.prompt_ids)
            if rows.start < size:
                assert sequence.prompt_embeds is not None
                piece = sequence.prompt_embeds[rows.start : rows.known]
                prompts.append((at, piece))
                ids.append(np.zeros(piece.shape[0], dtype=np.int64))
            if rows.known > size:
                ids.append(np.array(sequence.tokens[max(0, rows.start - size) : rows.known - size], dtype=np.int64))
            if rows.stop > rows.known:
                ids.append(self.blocks.ids[sequence.row])
            at += rows.stop - rows.start
        x: Tensor = self.model.get_input_embeddings()(to_device(np.concatenate(ids), self.device))
        for start, piece in prompts:
            x[start : start + piece.shape[0]] = piece
        return x

    def _step(
        self,
        asking: list[Sequence],
        rows: NDArray[np.int64],
        masked_RB: NDArray[np.bool_],
        hidden_MW: Tensor,
    ) -> None:
        """Predict tokens at all masked positions, then let each sequence's policy keep some."""
        needs_entropy = any(sequence.policy.needs_entropy for sequence in asking)
        with self.stats.timed("head"), record_function("head"):
            prediction = predict(
                self.model.language_model.lm_head,
                hidden_MW,
                mask_id=self.mask_id,
                temperatures=[(sequence.temperature, sequence.generator) for sequence in asking],
                counts=masked_RB.sum(axis=1).tolist(),
                entropy=needs_entropy,
            )

            tokens_RB = _spread(prediction.token, masked_RB)
            confidence_RB = _spread(prediction.confidence, masked_RB)
            entropy_RB = None if prediction.entropy is None else _spread(prediction.entropy, masked_RB)
        with self.stats.timed("decide"), record_function("decide"):
            step_R = self.blocks.steps_in_block[rows]
            groups: dict[UnmaskingPolicy, list[int]] = defaultdict(list)
            for number, sequence in enumerate(asking):
                groups[sequence.policy].append(number)
            chosen_RB = np.zeros(masked_RB.shape, dtype=bool)
            for policy, at in groups.items():
                statistics = BlockStatistics(
                    confidence=torch.from_numpy(confidence_RB[at]),
                    masked=torch.from_numpy(masked_RB[at]),
                    step=torch.from_numpy(step_R[at]),
                    entropy=None if entropy_RB is None else torch.from_numpy(entropy_RB[at]),
                )
                chosen_RB[at] = policy.select(statistics).numpy()
            self.stats.decided += int(chosen_RB.sum())
            self.blocks.decide(asking, rows, chosen_RB, tokens_RB, confidence_RB)
        now = perf_counter()
        for sequence in asking:
            sequence.step_times.append(now)


def _spread(values_M: Tensor, masked_RB: NDArray[np.bool_]) -> NDArray[Any]:
    """Values of the masked positions in their places [R, B], 0 elsewhere."""
    values = values_M.cpu().numpy()
    out = np.zeros(masked_RB.shape, dtype=values.dtype)
    out[masked_RB] = values
    return out
