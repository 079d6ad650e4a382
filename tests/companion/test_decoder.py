"""The decoder is LLaMA, its cache forgets, its files are safe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs simspec[companion]")

from simspec.companion.model.checkpoints import (  # noqa: E402
    load_decoder,
    load_weights,
    save_decoder,
)
from simspec.companion.model.config import DecoderConfig  # noqa: E402
from simspec.companion.model.decoder import Decoder, random_weights  # noqa: E402
from simspec.core.errors import ConfigError  # noqa: E402
from tests.companion.small import sizes, small_decoder  # noqa: E402


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_transformers(tied: bool, tmp_path: Path) -> None:
    """A tiny random model of ``transformers``, saved by it and read here: within 1e-4."""
    transformers = pytest.importorskip("transformers", reason="the reference is not installed")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied,
    )  # fmt: skip
    reference = transformers.LlamaForCausalLM(config).eval()
    reference.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    decoder, _ = load_decoder(tmp_path)
    tokens = torch.randint(0, 97, (2, 17))
    with torch.inference_mode():
        wanted = reference(tokens).logits
        cache = decoder.cache(2, 40)
        logits = []
        for first, last in ((0, 9), (9, 10), (10, 14), (14, 17)):
            x = decoder.embed(tokens[:, first:last])
            x = decoder.layers(x, 0, 3, cache.chain(last - first), cache)
            cache.lens += last - first
            logits.append(decoder.logits(x))
        whole = decoder.logits(decoder.train_layers(decoder.embed(tokens))[-1])
    torch.testing.assert_close(torch.cat(logits, dim=1), wanted, rtol=0, atol=1e-4)
    torch.testing.assert_close(whole, wanted, rtol=0, atol=1e-4)


@torch.inference_mode()
def test_what_was_taken_back_does_not_count() -> None:
    """Tokens behind ``lens`` are overwritten: the cache is as if they had never been."""
    decoder = small_decoder()
    text = torch.randint(0, 50, (3, 12))
    outs = []
    for has_drafts in (False, True):
        cache = decoder.cache(3, 30)
        for first, last in ((0, 5), (5, 12)):
            if has_drafts:
                drafts = torch.randint(0, 50, (3, 9))
                decoder.layers(decoder.embed(drafts), 0, 4, cache.chain(9), cache)
            part = text[:, first:last]
            out = decoder.layers(decoder.embed(part), 0, 4, cache.chain(last - first), cache)
            cache.lens += last - first
        outs.append(out)
    torch.testing.assert_close(outs[1], outs[0], rtol=0, atol=1e-6)


@torch.inference_mode()
def test_a_tree_sees_its_ancestors_alone() -> None:
    """Each node's state is that of its path decoded as plain text."""
    decoder = small_decoder()
    prompt = torch.randint(0, 50, (2, 6))
    nodes = torch.randint(0, 50, (2, 5))
    parents = [None, 0, 0, 1, 3]
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 3, 4]]
    ancestors = torch.zeros(5, 5, dtype=torch.bool)
    for node, path in enumerate(paths):
        ancestors[node, path] = True
        assert parents[node] is None or path[-2] == parents[node]
    cache = decoder.cache(2, 20)
    decoder.layers(decoder.embed(prompt), 0, 4, cache.chain(6), cache)
    cache.lens += 6
    depths = torch.tensor([len(path) - 1 for path in paths])
    place = cache.tree(depths, ancestors[None])
    states = decoder.layers(decoder.embed(nodes), 0, 4, place, cache)
    for node, path in enumerate(paths):
        text = torch.cat((prompt, nodes[:, path]), dim=1)
        alone = decoder.train_layers(decoder.embed(text))[-1][:, -1]
        torch.testing.assert_close(states[:, node], alone, rtol=0, atol=1e-5)
    cache.keep_path(torch.tensor([paths[4], paths[4]]))
    again = decoder.cache(2, 20)
    text = torch.cat((prompt, nodes[:, paths[4]]), dim=1)
    decoder.layers(decoder.embed(text), 0, 4, again.chain(10), again)
    torch.testing.assert_close(cache.keys[:, :, :10], again.keys[:, :, :10], rtol=0, atol=1e-5)


def test_a_checkpoint_comes_back_with_its_facts(tmp_path: Path) -> None:
    """Weights are equal to the bit, and what made them is kept."""
    decoder = small_decoder()
    save_decoder(tmp_path / "one", decoder, {"seed": "0"})
    again, facts = load_decoder(tmp_path / "one")
    assert facts == {"seed": "0"}
    assert again.config == decoder.config
    assert all(torch.equal(w, again.weights[name]) for name, w in decoder.weights.items())
    assert sum(w.numel() for w in again.weights.values()) == again.config.num_parameters


def test_pickled_checkpoints_are_refused(tmp_path: Path) -> None:
    """Reading a pickle runs what it holds."""
    (tmp_path / "config.json").write_text(json.dumps(sizes().as_dict()))
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(
        ConfigError, match=r"pytorch_model\.bin: pickled checkpoints .* safetensors"
    ):
        load_decoder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"num_hidden_layers": 5}, r"lacks model\.layers\.4"),
        ({"num_hidden_layers": 3}, r"holds model\.layers\.3"),
        ({"hidden_size": 40}, "has shape"),
        ({"num_key_value_heads": 3}, "not a multiple"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rotary scaling 'llama3'"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_size": "wide"}, "invalid literal"),
    ],
)
def test_sizes_that_are_not_those_of_the_weights(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """One sentence that names the file and what is wrong."""
    save_decoder(tmp_path, small_decoder(), {})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ConfigError, match=message) as caught:
        load_decoder(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("keep", [0, 7, 100, 5000])
def test_truncated_weights_are_refused(tmp_path: Path, keep: int) -> None:
    """Half a file is no file."""
    save_decoder(tmp_path, small_decoder(), {})
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigError, match="not a whole safetensors file"):
        load_weights(path)


def test_parameters_are_counted_once() -> None:
    """The count is that of the tensors, with and without a head of its own."""
    for tied in (True, False):
        config = DecoderConfig(3, 32, 48, 60, 4, 2, 8, tie_word_embeddings=tied)
        weights = random_weights(config, 1)
        assert sum(w.numel() for w in weights.values()) == config.num_parameters
        Decoder(config, weights)
