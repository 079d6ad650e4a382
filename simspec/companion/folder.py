"""A companion's folder: a decoder, its tokenizer, what drafts for it, prompts nobody trained on.

    config.json  model.safetensors  tokenizer.json     as Hugging Face has them
    prompts.json                                       held-out texts by corpus
    drafters/kangaroo_exit_2.safetensors               an adapter for each exit
    drafters/medusa.safetensors  drafters/eagle.safetensors
    drafters/dual_model/                               a smaller decoder

A Hugging Face folder is one too, without drafters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from simspec.companion.decoding._base import Loop
from simspec.companion.decoding._tree import TreeShape
from simspec.companion.decoding.autoregressive import Autoregressive
from simspec.companion.decoding.dual_model import DualModel
from simspec.companion.decoding.eagle import Eagle, EagleHead
from simspec.companion.decoding.kangaroo import Adapter, Kangaroo
from simspec.companion.decoding.layerskip import LayerSkip
from simspec.companion.decoding.medusa import Medusa, MedusaHeads
from simspec.companion.decoding.prompt_lookup import PromptLookup
from simspec.companion.decoding.sampling import Sampler
from simspec.companion.decoding.unverified_exit import UnverifiedExit
from simspec.companion.model.checkpoints import load_decoder, load_weights
from simspec.companion.model.decoder import Decoder
from simspec.core.errors import ConfigError, nearest
from simspec.core.json_text import parse_json

PROMPTS = "prompts.json"
DRAFTERS = "drafters"


@dataclass(frozen=True, slots=True)
class Setting:
    """A method and its knobs, as a scenario has them.

    Attributes
    ----------
    method : str
        File name in ``simspec/companion/decoding``.
    exit_layer, num_speculative_tokens, confidence_threshold
        E, K, tau; what a method does not have is ignored by it.
    """

    method: str
    exit_layer: int = 0
    num_speculative_tokens: int = 0
    confidence_threshold: float = 0.0


METHODS = (
    "autoregressive",
    "dual_model",
    "eagle",
    "kangaroo",
    "layerskip",
    "medusa",
    "prompt_lookup",
    "unverified_exit",
)


class CompanionFolder:
    """Everything in a folder, read when it is asked for.

    Parameters
    ----------
    path : Path
        The folder.

    Raises
    ------
    ConfigError
        It holds no decoder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.decoder, self.facts = load_decoder(path)

    def use(self, decoder: Decoder) -> None:
        """Go on with the decoder in another type or place."""
        self.decoder = decoder

    @cached_property
    def prompts(self) -> dict[str, list[list[int]]]:
        """Held-out prompts, in tokens, by corpus."""
        path = self.path / PROMPTS
        if not path.is_file():
            raise ConfigError(f"{self.path}: has no {PROMPTS}; give --prompts FILE")
        return read_prompts(path)

    def check(self, prompts: dict[str, list[list[int]]]) -> None:
        """Refuse prompts of another vocabulary.

        Raises
        ------
        ConfigError
            A token is not one of the decoder's.
        """
        vocab = self.decoder.config.vocab_size
        for name, texts in prompts.items():
            largest = max((token for text in texts for token in text), default=0)
            if largest >= vocab:
                raise ConfigError(
                    f"prompts of {name!r} hold token {largest}, the decoder has {vocab} tokens"
                )

    def loop(self, setting: Setting, sampler: Sampler) -> Loop:
        """Return the loop of a method.

        Raises
        ------
        ConfigError
            The method is unknown, or what drafts for it was not trained.
        """
        chain: Any = {
            "num_speculative_tokens": setting.num_speculative_tokens,
            "confidence_threshold": setting.confidence_threshold,
        }
        decoder = self.decoder
        match setting.method:
            case "autoregressive":
                return Autoregressive(decoder, sampler)
            case "prompt_lookup":
                return PromptLookup(
                    decoder, sampler, num_speculative_tokens=setting.num_speculative_tokens
                )
            case "layerskip":
                return LayerSkip(decoder, sampler, exit_layer=setting.exit_layer, **chain)
            case "unverified_exit":
                return UnverifiedExit(decoder, sampler, exit_layer=setting.exit_layer)
            case "kangaroo":
                adapter = Adapter(
                    decoder.config, self._weights(f"kangaroo_exit_{setting.exit_layer}")
                )
                return Kangaroo(
                    decoder, sampler, adapter=adapter, exit_layer=setting.exit_layer, **chain
                )
            case "dual_model":
                drafter, _ = load_decoder(self.path / DRAFTERS / "dual_model")
                drafter = drafter.to(decoder.device, decoder.dtype)
                return DualModel(decoder, sampler, drafter=drafter, **chain)
            case "eagle":
                head = EagleHead(decoder.config, self._weights("eagle"))
                return Eagle(decoder, sampler, head=head, **chain)
            case "medusa":
                heads = MedusaHeads(self._weights("medusa"))
                return Medusa(decoder, sampler, heads=heads, tree=medusa_tree(heads.count))
        raise ConfigError(f"unknown method {setting.method!r}; {nearest(setting.method, METHODS)}")

    def _weights(self, name: str) -> dict[str, Any]:
        path = self.path / DRAFTERS / f"{name}.safetensors"
        if not path.is_file():
            raise ConfigError(f"{self.path}: has no {DRAFTERS}/{path.name}, which drafts; train it")
        weights, _ = load_weights(path)
        decoder = self.decoder
        return {n: w.to(device=decoder.device, dtype=decoder.dtype) for n, w in weights.items()}


def medusa_tree(num_heads: int) -> TreeShape:
    """Return a tree of products of first guesses: 4, then 2 below the best two, then the best."""
    paths: list[tuple[int, ...]] = [(rank,) for rank in range(4)]
    if num_heads > 1:
        paths += [(first, second) for first in range(2) for second in range(2)]
    paths += [(0,) * depth for depth in range(3, num_heads + 1)]
    return TreeShape(tuple(paths))


def read_prompts(path: Path) -> dict[str, list[list[int]]]:
    """Read prompts in tokens by corpus.

    Raises
    ------
    ConfigError
        The file is damaged or holds something else.
    """
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(found, dict) or not all(_is_prompts(value) for value in found.values()):
        raise ConfigError(f"{path}: must map names of corpora to lists of lists of token ids")
    return found


def write_prompts(path: Path, prompts: dict[str, list[list[int]]]) -> None:
    """Write prompts in tokens by corpus."""
    path.write_text(json.dumps(prompts, separators=(",", ":")) + "\n", encoding="utf-8")


def windows(tokens: Sequence[int], count: int, length: int) -> list[list[int]]:
    """Return at most ``count`` windows of a text, spread over it evenly, none overlapping."""
    fit = len(tokens) // length
    step = max(1, fit // max(1, count))
    return [list(tokens[i * length : (i + 1) * length]) for i in range(0, fit, step)][:count]


def _is_prompts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(prompt, list) and prompt and all(type(t) is int and t >= 0 for t in prompt)
        for prompt in value
    )
