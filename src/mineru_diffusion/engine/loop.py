"""The decoding loop. It exists once: `model.generate`, the engine and the benchmarks all run it.

Shapes: N rows, B block length, D decoder width, V vocabulary, M masked positions of all denoised rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mineru_diffusion.diffusion.unmasking import BlockStatistics, UnmaskingPolicy
from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.rows import RowAttention
from mineru_diffusion.engine.scheduler import PlannedRows, Scheduler
from mineru_diffusion.engine.sequence import Sequence
from mineru_diffusion.model import MinerUDiffusionForConditionalGeneration

HEAD_CHUNK_ELEMENTS = 1 << 26
"""Logits held at a time (256 MB in float32): bounds memory with vocabularies of 150,000 tokens."""


@dataclass
class LoopCounters:
    """What the loop did since it was made.

    Attributes:
        passes: forward passes of the decoder.
        rows: rows in all passes; `rows / passes` is the occupancy.
        tokens: tokens of finished requests.
    """

    passes: int = 0
    rows: int = 0
    tokens: int = 0


class DecodingLoop:
    """Runs sequences to their end on one model.

    Args:
        model: in evaluation mode, on its device.
        block_length: B.
        max_rows: rows of a pass.
        max_pages: pages of the cache.
    """

    def __init__(
        self, model: MinerUDiffusionForConditionalGeneration, *, block_length: int, max_rows: int, max_pages: int
    ) -> None:
        text = model.config.text_config
        weight = model.language_model.lm_head.weight
        self.model = model
        self.block_length = block_length
        self.mask_id = int(model.config.mask_token_id)
        self.device, self.dtype = weight.device, weight.dtype
        self.cache = PagedCache(
            layers=text.num_hidden_layers,
            kv_heads=text.num_key_value_heads,
            head_dim=text.head_dim,
            block_length=block_length,
            max_pages=max_pages,
            dtype=self.dtype,
            device=self.device,
        )
        self.scheduler = Scheduler(self.cache, max_rows)
        self.counters = LoopCounters()

    @torch.inference_mode()
    def run_pass(self) -> Iterator[Sequence]:
        """One forward pass; yields the sequences that it finished."""
        planned = self.scheduler.plan()
        if not planned:
            return
        embeds, positions, logits_at = self._inputs(planned)
        attention = RowAttention(self.cache, [rows.span() for rows in planned], self.device)
        output = self.model(
            inputs_embeds=embeds, position_ids=positions, attention=attention, logits_at=logits_at, project=False
        )
        self.counters.passes += 1
        self.counters.rows += embeds.shape[0]
        for rows in planned:
            sequence = rows.sequence
            sequence.nfe += 1
            if rows.prompt_rows:
                sequence.prefilled += rows.prompt_rows
                if sequence.prefilled == sequence.prompt_pages:
                    sequence.prompt_embeds = None
            if rows.commit:
                sequence.uncommitted = None
        denoised = [rows.sequence for rows in planned if rows.denoise]
        if denoised:
            assert output.last_hidden_state is not None
            self._decide(denoised, output.last_hidden_state)
        for sequence in denoised:
            if sequence.finish_reason is not None:
                self.counters.tokens += len(sequence.tokens)
                self.scheduler.release(sequence)
                yield sequence

    def _inputs(self, planned: list[PlannedRows]) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings [N, B, D], positions [N, B] and where logits are wanted [N, B]."""
        block = self.block_length
        count = sum(rows.count for rows in planned)
        ids = np.full((count, block), self.mask_id, dtype=np.int64)
        first = np.zeros(count, dtype=np.int64)
        wanted = np.zeros((count, block), dtype=bool)
        prompts: list[tuple[int, Tensor]] = []
        at = 0
        for rows in planned:
            sequence = rows.sequence
            for row in range(rows.first_prompt_row, rows.first_prompt_row + rows.prompt_rows):
                assert sequence.prompt_embeds is not None
                start = row * block - sequence.pad
                piece = sequence.prompt_embeds[max(0, start) : start + block]
                prompts.append((at, piece))
                first[at] = start
                at += 1
            generated = len(sequence.prompt_ids) + len(sequence.tokens)
            if rows.commit:
                assert sequence.uncommitted is not None
                ids[at] = sequence.uncommitted
                first[at] = generated - block
                at += 1
            if rows.denoise:
                ids[at] = sequence.block
                first[at] = generated
                wanted[at] = sequence.masked
                at += 1
        embeds = self.model.get_input_embeddings()(torch.from_numpy(ids).to(self.device))
        for row, piece in prompts:
            # The short first block sits at the page's end; the empty slots before it are never attended to.
            embeds[row, : block - piece.shape[0]] = 0
            embeds[row, block - piece.shape[0] :] = piece
        positions = torch.from_numpy(np.maximum(first[:, None] + np.arange(block), 0)).to(self.device)
        return embeds, positions, torch.from_numpy(wanted).to(self.device)

    def _decide(self, denoised: list[Sequence], hidden_MD: Tensor) -> None:
        """Choose tokens at all masked positions, then let each sequence's policy keep some."""
        masked = np.stack([sequence.masked for sequence in denoised])
        needs_entropy = any(sequence.policy.needs_entropy for sequence in denoised)
        token, confidence, entropy = self._statistics(hidden_MD, denoised, masked, needs_entropy)
        shape = masked.shape
        tokens_RB = np.zeros(shape, dtype=np.int64)
        confidence_RB = np.zeros(shape, dtype=np.float32)
        tokens_RB[masked] = token.cpu().numpy()
        confidence_RB[masked] = confidence.cpu().numpy()
        entropy_RB = None
        if entropy is not None:
            entropy_RB = np.zeros(shape, dtype=np.float32)
            entropy_RB[masked] = entropy.cpu().numpy()
        groups: dict[UnmaskingPolicy, list[int]] = defaultdict(list)
        for row, sequence in enumerate(denoised):
            groups[sequence.policy].append(row)
        for policy, members in groups.items():
            statistics = BlockStatistics(
                confidence=torch.from_numpy(confidence_RB[members]),
                masked=torch.from_numpy(masked[members]),
                step=torch.tensor([denoised[row].steps_in_block for row in members]),
                entropy=None if entropy_RB is None else torch.from_numpy(entropy_RB[members]),
            )
            chosen = policy.select(statistics).numpy()
            for row, choice in zip(members, chosen, strict=True):
                denoised[row].decide(choice, tokens_RB[row], confidence_RB[row])

    def _statistics(
        self, hidden_MD: Tensor, denoised: list[Sequence], masked: np.ndarray, needs_entropy: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Token, its probability and (if needed) the entropy at each masked position [M], chunk by chunk."""
        head = self.model.language_model.lm_head
        chunk = max(1, HEAD_CHUNK_ELEMENTS // head.weight.shape[0])
        sampling = [(s, n) for s, n in zip(denoised, masked.sum(axis=1), strict=True)]
        temperatures = None
        if any(s.temperature > 0 for s in denoised):
            temperatures = torch.tensor([s.temperature for s, n in sampling for _ in range(n)], device=self.device)
        noise = self._uniforms(sampling) if temperatures is not None else None
        parts: list[tuple[Tensor, Tensor, Tensor | None]] = []
        for start in range(0, hidden_MD.shape[0], chunk):
            piece = slice(start, start + chunk)
            logits = head(hidden_MD[piece]).float()
            if temperatures is not None and noise is not None:
                heat = temperatures[piece, None]
                logits = torch.where(heat > 0, logits / heat.clamp_min(1e-6), logits)
            total = logits.logsumexp(dim=-1)
            entropy = None
            if needs_entropy:
                entropy = total - (F.softmax(logits, dim=-1) * logits).sum(dim=-1)
            # The mask token keeps its share of the probability but is never a prediction.
            logits[:, self.mask_id] = -torch.inf
            best = logits.argmax(dim=-1)
            if temperatures is not None and noise is not None:
                cumulative = F.softmax(logits, dim=-1).cumsum(dim=-1)
                drawn = torch.searchsorted(cumulative, noise[piece, None] * cumulative[:, -1:]).squeeze(-1)
                drawn = drawn.clamp_max(logits.shape[-1] - 1)
                best = torch.where(temperatures[piece] > 0, drawn, best)
            picked = logits.gather(-1, best[:, None]).squeeze(-1)
            parts.append((best, (picked - total).exp(), entropy))
        token = torch.cat([p[0] for p in parts])
        confidence = torch.cat([p[1] for p in parts])
        entropies = [p[2] for p in parts if p[2] is not None]
        return token, confidence, torch.cat(entropies) if entropies else None

    def _uniforms(self, sampling: list[tuple[Sequence, int]]) -> Tensor:
        """One uniform number per masked position, from each request's own stream: the batch changes nothing."""
        drawn = []
        for sequence, count in sampling:
            if sequence.temperature > 0 and sequence.generator is not None:
                drawn.append(torch.rand(int(count), generator=sequence.generator))
            else:
                drawn.append(torch.zeros(int(count)))
        return torch.cat(drawn).to(self.device)
