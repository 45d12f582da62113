"""The tiny checkpoint's tokenizer: one token a character, plus the published structural tokens, plus one token for each
fixed piece of the prompt (which would otherwise cost a token a character in every request)."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|MASK|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|ref_start|>",
    "<|ref_end|>",
    "<|rotate_up|>",
    "<|rotate_right|>",
    "<|rotate_down|>",
    "<|rotate_left|>",
    "<nl>",
    "<fcel>",
    "<ecel>",
    "<lcel>",
    "<ucel>",
    "<xcel>",
)

PROMPT_PIECES = (
    "system\n",
    "user\n",
    "assistant\n",
    "You are a helpful assistant.",
    "\nText Recognition:",
    "\nTable Recognition:",
    "\nFormula Recognition:",
    "\nLayout Detection:",
    "\nImage Analysis:",
)

UNKNOWN = "\ufffd"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message['role'] + '\\n' -}}\n"
    "{%- if message['content'] is string -%}{{- message['content'] -}}{%- else -%}\n"
    "{%- for part in message['content'] -%}\n"
    "{%- if part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}\n"
    "{%- elif part['type'] == 'text' -%}{{- part['text'] -}}{%- endif -%}\n"
    "{%- endfor -%}{%- endif -%}\n"
    "{{- '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}\n"
)


def character_tokenizer(characters: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build the tokenizer.

    Args:
        characters: the single characters that the model can write; order does not matter.

    Raises:
        ValueError: an entry is not a single character.
    """
    alphabet = sorted({*characters, "\n", UNKNOWN})
    if any(len(character) != 1 for character in alphabet):
        raise ValueError("the alphabet must consist of single characters")
    tokens = [*SPECIAL_TOKENS, *PROMPT_PIECES, *alphabet]
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    core.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in PROMPT_PIECES])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_max_length=32768,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
