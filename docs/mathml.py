"""Turn formulas into MathML while the site is built, so that pages need no script to show them."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Replace every formula that ``pymdownx.arithmatex`` has marked; called by MkDocs."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[2] == "[" else "inline"
    return convert(html.unescape(found[3]), display=display)
