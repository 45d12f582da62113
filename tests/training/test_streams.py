"""The fast training layouts against slow references that build every input one by one: losses and gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mineru_diffusion.diffusion.noising import draw_streams, token_weights
from mineru_diffusion.training.config import DiffusionConfig
from mineru_diffusion.training.streams import (
    Document,
    Objective,
    StreamLayout,
    batch_loss,
    noise_config,
    packed_loss,
    target_weights,
)
from tests.tiny import random_model
from tests.training.reference import block_by_block, token_by_token

WATCHED = (
    "language_model.model.embed_tokens.weight",
    "language_model.model.layers.0.self_attn.k_proj.weight",
    "language_model.model.layers.2.mlp.down_proj.weight",
    "language_model.lm_head.weight",
)


def gradients(loss: Tensor) -> dict[str, Tensor]:
    model, _ = random_model()
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(loss, [parameters[name] for name in WATCHED])
    return dict(zip(WATCHED, found, strict=True))


def same(fast: Tensor, slow: Tensor) -> None:
    """Equal losses and gradients."""
    assert float(fast.detach()) == pytest.approx(float(slow.detach()), rel=1e-4)
    expected = gradients(slow)
    for name, gradient in gradients(fast).items():
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(gradient, expected[name], atol=2e-4 * scale, rtol=1e-3)


def batch(prompt_length: int, blocks: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prompt ids [2, P], answers [2, A] and lengths."""
    generator = torch.Generator().manual_seed(1)
    prompt = torch.randint(60, 200, (2, prompt_length), generator=generator)
    answers = torch.randint(60, 200, (2, blocks * block), generator=generator)
    return prompt, answers, torch.tensor([blocks * block, blocks * block // 2])


@pytest.mark.parametrize("weighting", ["mean", "inverse_t"])
@pytest.mark.parametrize(("draws", "complementary"), [(1, False), (2, True)])
@pytest.mark.parametrize("prompt_length", [7, 8])
def test_two_streams_equal_block_by_block(weighting: str, draws: int, complementary: bool, prompt_length: int) -> None:
    model, _ = random_model()
    block = 4
    config = DiffusionConfig(
        block_length=block,
        weighting=weighting,  # type: ignore[arg-type]
        draws=draws,
        complementary=complementary,
        ordered_share=0.4 if weighting == "mean" else 0.0,
        full_share=0.1 if weighting == "mean" else 0.0,
    )
    prompt, answers, lengths = batch(prompt_length, 3, block)
    weights = target_weights(answers, lengths, block, 0.25)
    fast = batch_loss(
        model, model.embed(prompt), answers, weights, Objective(config), torch.Generator().manual_seed(2)
    ).loss

    masked, levels = draw_streams((2, 12), noise_config(config), draws, torch.Generator().manual_seed(2))
    factors = token_weights(masked, levels, weighting) * weights[:, None]  # type: ignore[arg-type]
    slow = torch.zeros(())
    for sample in range(2):
        for draw in range(draws):
            slow = slow + block_by_block(
                model, model.embed(prompt)[sample], answers[sample], masked[sample, draw], factors[sample, draw], block
            )
    same(fast, slow / (weights.sum() * draws if weighting == "inverse_t" else factors.sum()))


def test_autoregressive_equals_token_by_token() -> None:
    model, _ = random_model()
    prompt, answers, lengths = batch(7, 8, 1)
    objective = Objective(DiffusionConfig(), autoregressive=True)
    weights = objective.weights(answers, lengths)
    assert weights.tolist() == [[1.0] * 8, [1.0] * 4 + [0.0] * 4]
    fast = batch_loss(model, model.embed(prompt), answers, weights, objective).loss
    slow = torch.zeros(())
    for sample in range(2):
        slow = slow + token_by_token(model, model.embed(prompt)[sample], answers[sample], weights[sample])
    same(fast, slow / weights.sum())


@pytest.mark.parametrize("autoregressive", [False, True])
def test_packed_documents_do_not_see_each_other(autoregressive: bool) -> None:
    """Documents of several lengths in one sequence have the mean of their losses alone, weighted by their targets."""
    model, _ = random_model()
    objective = Objective(DiffusionConfig(block_length=4, draws=2), autoregressive)
    generator = torch.Generator().manual_seed(3)
    documents = [
        Document(
            torch.randint(60, 200, (prompt,), generator=generator),
            torch.randint(60, 200, (answer,), generator=generator),
            length,
        )
        for prompt, answer, length in ((5, 8, 6), (9, 4, 4), (8, 12, 11))
    ]
    none = torch.zeros((0, model.config.text_config.hidden_size))
    noise = torch.Generator().manual_seed(4)
    together = packed_loss(model, documents, none, objective, noise)
    noise = torch.Generator().manual_seed(4)
    total = counted = torch.zeros(())
    for document in documents:
        state = noise.get_state()
        alone = packed_loss(model, [document], none, objective, noise)
        # The noise once more, for the weight that this document has in the mean.
        again = torch.Generator()
        again.set_state(state)
        answers = document.answer[None]
        weights = objective.weights(answers, torch.tensor([document.length]))
        if autoregressive:
            count = weights.sum()
        else:
            masked, _ = draw_streams((1, answers.shape[1]), noise_config(objective.diffusion), 2, again)
            count = (masked * weights[:, None]).sum()
        total, counted = total + alone.loss * count, counted + count
    same(together.loss, total / counted)
    # FlexAttention has no backward pass on CPUs; on CUDA it is what runs.
    with torch.no_grad():
        kernel = replace(objective, flex=True)
        flex = packed_loss(model, documents, none, kernel, torch.Generator().manual_seed(4))
    assert float(flex.loss) == pytest.approx(float(together.loss.detach()), rel=1e-5)


def test_where_answer_tokens_stand() -> None:
    """What the helper losses ask of a position is about the token that it predicts (or, in the clean stream, is)."""
    tokens = torch.tensor([[10, 11, 12, 13]])
    causal = StreamLayout(prompt=3, answer=4, block=1, draws=0)
    assert (causal.first, causal.length) == (2, 6)
    assert causal.positions().tolist() == [0, 1, 2, 3, 4, 5]
    assert causal.tokens(tokens, tokens.new_empty((1, 0, 4))).tolist() == [[10, 11, 12]]
    assert causal.per_position(tokens).tolist() == [[10, 11, 12, 13]]
    assert causal.at_end(tokens[:, None]).tolist() == [[0, 0, 10, 11, 12, 13]]
    streams = StreamLayout(prompt=3, answer=4, block=2, draws=2)
    assert (streams.first, streams.length) == (3, 3 + 2 + 8)
    assert streams.positions().tolist() == [0, 1, 2, 3, 4, *[3, 4, 5, 6] * 2]
    noisy = torch.tensor([[[1, 11, 1, 13], [10, 1, 12, 1]]])
    assert streams.tokens(tokens, noisy).tolist() == [[10, 11, 1, 11, 1, 13, 10, 1, 12, 1]]
    assert streams.per_position(tokens).tolist() == [[10, 11, *[10, 11, 12, 13] * 2]]
    assert streams.at_end(noisy).tolist() == [[0] * 5 + noisy.flatten().tolist()]


def test_target_weights() -> None:
    weights = target_weights(torch.zeros((2, 12)), torch.tensor([12, 6]), 4, 0.25)
    assert weights.tolist() == [[1.0] * 12, [1.0] * 6 + [0.25] * 2 + [0.0] * 4]


def test_many_logits_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = random_model()
    prompt, answers, lengths = batch(7, 8, 1)
    objective = Objective(DiffusionConfig(), autoregressive=True)
    weights = objective.weights(answers, lengths)
    whole = batch_loss(model, model.embed(prompt), answers, weights, objective)
    monkeypatch.setattr("mineru_diffusion.training.streams.HEAD_CHUNK_ELEMENTS", 5 * 400)
    pieces = batch_loss(model, model.embed(prompt), answers, weights, objective)
    assert torch.equal(whole.parts["accuracy"], pieces.parts["accuracy"])
    same(pieces.loss, whole.loss)
