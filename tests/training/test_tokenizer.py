from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.training.tokenizer import PROMPT_PIECES, SPECIAL_TOKENS, UNKNOWN, character_tokenizer

TOKENIZER = character_tokenizer(CHARSET)


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"])


@given(st.text(st.sampled_from(CHARSET), max_size=80))
def test_text_round_trips_a_token_a_character(text: str) -> None:
    ids = TOKENIZER.convert_tokens_to_ids(list(text))
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


def test_structural_tokens_are_single() -> None:
    for token in (*SPECIAL_TOKENS, *PROMPT_PIECES):
        assert len(encode(token)) == 1, token


def test_unknown_characters_become_the_replacement() -> None:
    assert TOKENIZER.decode(encode("a\u4e00b")) == f"a{UNKNOWN}b"


def test_characters_only() -> None:
    with pytest.raises(ValueError, match="single characters"):
        character_tokenizer(["ab"])
