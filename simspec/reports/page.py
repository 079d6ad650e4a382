"""The shell of every HTML report: one file, no request, readable without JavaScript.

Style, scripts, Plotly (inlined once, from the installed package) and data stand inside the
document. All text goes through Jinja's autoescape; data go through
:func:`simspec.reports.spec.script_json`. A content-security policy in the page forbids it to load
anything, so "works offline" is enforced by the browser and not only intended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from simspec import __version__
from simspec.core.errors import ConfigError, MissingExtra
from simspec.core.provenance import write_atomic
from simspec.reports.spec import FigureSpec, Json, Selector, script_json
from simspec.reports.theme import FONT, PALETTES, Scheme


@dataclass(frozen=True, slots=True)
class Page:
    """A document to render: a template of ``assets`` and what it shows."""

    template: str
    title: str
    selectors: Sequence[Selector]
    figures: Sequence[FigureSpec]
    context: Mapping[str, object]

    def payload(self) -> str:
        """Return the data of the page as JSON, safe inside a script element."""
        return payload(self.selectors, self.figures)

    def html(self) -> str:
        """Return the whole document."""
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup

        environment = Environment(
            loader=PackageLoader("simspec.reports", "assets"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        shell = {
            "title": self.title,
            "version": __version__,
            "style": Markup(_style()),
            "plotly": Markup(_plotly_js()),
            "payload": Markup(self.payload()),
            "script": Markup(_asset("dashboard.js")),
        }
        return environment.get_template(self.template).render(page=shell, **self.context)

    def write(self, path: Path) -> Path:
        """Write the document, whole or not at all, and return its path.

        Raises
        ------
        ConfigError
            The file cannot be written.
        """
        try:
            # Names may hold lone surrogates, which no encoding of the page can carry.
            write_atomic(path, self.html().encode("utf-8", "replace"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot write the page ({error.strerror})") from error
        return path


def payload(selectors: Sequence[Selector], figures: Sequence[FigureSpec]) -> str:
    """Return selectors, palettes and figures as script-safe JSON."""
    return script_json(
        {
            "palettes": PALETTES,
            "selectors": [{"id": s.id, "default": s.default} for s in selectors],
            "figures": {spec.name: _figure(spec) for spec in figures},
        }
    )


def _figure(spec: FigureSpec) -> Json:
    layers = [
        {"uses": list(layer.uses), "paths": list(layer.paths), "views": layer.views}
        for layer in spec.layers
    ]
    return {"base": spec.base, "layers": layers, "picks": spec.picks}


@cache
def _asset(name: str) -> str:
    return (resources.files("simspec.reports") / "assets" / name).read_text(encoding="utf-8")


def _style() -> str:
    style = _asset("page.css").replace("{{font}}", FONT)
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        tokens = "\n".join(f"  --{name}: {colour};" for name, colour in PALETTES[scheme].items())
        style = style.replace("{{" + scheme + "}}", tokens)
    return style


@cache
def _plotly_js() -> str:
    try:
        package = resources.files("plotly")
    except ModuleNotFoundError:
        raise MissingExtra(
            "reports need Plotly, which is not installed; run: pip install plotly"
        ) from None
    source = (package / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return source.replace("</script", "<\\/script")
