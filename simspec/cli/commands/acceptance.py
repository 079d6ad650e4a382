"""``simspec acceptance list | show``: published acceptance and where it comes from."""

from __future__ import annotations

import typer

from simspec.cli._output import (
    JSON_OPTION,
    help_without_command,
    print_json,
    print_pairs,
    print_rows,
)

acceptance_app = typer.Typer(help="List and show the catalog of published acceptance.")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    acceptance_app.callback(invoke_without_command=True)(help_without_command)
    app.add_typer(acceptance_app, name="acceptance")


@acceptance_app.command("list")
def list_(
    method: str | None = typer.Option(None, "--method", help="Only profiles of this method."),
    as_json: bool = JSON_OPTION,
) -> None:
    """List the acceptance profiles: a name for ``acceptance:`` or ``--acceptance``.

    Example: simspec acceptance list --method layerskip
    """
    from simspec.decoding._base import METHODS
    from simspec.decoding.acceptance._profiles import load_profile, profile_names

    if method is not None:
        METHODS.module(method)
    profiles = [load_profile(name) for name in profile_names()]
    rows = [
        {
            "name": profile.name,
            "method": profile.method,
            "target": profile.target,
            "drafter": profile.drafter,
            "task": profile.task,
            "tokens_per_round": tokens,
            "num_speculative_tokens": drafts,
            "evidence": profile.evidence,
        }
        for profile in profiles
        if method in (None, profile.method)
        for drafts, tokens in [profile.mean_tokens_as_measured()]
    ]
    if as_json:
        print_json({"acceptance": rows})
        return
    short = {
        "name": "name",
        "method": "method",
        "target": "target",
        "task": "task",
        "tokens/round": "tokens_per_round",
        "K": "num_speculative_tokens",
        "evidence": "evidence",
    }
    print_rows(
        "Published acceptance (tokens per round as measured, the target's own token included)",
        [{label: row[key] for label, key in short.items()} for row in rows],
    )


@acceptance_app.command()
def show(
    name: str = typer.Argument(help="Profile name, as 'simspec acceptance list' gives it."),
    as_json: bool = JSON_OPTION,
) -> None:
    """Show one profile: its numbers, what they were measured on, what is derived and assumed.

    Example: simspec acceptance show layerskip-llama-1.5b-topv2
    """
    from simspec.decoding.acceptance._profiles import load_profile

    profile = load_profile(name)
    drafts, tokens = profile.mean_tokens_as_measured()
    values = profile.model_dump(mode="json")
    said = profile.process().describe()
    if as_json:
        print_json(
            {**values, "tokens_per_round": tokens, "tokens_per_round_at": drafts, "model": said}
        )
        return
    shown = {k: v for k, v in values.items() if k != "acceptance" and v not in ("", {}, None)}
    print_pairs(
        f"Acceptance profile {profile.name}",
        {**shown, "tokens_per_round": tokens, "tokens_per_round_at": drafts, "model": said},
    )
