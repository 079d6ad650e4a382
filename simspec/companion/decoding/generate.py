"""Drive a loop until every text of a batch has its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from simspec.companion.decoding._base import Loop, Round


def rounds(
    loop: Loop, prompts: Sequence[Sequence[int]], num_tokens: int
) -> Iterator[tuple[list[int], Round]]:
    """Prefill, then yield round after round with the numbers of the prompts that took part.

    A text that has its tokens leaves the batch after that round; what a round yields beyond them
    is in the round, not in the answer.
    """
    loop.start(prompts, num_tokens)
    yield from going_on(loop, [len(prompt) + num_tokens for prompt in prompts])


def going_on(loop: Loop, wanted: Sequence[int]) -> Iterator[tuple[list[int], Round]]:
    """Yield the rounds of a loop that has started, until each text has its ``wanted`` length."""
    numbers = list(range(len(wanted)))
    while True:
        short = [row for row, n in enumerate(numbers) if len(loop.texts[row]) < wanted[n]]
        if not short:
            return
        if len(short) < len(numbers):
            loop.select(torch.tensor(short))
            numbers = [numbers[row] for row in short]
        yield list(numbers), loop.round()


def generate(
    loop: Loop, prompts: Sequence[Sequence[int]], num_tokens: int
) -> tuple[list[list[int]], list[Round]]:
    """Return ``num_tokens`` new tokens for each prompt, and the rounds that made them."""
    loop.start(prompts, num_tokens)
    answers = [text[len(prompt) :] for text, prompt in zip(loop.texts, prompts, strict=True)]
    taken = []
    for numbers, taken_round in going_on(loop, [len(prompt) + num_tokens for prompt in prompts]):
        taken.append(taken_round)
        for number, tokens in zip(numbers, taken_round.tokens, strict=True):
            answers[number].extend(tokens)
    return [answer[:num_tokens] for answer in answers], taken
