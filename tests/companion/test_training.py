"""The LayerSkip recipe does what its equations say, and what it is for."""

from __future__ import annotations

import tarfile
from pathlib import Path
from pydoc_data.topics import topics

import pytest

torch = pytest.importorskip("torch", reason="needs simspec[companion]")
pytest.importorskip("tokenizers", reason="needs simspec[companion]")

from simspec.companion.decoding.generate import generate  # noqa: E402
from simspec.companion.decoding.kangaroo import Adapter, Kangaroo  # noqa: E402
from simspec.companion.decoding.layerskip import LayerSkip  # noqa: E402
from simspec.companion.decoding.sampling import Sampler  # noqa: E402
from simspec.companion.model.config import DecoderConfig  # noqa: E402
from simspec.companion.model.decoder import Decoder  # noqa: E402
from simspec.companion.training.drafters import train_adapter  # noqa: E402
from simspec.companion.training.recipe import Recipe  # noqa: E402
from simspec.companion.training.text import Corpus, read_corpus  # noqa: E402
from simspec.companion.training.tokens import encode, train_tokenizer  # noqa: E402
from simspec.companion.training.train import (  # noqa: E402
    Schedule,
    exit_agreement,
    train_decoder,
)
from simspec.core.errors import ConfigError  # noqa: E402

CONFIG = DecoderConfig(4, 64, 128, 512, 2, 1, 32)
SCHEDULE = Schedule(400, batch=8, window_tokens=64, learning_rate=1e-2)


def test_dropout_grows_with_depth_and_over_training() -> None:
    """Equation 1 at its corners, both curricula; the first layer is never dropped."""
    recipe = Recipe(max_dropout=0.2)
    assert recipe.dropout(0, 8, 99, 100) == 0.0
    assert recipe.dropout(7, 8, 99, 100) == pytest.approx(0.2)
    assert recipe.dropout(7, 8, 0, 100) == 0.0
    middle = recipe.dropout(3, 7, 99, 100)
    assert middle == pytest.approx(0.2 * (2**0.5 - 1))
    linear = Recipe(max_dropout=0.2, depth="linear", over_training="linear")
    assert linear.dropout(3, 7, 50, 101) == pytest.approx(0.2 * 0.5 * 0.5)
    assert Recipe(max_dropout=0.2, over_training="constant").dropout(7, 8, 0, 100) == 0.2


def test_dropped_layers_are_as_many_as_they_should_be() -> None:
    """Rates over 4,000 texts within four standard errors."""
    recipe = Recipe(max_dropout=0.3, over_training="constant")
    kept = torch.stack([recipe.kept(4, 40, step, 100, seed=3) for step in range(100)])
    for layer in range(4):
        rate = recipe.dropout(layer, 4, 0, 100)
        seen = 1.0 - float(kept[:, layer].double().mean())
        assert abs(seen - rate) <= 4 * (rate * (1 - rate) / 4000) ** 0.5


def test_exits_rotate_and_weights_sum_to_one() -> None:
    """Every exit takes part in one step of R; deeper ones weigh more; the last always most."""
    recipe = Recipe(exit_scale=0.2, rotation=4)
    steps = [recipe.loss_weights(8, step) for step in range(4)]
    assert all(sum(weights) == pytest.approx(1.0) for weights in steps)
    for layer in range(1, 7):
        assert sum(weights[layer] > 0 for weights in steps) == 1
    assert all(weights[7] == max(weights) for weights in steps)
    # Equation 6: e(l) = 0.2 (1 + .. + l), and 7 more at the last of 8.
    assert steps[1][5] / steps[1][7] == pytest.approx(0.2 * 15 / (0.2 * 28 + 7))
    assert Recipe(exit_scale=0.0).loss_weights(8, 1) == [0.0] * 7 + [1.0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Python's own reference texts: English that every machine has."""
    path = tmp_path_factory.mktemp("text") / "topics.txt"
    path.write_text("\n\n".join(topics.values()), encoding="utf-8")
    return read_corpus(path)


@pytest.fixture(scope="module")
def texts(corpus: Corpus) -> tuple[torch.Tensor, torch.Tensor]:
    tokenizer = train_tokenizer(corpus.training, CONFIG.vocab_size)
    return encode(tokenizer, corpus.training), encode(tokenizer, corpus.held_out)


@pytest.fixture(scope="module")
def trained(texts: tuple[torch.Tensor, torch.Tensor]) -> Decoder:
    torch.set_num_threads(1)
    recipe = Recipe(exit_scale=1.0, rotation=1)
    return train_decoder(CONFIG, texts[0], SCHEDULE, recipe, seed=1).decoder


def test_the_recipe_makes_exits_agree(
    trained: Decoder, texts: tuple[torch.Tensor, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    """On held-out text, clearly more than the same decoder trained without it."""
    result = train_decoder(CONFIG, texts[0], SCHEDULE, None, seed=1)
    assert result.losses[-1] < result.losses[0] - 1.0
    held_out = texts[1][:6400]
    with_recipe, without = (
        exit_agreement(decoder, held_out, 64) for decoder in (trained, result.decoder)
    )
    with capsys.disabled():
        shares = ", ".join(f"{a:.0%} / {b:.0%}" for a, b in zip(with_recipe, without, strict=True))
        print(f"\nexits 1..4 agree with / without the recipe: {shares}")
    assert with_recipe[3] == without[3] == 1.0
    assert with_recipe[0] > without[0] + 0.02
    assert with_recipe[1] > without[1] + 0.1


def test_an_adapter_beats_the_bare_exit(
    trained: Decoder, texts: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Kangaroo's adapter at exit 1 is accepted more often than LayerSkip's exit 1."""
    schedule = Schedule(150, batch=8, window_tokens=64, learning_rate=8e-3)
    weights = train_adapter(trained, texts[0], schedule, exit_layer=1, seed=2)
    prompts = [texts[1][i * 100 : i * 100 + 24].tolist() for i in range(24)]

    def accepted(loop: LayerSkip | Kangaroo) -> float:
        rounds = generate(loop, prompts, 32)[1]
        return sum(sum(r.accepted) for r in rounds) / sum(len(r.accepted) for r in rounds)

    knobs = {"exit_layer": 1, "num_speculative_tokens": 4}
    bare = accepted(LayerSkip(trained, Sampler(1.0, seed=4), **knobs))
    adapter = Adapter(CONFIG, weights)
    adapted = accepted(Kangaroo(trained, Sampler(1.0, seed=4), adapter=adapter, **knobs))
    assert adapted > bare + 0.2


def test_training_repeats_itself(texts: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Same seed, same weights to the bit; another seed, others."""
    short = Schedule(3, batch=2, window_tokens=16)
    one, two, other = (
        train_decoder(CONFIG, texts[0], short, Recipe(), seed=s).decoder.weights for s in (5, 5, 6)
    )
    assert all(torch.equal(weight, two[name]) for name, weight in one.items())
    assert any(not torch.equal(weight, other[name]) for name, weight in one.items())


def test_held_out_text_is_nobodys(corpus: Corpus) -> None:
    """The parts are disjoint and together the whole text; the same file is divided the same way."""
    assert not set(corpus.training) & set(corpus.held_out)
    assert 0.01 < len(corpus.held_out) / len(corpus.training + corpus.held_out) < 0.12


def test_texts_are_read_from_folders_and_archives(tmp_path: Path) -> None:
    """Of works that are there twice the modern spelling is read; what is no text is refused."""
    folder = tmp_path / "pkg" / "texts"
    folder.mkdir(parents=True)
    acts = [f"act {i} " * 400 for i in range(3)]
    (folder / "hamlet_gut.txt").write_text("\n\n".join(acts))
    (folder / "hamlet_gut_f.txt").write_text("Acte " * 900)
    read = read_corpus(tmp_path / "pkg")
    assert sorted(read.training + read.held_out) == acts
    assert read.training
    assert read.held_out
    archive = tmp_path / "pkg.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / "pkg", "pkg")
    assert read_corpus(archive).sha256 == read_corpus(tmp_path / "pkg").sha256
    for name, content in (
        ("a.txt", b""),
        ("b.txt", b"\x00\x01"),
        ("c.db", b"no database"),
        ("d.txt", b"short"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=name):
            read_corpus(tmp_path / name)
    with pytest.raises(ConfigError, match="no such file"):
        read_corpus(tmp_path / "nowhere.txt")
