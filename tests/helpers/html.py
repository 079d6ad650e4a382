"""Reading a page without a browser: its text, its scripts, and anything that would load."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_LOADS = {"src", "href", "srcset", "poster", "data", "action", "formaction", "xlink:href"}
_URL = re.compile(r"url\(\s*['\"]?(?!data:)|@import", re.IGNORECASE)


class PageReader(HTMLParser):
    """Collects the visible text by element, the scripts, and every outside address."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.outside: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        for name, value in attrs:
            local = (value or "").startswith(("#", "data:"))
            if (name in _LOADS and not local) or name.startswith("on"):
                self.outside.append(f"{tag} {name}={value}")
        if tag in {"script", "style"}:
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "style":
            self.outside.extend(_URL.findall(data))
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All visible text, blanks collapsed."""
        return " ".join(" ".join(self.texts).split())


def read_page(html: str) -> PageReader:
    """Parse a document."""
    reader = PageReader()
    reader.feed(html)
    reader.close()
    return reader
