"""``simspec compare``: methods side by side on one deployment, over batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from simspec.cli import _options as opt
from simspec.cli._output import JSON_OPTION, note, print_json, print_rows

if TYPE_CHECKING:
    from simspec.scenarios.build import Place
    from simspec.scenarios.compare import ComparisonConfig

_DEFAULT_BATCHES = "1,4,16,64"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("compare")(compare)


def compare(
    file: Path | None = typer.Argument(
        None, help="Comparison YAML, e.g. experiments/compare_methods.yaml; or give options."
    ),
    methods: str | None = typer.Option(
        None, "--methods", help="Method names with commas; default: all the catalog knows."
    ),
    hardware: str | None = typer.Option(None, "--hardware", help="Profile name or YAML path."),
    model: str | None = typer.Option(None, "--model", help="Catalog name or config.json path."),
    engine: str | None = typer.Option(None, "--engine", help="Engine profile name or YAML path."),
    tp: int | None = typer.Option(None, "--tp", help="Tensor-parallel degree."),
    dtype: str | None = typer.Option(None, "--dtype", help="Weight data type."),
    kv_dtype: str | None = typer.Option(None, "--kv-dtype", help="KV-cache data type."),
    batch: str | None = typer.Option(
        None, "--batch", help=f"Batch sizes with commas; default {_DEFAULT_BATCHES}."
    ),
    context: int | None = typer.Option(
        None, "--context", min=1, max=100_000_000, help="Context of each, tokens; default 1024."
    ),
    draft_model: str | None = typer.Option(
        None, "--draft-model", help="What drafts for dual_model; default: smallest that can."
    ),
    acceptance: str | None = typer.Option(
        None, "--acceptance", help="One acceptance for all methods instead of each one's published."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Folder for comparison.json and compare.html."
    ),
    as_json: bool = JSON_OPTION,
) -> None:
    """Compare methods at the same hardware, model, batch and context, beside plain decoding.

    Without a file each method runs with the settings and the acceptance published for it, which
    are printed; a file may give both, and claims to hold the results against.

    Example: simspec compare --hardware h100_sxm --model vicuna-7b --batch 1,16,64
    """
    given = {
        "methods": methods,
        "hardware": hardware,
        "model": model,
        "engine": engine,
        "tp": tp,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "batch": batch,
        "context": context,
        "draft_model": draft_model,
        "acceptance": acceptance,
    }
    _run(file, {k: v for k, v in given.items() if v is not None}, output, as_json)


def _run(file: Path | None, given: dict[str, Any], output: Path | None, as_json: bool) -> None:
    from simspec.scenarios.compare import compare as compared

    left_out: list[dict[str, str]] = []
    cautions: list[str] = []
    place: Place | None = None
    if file is not None:
        config, place = _from_file(file, given)
    else:
        config, left_out, cautions = _from_options(given)
    document = {**compared(config, place), "left_out": left_out, "cautions": cautions}
    for caution in cautions:
        note(f"note: {caution}")
    written = [] if output is None else _write(document, output)
    if as_json:
        print_json(document)
    else:
        _print(document)
    for skipped in left_out:
        note(f"left out: {skipped['method']} ({skipped['reason']})")
    for path in written:
        note(f"written  {path}")


def _from_file(file: Path, given: dict[str, Any]) -> tuple[ComparisonConfig, Place]:
    from simspec.core.errors import ConfigError
    from simspec.scenarios.compare import load_comparison
    from simspec.scenarios.files import experiment_path

    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{names}: a comparison file says all of it; remove the option")
    return load_comparison(experiment_path(file))


def _from_options(
    given: dict[str, Any],
) -> tuple[ComparisonConfig, list[dict[str, str]], list[str]]:
    """Return the comparison, the methods left out with why, and what does not match."""
    from simspec.core.errors import ConfigError
    from simspec.core.yamlio import parse_mapping
    from simspec.scenarios.compare import ComparisonConfig

    target = given.get("model", "llama-3.1-8b")
    entries, left_out, cautions = _entries(given, target)
    if given.get("draft_model") and not any("draft_model" in e["method"] for e in entries):
        raise ConfigError("--draft-model: none of these methods has a draft model; remove it")
    optional = ("engine", "tp", "dtype", "kv_dtype")
    fields: dict[str, Any] = {key: given[key] for key in optional if key in given}
    config = parse_mapping(
        {
            **fields,
            "hardware": given.get("hardware", "h100_sxm"),
            "model": target,
            "batch": _numbers(given.get("batch", _DEFAULT_BATCHES)),
            "context": given.get("context", 1024),
            "methods": entries,
        },
        ComparisonConfig,
        "command line",
    )
    return config, left_out, cautions


def _entries(
    given: dict[str, Any], target: str
) -> tuple[list[dict[str, Any]], list[dict[str, str]], list[str]]:
    """Return the lines of the comparison, the methods left out with why, and the cautions."""
    from simspec.core.errors import ConfigError
    from simspec.decoding._base import METHODS
    from simspec.scenarios.proposals import PLAIN, propose

    asked, one = given.get("methods"), given.get("acceptance")
    names = METHODS.names() if asked is None else [name.strip() for name in asked.split(",")]
    entries: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    cautions: list[str] = []
    for name in names:
        METHODS.module(name)  # an unknown name is a mistake in any case
        if name == PLAIN:
            if asked is not None:
                raise ConfigError(f"--methods: {PLAIN} stands beside every method; remove it")
            continue
        try:
            proposal = propose(name, target, given.get("draft_model"), needs_profile=one is None)
        except ConfigError as error:
            if asked is not None:
                raise
            left_out.append({"method": name, "reason": str(error)})
            continue
        cautions += proposal.cautions
        value = opt.acceptance_value(one, proposal.method) if proposal.drafts else None
        entries.append({"method": proposal.method, "acceptance": value or proposal.acceptance})
    return entries, left_out, cautions


def _numbers(text: str) -> list[int]:
    from simspec.core.errors import ConfigError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--batch: {text!r} is not a list of whole numbers with commas, such as 1,4,16"
        ) from None


def _write(document: dict[str, Any], folder: Path) -> list[Path]:
    from simspec.core.errors import ConfigError
    from simspec.core.provenance import to_json, write_atomic
    from simspec.reports.dashboards.compare import write_comparison_page

    try:
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "comparison.json"
        write_atomic(data, to_json(document).encode())
    except OSError as error:
        raise ConfigError(f"--output: {folder}: cannot write ({error.strerror})") from error
    return [data, write_comparison_page(document, folder / "compare.html")]


def _print(document: dict[str, Any]) -> None:
    several = len({(line["model"], line["hardware"]) for line in document["methods"]}) > 1
    table = []
    for row in document["autoregressive"]:
        table.append(_cells(row, "autoregressive", None))
    for row in document["rows"]:
        table.append(_cells(row, row["label"], row.get("speedup")))
    if all(row[""] == "" for row in table):
        table = [{key: value for key, value in row.items() if key} for row in table]
    print_rows(
        f"{document['name']}: {document['model']} on {document['hardware']}, "
        f"{document['engine']}, tp {document['tp']}, context {document['context']:,} "
        "(closed form)",
        table,
    )
    lines = [
        {
            "method": line["label"],
            **({"on": f"{line['model']}, {line['hardware']}"} if several else {}),
            "extra weights GB": line["extra_weights_bytes_all_ranks"] / 1e9,
            "extra KV B/token": line["extra_kv_bytes_per_token"],
            "largest batch": line["max_batch"],
            "autoregressive": line["autoregressive_max_batch"],
            "break-even": line["break_even"] + ("" if line["is_lossless"] else "; not lossless"),
        }
        for line in document["methods"]
    ]
    print_rows("Memory, largest batch that fits at this context, and where it pays", lines)
    for line in document["methods"]:
        options = ", ".join(f"{k}={v}" for k, v in line["method_options"].items() if v is not None)
        note(f"{line['label']}: {options or 'no options'}; acceptance: {line['acceptance']}")
    if "simulated" in document:
        _print_simulated(document["simulated"])
    if "claims" in document:
        _print_claims(document["claims"])


def _cells(row: dict[str, Any], label: str, speedup: float | None) -> dict[str, Any]:
    return {
        "method": label,
        "batch": row["batch"],
        "tokens/round": row.get("tokens_per_round"),
        "round ms": row.get("round_time_ms"),
        "TPOT ms": row.get("tpot_ms"),
        "autoregressive ms": row["autoregressive_tpot_ms"],
        "speedup": speedup,
        "tokens/s": row.get("throughput_tokens_per_s"),
        "": "" if row["status"] == "ok" else "does not fit",
    }


def _print_simulated(rows: list[dict[str, Any]]) -> None:
    def cell(row: dict[str, Any], key: str) -> str:
        value = row.get(key)
        if value is None:
            return "–"
        low, high = row.get(f"{key}_ci95_low"), row.get(f"{key}_ci95_high")
        ends = "" if low is None or high is None else f" ({low:.4g}–{high:.4g})"
        return f"{value:.4g}{ends}"

    print_rows(
        "Under the load, simulated on the same requests and tapes (95 % intervals)",
        [
            {
                "method": row["label"],
                "TTFT ms": cell(row, "ttft_ms"),
                "TPOT ms": cell(row, "tpot_ms"),
                "autoregressive ms": cell(row, "autoregressive_tpot_ms"),
                "speedup": cell(row, "speedup"),
                "tokens/s": cell(row, "throughput_tokens_per_s"),
                "status": row["status"],
            }
            for row in rows
        ],
    )
    for row in rows:
        if row["reason"]:
            note(f"{row['label']}: {row['reason']}")


def _print_claims(claims: list[dict[str, Any]]) -> None:
    print_rows(
        "Claims",
        [
            {
                "source": claim["source"],
                "claim": claim["says"],
                "simspec": _value(claim),
                "verdict": claim["verdict"],
            }
            for claim in claims
        ],
    )
    for claim in claims:
        if claim["because"]:
            note(f"{claim['says']} ({claim['verdict']}): {claim['because']}")


def _value(claim: dict[str, Any]) -> str:
    unit = {"speedup": "×", "extra_weights_gb": " GB", "extra_kv_gb": " GB", "kv_caches": " caches"}
    values = claim["values"]
    if not values:
        return "–"
    suffix = unit[claim["quantity"]]
    shown = [
        f"{entry['value']:.2f}{suffix}"
        + ("" if entry["batch"] is None else f" at batch {entry['batch']:,}")
        for entry in values
    ]
    return ", ".join(shown)
