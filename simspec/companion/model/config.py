"""The sizes of a decoder of LLaMA's kind, under the names that Hugging Face gives them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from simspec.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and constants.

    Attributes
    ----------
    num_hidden_layers, hidden_size, intermediate_size, vocab_size : int
        L, d, the width of the feed-forward part, V.
    num_attention_heads, num_key_value_heads, head_dim : int
        h, h_kv, d_h; every group of h / h_kv query heads shares one head of keys and values.
    rms_norm_eps, rope_theta : float
        Constants of the norms and of the rotary embedding.
    tie_word_embeddings : bool
        Whether the LM head is the embedding.
    """

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        """Refuse sizes that contradict each other.

        Raises
        ------
        ConfigError
            A size below one, heads that do not group, an odd head size.
        """
        for name, value in asdict(self).items():
            if name != "tie_word_embeddings" and not value > 0:
                raise ConfigError(f"{name} is {value!r}, but must be above 0")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"num_attention_heads ({self.num_attention_heads}) is not a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads})"
            )
        if self.head_dim % 2:
            raise ConfigError(f"head_dim is {self.head_dim}, but rotation needs an even number")

    @property
    def num_parameters(self) -> int:
        """Weights, a tied head counted once."""
        d, f = self.hidden_size, self.intermediate_size
        heads = self.num_attention_heads, self.num_key_value_heads
        attention = d * self.head_dim * (2 * heads[0] + 2 * heads[1])
        per_layer = attention + 3 * d * f + 2 * d
        head = 0 if self.tie_word_embeddings else self.vocab_size * d
        return self.num_hidden_layers * per_layer + self.vocab_size * d + d + head

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of a ``config.json`` that ``transformers`` and simspec both read."""
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(self)}
