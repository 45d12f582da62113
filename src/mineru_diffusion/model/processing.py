"""Prompt and images to model inputs, and token ids back to text. The chat template belongs to the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from transformers import AutoTokenizer, BatchFeature, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessorMixin

from mineru_diffusion.errors import CheckpointError
from mineru_diffusion.model.images import ImageProcessor

#: Tokens that frame a conversation; they never belong to a transcription. Structural tokens (layout, OTSL) do.
TERMINATORS = (
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<|MASK|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_pad|>",
)


@dataclass(frozen=True)
class EncodedPrompt:
    """Model inputs of one request: ids [P], patch rows [S, ...] or None, and the images' grids."""

    input_ids: list[int]
    pixels: NDArray[np.float32] | None
    grid: tuple[tuple[int, int, int], ...]


class MinerUDiffusionProcessor(ProcessorMixin):  # type: ignore[misc]
    """Tokenizer and image processor of one checkpoint.

    Works the same under every supported transformers version: it reads and writes the published files itself.
    """

    attributes = ["tokenizer"]  # noqa: RUF012
    tokenizer_class = "AutoTokenizer"

    def __init__(
        self, image_processor: ImageProcessor, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        self.image_processor = image_processor
        self.tokenizer = tokenizer
        self.chat_template = chat_template or getattr(tokenizer, "chat_template", None)
        self._skipped = frozenset(
            i for i in (tokenizer.convert_tokens_to_ids(token) for token in TERMINATORS) if isinstance(i, int)
        )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **_: Any) -> MinerUDiffusionProcessor:
        """Load from a checkpoint folder.

        Raises:
            CheckpointError: a file is missing, or there is no chat template.
        """
        folder = Path(pretrained_model_name_or_path)
        image_processor = ImageProcessor.from_pretrained(folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{folder}: the tokenizer cannot be loaded ({error}); copy its files again"
            ) from error
        template = folder / "chat_template.jinja"
        text = template.read_text(encoding="utf-8") if template.is_file() else None
        processor = cls(image_processor, tokenizer, text)
        if not processor.chat_template:
            raise CheckpointError(
                f"{folder} has no chat template; copy chat_template.jinja from the published checkpoint"
            )
        return processor

    def save_pretrained(self, save_directory: str | Path, **_: Any) -> list[str]:
        """Write the published files into `save_directory`."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        written = [str(path) for path in self.tokenizer.save_pretrained(str(folder))]
        for name, contents in (
            ("preprocessor_config.json", self.image_processor.to_dict()),
            ("processor_config.json", {"processor_class": type(self).__name__}),
        ):
            (folder / name).write_text(json.dumps(contents, indent=2, sort_keys=True) + "\n", encoding="utf-8")
            written.append(str(folder / name))
        if self.chat_template:
            (folder / "chat_template.jinja").write_text(str(self.chat_template), encoding="utf-8")
        return written

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Render messages with the checkpoint's template (text by default; the images are passed to `__call__`)."""
        kwargs.setdefault("tokenize", False)
        return self.tokenizer.apply_chat_template(conversation, chat_template=self.chat_template, **kwargs)

    def prompt(self, text: str, *, images: int = 1, system: str = "You are a helpful assistant.") -> str:
        """The rendered prompt: system turn, then the user's images and text, then the assistant's turn opened."""
        content = [*({"type": "image"} for _ in range(images)), {"type": "text", "text": text}]
        messages = [{"role": "system", "content": system}, {"role": "user", "content": content}]
        return str(self.apply_chat_template(messages, add_generation_prompt=True))

    def encode(self, prompt: str, images: Sequence[Image.Image] = ()) -> EncodedPrompt:
        """Token ids with each image placeholder expanded to its number of visual tokens, and the patch rows.

        Raises:
            ValueError: the prompt has more or fewer image placeholders than there are images.
        """
        encoded = [self.image_processor.patches(image) for image in images]
        merge = self.image_processor.merge_size**2
        counts = [rows.shape[0] // merge for rows, _ in encoded]
        pixels = np.concatenate([rows for rows, _ in encoded]) if encoded else None
        return EncodedPrompt(self.expand(prompt, counts), pixels, tuple(grid for _, grid in encoded))

    def expand(self, prompt: str, visual_tokens: Sequence[int]) -> list[int]:
        """Tokenise a rendered prompt, each image placeholder repeated `visual_tokens[i]` times."""
        pieces = prompt.split("<|image_pad|>")
        if len(pieces) - 1 != len(visual_tokens):
            raise ValueError(
                f"the prompt has {len(pieces) - 1} image placeholders but {len(visual_tokens)} images were passed; "
                "text from users must not contain <|image_pad|>"
            )
        text = pieces[0]
        for count, piece in zip(visual_tokens, pieces[1:], strict=True):
            text += "<|image_pad|>" * count + piece
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def __call__(
        self,
        images: Image.Image | Sequence[Image.Image] | None = None,
        text: str | Sequence[str] | None = None,
        return_tensors: str | None = None,
        **_: Any,
    ) -> BatchFeature:
        """Inputs for `model(...)` and `model.generate(...)`; prompts of one batch must have equal length.

        Args:
            images: all images of all prompts, in order.
            text: rendered prompts, see `prompt` and `apply_chat_template`.
            return_tensors: `"pt"`, `"np"` or None.

        Raises:
            ValueError: placeholders and images disagree, or prompts of different lengths are to become one tensor.
        """
        prompts = [text] if isinstance(text, str) else list(text or [])
        pictures = [images] if isinstance(images, Image.Image) else list(images or [])
        rows, start = [], 0
        for prompt in prompts:
            count = prompt.count("<|image_pad|>")
            rows.append(self.encode(prompt, pictures[start : start + count]))
            start += count
        if start != len(pictures):
            raise ValueError(f"{len(pictures)} images were passed but the prompts have {start} image placeholders")
        if return_tensors and len({len(row.input_ids) for row in rows}) > 1:
            raise ValueError(
                "prompts of different lengths cannot share one tensor; pass them one by one or to an Engine"
            )
        data: dict[str, Any] = {
            "input_ids": [row.input_ids for row in rows],
            "attention_mask": [[1] * len(row.input_ids) for row in rows],
        }
        if pictures:
            data["pixel_values"] = np.concatenate([row.pixels for row in rows if row.pixels is not None])
            data["image_grid_thw"] = np.array([grid for row in rows for grid in row.grid], dtype=np.int64)
        return BatchFeature(data, tensor_type=return_tensors)

    def decode(self, token_ids: Iterable[int], **_: Any) -> str:
        """Text of generated ids: structural tokens stay, terminators and masks go."""
        kept = [int(i) for i in token_ids if int(i) not in self._skipped]
        return str(self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def batch_decode(self, sequences: Iterable[Iterable[int]], **kwargs: Any) -> list[str]:
        """`decode` for each sequence."""
        return [self.decode(ids, **kwargs) for ids in sequences]

    @property
    def model_input_names(self) -> list[str]:
        return ["input_ids", "attention_mask", "pixel_values", "image_grid_thw"]

    def __repr__(self) -> str:
        return f"MinerUDiffusionProcessor({self.image_processor}, vocabulary of {len(self.tokenizer)})"
