"""``simspec capture``: decode prompts for real and write round traces."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simspec.cli._output import JSON_OPTION, print_json, print_rows

if TYPE_CHECKING:
    from simspec.companion.capture import Run
    from simspec.companion.device import Device
    from simspec.companion.folder import CompanionFolder, Setting
    from simspec.traces.schema import TraceHeader


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(capture)


def capture(
    folder: Path = typer.Argument(help="A companion's or Hugging Face's folder."),
    output: Path = typer.Option(..., "--output", "-o", help="Folder for the traces."),
    method: list[str] = typer.Option(..., help="Decoding method; repeatable."),
    exit_layer: list[int] | None = typer.Option(None, help="E of early exits; repeatable."),
    num_speculative_tokens: int = typer.Option(6, min=1, max=64, help="K, most drafts per round."),
    confidence_threshold: list[float] | None = typer.Option(
        None, min=0, max=1, help="tau; repeatable. 0, the default, records most."
    ),
    batch: list[int] | None = typer.Option(None, min=1, max=256, help="Texts at once; repeatable."),
    corpus: str = typer.Option("", help="Of the folder's held-out prompts; all by default."),
    prompts: Path | None = typer.Option(None, help="JSON of token ids by corpus instead."),
    num_prompts: int = typer.Option(16, min=1, help="Prompts of each corpus."),
    num_tokens: int = typer.Option(128, min=1, help="Tokens to decode for each prompt."),
    temperature: float = typer.Option(0.0, min=0, help="0: greedy."),
    top_p: float = typer.Option(1.0, min=0.01, max=1, help="Nucleus of sampling."),
    device: str = typer.Option("cpu", help="cpu, cuda or mps."),
    dtype: str = typer.Option("fp32", help="fp32, bf16 or fp16."),
    threads: int = typer.Option(1, min=1, help="CPU threads."),
    seed: int = typer.Option(0, min=0, help="Of sampling."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Decode with every combination of the options in turn, a trace file for each.

    Example: simspec capture my_companion --method autoregressive --method layerskip --exit-layer 2
    --num-prompts 4 --num-tokens 32 --output traces
    """
    from simspec.cli._extras import require_companion
    from simspec.core.errors import ConfigError

    require_companion("simspec capture")
    from simspec.companion.device import DTYPES, Device
    from simspec.companion.folder import METHODS, CompanionFolder, read_prompts
    from simspec.core.errors import nearest

    for name in method:
        if name not in METHODS:
            raise ConfigError(f"--method: unknown method {name!r}; {nearest(name, METHODS)}")
    if dtype not in DTYPES:
        raise ConfigError(f"--dtype: unknown data type {dtype!r}; {nearest(dtype, DTYPES)}")
    settings = _settings(method, exit_layer, num_speculative_tokens, confidence_threshold)
    here = Device(device, threads)
    companion = CompanionFolder(folder)
    companion.use(companion.decoder.to(here.kind, DTYPES[dtype]))
    asked = read_prompts(prompts) if prompts else companion.prompts
    companion.check(asked)
    if corpus and corpus not in asked:
        raise ConfigError(f"--corpus: unknown corpus {corpus!r}; {nearest(corpus, asked)}")
    facts = _facts(folder, here, dtype, temperature)
    rows = []
    wanted = list(product(settings, batch or [1]))
    sampling = (temperature, top_p, seed)
    for name in [corpus] if corpus else asked:
        texts, here_facts = asked[name][:num_prompts], {**facts, "dataset": name}
        rows += _captured(companion, wanted, texts, num_tokens, output, here_facts, sampling)
    if as_json:
        print_json({"traces": rows})
        return
    print_rows("Captured", rows)


def _facts(folder: Path, here: Device, dtype: str, temperature: float) -> dict[str, Any]:
    """Return what the headers of all traces say."""
    machine = here.machine(is_quick=False)
    return {
        "model": folder.resolve().name,
        "device": machine.name,
        "dtype": dtype,
        "engine": "simspec-companion",
        "temperature": temperature,
        "software": {
            "torch": machine.software.split()[-1],
            "threads": str(machine.num_threads),
        },
    }


def _settings(
    methods: list[str], exits: list[int] | None, most: int, thresholds: list[float] | None
) -> list[Setting]:
    from simspec.companion.folder import Setting
    from simspec.core.errors import ConfigError

    settings = []
    for method in methods:
        has_exit = method in {"kangaroo", "layerskip", "unverified_exit"}
        has_threshold = method in {"kangaroo", "layerskip", "dual_model", "eagle"}
        drafts = method not in {"autoregressive", "unverified_exit", "medusa"}
        if has_exit and not exits:
            raise ConfigError(f"--exit-layer: {method} exits after a layer; say which")
        for exit_layer in (exits or [0]) if has_exit else [0]:
            for threshold in (thresholds or [0.0]) if has_threshold else [0.0]:
                settings.append(Setting(method, exit_layer, most if drafts else 0, threshold))
    return settings


def _captured(
    companion: CompanionFolder,
    wanted: list[tuple[Setting, int]],
    prompts: list[list[int]],
    num_tokens: int,
    output: Path,
    facts: dict[str, Any],
    sampling: tuple[float, float, int],
) -> list[dict[str, object]]:
    from simspec.cli._progress import file_progress
    from simspec.companion.capture import captured
    from simspec.traces.io import write_trace

    runs = [_run(companion, setting, batch, sampling) for setting, batch in wanted]
    records: list[list[Any]] = [[] for _ in runs]
    dataset = str(facts["dataset"])
    done = 0
    with file_progress("captured") as report:
        for number, more, _ in captured(runs, prompts, num_tokens):
            records[number] += more
            done += min(runs[number].batch, len(prompts))
            report(dataset, min(done, len(prompts) * len(runs)), len(prompts) * len(runs))
    rows = []
    output.mkdir(parents=True, exist_ok=True)
    for (setting, batch), kept in zip(wanted, records, strict=True):
        path = output / f"{_name(setting, batch)}_{dataset}.jsonl.gz"
        write_trace(path, _header(setting, facts), kept)
        rows.append({"file": str(path), "records": len(kept), **_summary(kept)})
    return rows


def _run(
    companion: CompanionFolder, setting: Setting, batch: int, sampling: tuple[float, float, int]
) -> Run:
    from simspec.companion.capture import Run
    from simspec.companion.decoding.sampling import Sampler

    temperature, top_p, seed = sampling

    def make(group: int) -> Any:
        return companion.loop(setting, Sampler(temperature, top_p, seed * 1_000_003 + group))

    return Run(make, batch, setting.method == "autoregressive")


def _header(setting: Setting, facts: dict[str, Any]) -> TraceHeader:
    from simspec.traces.schema import TraceHeader

    drafts = setting.num_speculative_tokens > 0
    is_exit = setting.exit_layer > 0
    return TraceHeader(
        method=setting.method,
        exit_layer=setting.exit_layer if is_exit else None,
        num_speculative_tokens=setting.num_speculative_tokens if drafts else None,
        confidence_threshold=setting.confidence_threshold
        if drafts and setting.method != "prompt_lookup"
        else None,
        **facts,
    )


def _name(setting: Setting, batch: int) -> str:
    parts = [setting.method]
    if setting.exit_layer:
        parts.append(f"E{setting.exit_layer}")
    if setting.num_speculative_tokens:
        parts.append(f"K{setting.num_speculative_tokens}")
    if setting.confidence_threshold:
        parts.append(f"tau{setting.confidence_threshold:g}")
    return "_".join([*parts, f"B{batch}"])


def _summary(records: list[Any]) -> dict[str, object]:
    from simspec.traces.schema import Prefill, Round

    steps = [record for record in records if not isinstance(record, Prefill)]
    rounds = [record for record in steps if isinstance(record, Round)]
    times = {record.step_id: record.total_s for record in steps}
    tokens = sum(r.accepted + 1 if isinstance(r, Round) else 1 for r in steps)
    return {
        "tokens_per_round": round(tokens / max(1, len(steps)), 3),
        "drafted_per_round": round(sum(r.drafted for r in rounds) / max(1, len(steps)), 3),
        "round_ms": round(1e3 * sum(times.values()) / max(1, len(times)), 3),
    }
