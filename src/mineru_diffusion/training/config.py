"""Training configuration: frozen dataclasses that a YAML file fills (`training.config_file`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

LINES = "lines"
"""Name of the rendered text lines in `DataConfig.mixture`; every other name is a folder or file of shards."""


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
    """Rendered text lines. Lengths are in characters; `degrade` scales all damage (0: clean); `loose` is how often they
    have much paper above and below, which the parser cuts away. The exported checkpoint asks for lines wider than
    `max_aspect` times their height to be read in pieces."""

    min_chars: int = 1
    max_chars: int = 70
    degrade: float = 1.0
    loose: float = 1.0
    chunk: int = 2048
    workers: int = 1
    max_aspect: float = 25.0


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from.

    Attributes:
        mixture: share of the batches by source: `lines` (rendered text lines, which alone have the helper losses), or a
            Parquet shard or a folder of them. Empty: lines only.
        chunk: samples of a shard that are sorted by length and packed together.
        workers: processes that read shards.
        max_visual: samples with more visual tokens are left out.
        held_out: shards that evaluation reads; training never does.
    """

    mixture: dict[str, float] = field(default_factory=dict)
    chunk: int = 256
    workers: int = 1
    max_visual: int = 2048
    held_out: str = ""


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW for embeddings, heads, norms and the projector; Muon (Jordan et al., 2024) for the layers' matrices
    (`muon_lr` 0: AdamW for these too).

    The rate warms up linearly over `warmup_steps`. Then: `wsd` stays and falls linearly to nothing over the last
    `decay_steps`; `cosine` falls to `lowest` (a share of the rate) at `max_steps`; `constant` stays.
    """

    lr: float = 1e-3
    muon_lr: float = 0.01
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    schedule: Literal["wsd", "cosine", "constant"] = "wsd"
    warmup_steps: int = 200
    decay_steps: int = 0
    lowest: float = 0.0
    clip: float = 1.0
    ema: float = 0.999


@dataclass(frozen=True)
class HelpersConfig:
    """Weights of the training-only losses (see `training.helpers`); 0 leaves one out. All but `ctc` need to know where
    each character stands, so they are for rendered lines; `ctc` reads one-line images of shards."""

    slots: float = 1.0
    count: float = 0.3
    alignment: float = 0.3
    spelling: float = 0.5
    place: float = 0.3
    alignment_layers: tuple[int, ...] = (1, 2)
    ctc: float = 0.0


@dataclass(frozen=True)
class DiffusionConfig:
    """The objective: see `diffusion.noising.NoiseConfig`. `draws` noise draws share one clean pass."""

    block_length: int = 16
    weighting: Literal["mean", "inverse_t"] = "mean"
    ordered_share: float = 0.4
    full_share: float = 0.1
    complementary: bool = False
    draws: int = 2
    fill_weight: float = 0.2


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters (arXiv 2106.09685) on the decoder's and the merger's matrices; everything else is frozen.
    `rank` 0: none."""

    rank: int = 0
    alpha: int = 32
    dropout: float = 0.0


@dataclass(frozen=True)
class EvaluationConfig:
    """Looks at held-out data with the averaged weights while training goes on.

    Attributes:
        every: steps between evaluations; 0: none. The best checkpoint is kept in `best/`.
        samples: held-out samples that an evaluation reads.
        show_every: steps between transcriptions of `show` held-out samples on the terminal; 0: none.
    """

    every: int = 0
    samples: int = 64
    show_every: int = 0
    show: int = 4


@dataclass(frozen=True)
class TrainConfig:
    """One training run.

    Attributes:
        objective: masked diffusion by blocks, or the autoregressive twin: the same network and data, each position
            predicting the next token.
        stage: `vision` trains the eye alone with the helper losses; `joint` trains everything.
        checkpoint: a checkpoint folder whose network, tokenizer and processor are trained on (then `network` is not
            used); empty: a new network.
        init_from: weights to start from: another run's folder, or a checkpoint of the same network.
        tasks: what an exported checkpoint says that it can do. This and the next three are for new networks; a
            `checkpoint` keeps its own.
        layout_size: width and height of the page that layouts are found on.
        max_pixels: area that larger images are shrunk to; 0: a long text line's.
        max_tokens: the longest answer.
        freeze_vision: in `joint`, keep vision tower and projector as they are (cheaper steps).
        batch_positions: decoder positions (or visual patches / 2) a batch holds at most.
        accumulate: batches a step, over all processes together at least one each.
        precision: of the arithmetic (autocast); weights and their optimizer stay in float32.
        checkpointing: compute activations again in the backward pass instead of keeping them.
        attention: `flex` (FlexAttention, compiled, sparse masks), `sdpa`, or `auto`: flex on CUDA.
        compile: compile the layers (needs a C++ compiler on CPUs; a minute at the start, then about 1.2 times as fast).
        tensorboard: write TensorBoard events beside `log.jsonl`.
        export_dtype: of the exported checkpoint's weights.
        device: `auto` is CUDA where there is one, else the CPU; which GPUs is CUDA_VISIBLE_DEVICES' matter.
        grow_from: lines grow with skill: the longest line is widened when the loss falls under `grow_below`.
    """

    name: str = "tiny"
    seed: int = 0
    objective: Literal["diffusion", "autoregressive"] = "diffusion"
    stage: Literal["vision", "joint"] = "joint"
    checkpoint: str = ""
    init_from: str = ""
    tasks: tuple[str, ...] = ("text",)
    layout_size: tuple[int, int] = (1036, 1036)
    max_pixels: int = 0
    max_tokens: int = 256
    freeze_vision: bool = False
    max_steps: int = 100_000
    batch_positions: int = 6000
    accumulate: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpointing: bool = False
    attention: Literal["auto", "sdpa", "flex"] = "auto"
    compile: bool = False
    log_every: int = 20
    tensorboard: bool = False
    save_minutes: float = 4.0
    export_dtype: Literal["float16", "bfloat16", "float32"] = "float16"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    grow_from: int = 0
    grow_below: float = 0.5
    grow_by: int = 8
    network: NetworkConfig = field(default_factory=NetworkConfig)
    lines: LinesConfig = field(default_factory=LinesConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    helpers: HelpersConfig = field(default_factory=HelpersConfig)
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    @property
    def block_length(self) -> int:
        """Tokens decoded together: 1 for the autoregressive twin."""
        return 1 if self.objective == "autoregressive" else self.diffusion.block_length

    @property
    def draws(self) -> int:
        """Noisy streams beside the clean one: none for the autoregressive twin and for the eye alone."""
        return self.diffusion.draws if self.objective == "diffusion" and self.stage == "joint" else 0

    @property
    def sources(self) -> dict[str, float]:
        """The data sources and their shares."""
        return self.data.mixture or {LINES: 1.0}
