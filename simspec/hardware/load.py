"""Find a hardware or engine profile by name or path, and read it.

A profile is looked for as the path itself, then in the working folder, then among the packaged
ones; a user's YAML works wherever a name does. It may also change an existing one::

    extends: h100_sxm
    memory: {bandwidth_gb_s: 1675, source: what if the memory were half as fast}

Mappings are merged key by key, ``null`` removes a key or an optional group. Such a profile says
``calibrated: false`` unless it states otherwise, since nobody measured that device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from simspec.core.errors import ProfileError, nearest
from simspec.core.resources import data_dir
from simspec.core.yamlio import Document, load_yaml, parse
from simspec.hardware.engine_schema import EngineConfig, to_engine
from simspec.hardware.profile import EngineProfile, Hardware
from simspec.hardware.schema import HardwareConfig, to_hardware

M = TypeVar("M", bound=BaseModel)

_MAX_EXTENDS = 8
_SUFFIXES = (".yaml", ".yml")


class _Kind(NamedTuple):
    """One kind of profile: what messages call it and where it lives."""

    noun: str
    folder: str
    """Below ``hardware_profiles``; empty: the folder itself."""
    groups: tuple[str, ...]

    def packaged(self) -> Path:
        return data_dir("hardware_profiles") / self.folder

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(p.stem for p in self.packaged().glob("*.yaml") if p.is_file()))


_HARDWARE = _Kind(
    "hardware profile",
    "",
    ("memory", "compute", "kernels", "link", "host_link", "inter_node_link", "power", "price"),
)
_ENGINE = _Kind("engine profile", "engines", ("host", "memory", "scheduler", "uncertainty"))


def hardware_names() -> tuple[str, ...]:
    """Return the names of the packaged hardware profiles, sorted."""
    return _HARDWARE.names()


def engine_names() -> tuple[str, ...]:
    """Return the names of the packaged engine profiles, sorted."""
    return _ENGINE.names()


def load_hardware(name_or_path: str) -> Hardware:
    """Return a hardware profile in SI units.

    Parameters
    ----------
    name_or_path : str
        A packaged name such as ``"h100_sxm"``, or the path of a YAML file.

    Raises
    ------
    ProfileError
        There is no such profile (the message says where it was looked for and offers the
        nearest name), or the file is wrong (it says line and field).
    """
    return to_hardware(load_hardware_config(name_or_path))


def load_hardware_config(name_or_path: str) -> HardwareConfig:
    """Return a hardware profile as its YAML says it, with the evidence behind each fit."""
    return _validated(name_or_path, _HARDWARE, HardwareConfig)


def load_engine(name_or_path: str) -> EngineProfile:
    """Return an engine profile in SI units; found like a hardware profile.

    Raises
    ------
    ProfileError
        As for :func:`load_hardware`.
    """
    return to_engine(_validated(name_or_path, _ENGINE, EngineConfig))


def _validated(name: str, kind: _Kind, model: type[M]) -> M:
    return parse(_document(_find(name, kind), kind, ()), model, error=ProfileError)


def _document(path: Path, kind: _Kind, children: tuple[Path, ...]) -> Document:
    """Read a profile and everything it extends into one document."""
    document = _read(path)
    data = {"name": path.stem, **document.data}
    if "extends" not in data:
        return replace(document, data=data)
    parent = data.pop("extends")
    where = f"{document.locate(['extends'])}: extends"
    if not isinstance(parent, str) or not parent.strip():
        raise ProfileError(
            f"{where}: {parent!r} is not the name of a {kind.noun}; {nearest('', kind.names())}"
        )
    # A local h100_sxm.yaml may extend the packaged one of the same name.
    family = (*children, path.resolve())
    if len(family) > _MAX_EXTENDS:
        raise ProfileError(f"{where}: more than {_MAX_EXTENDS} profiles extend each other")
    found = _find(parent, kind, beside=path.parent, where=where, other_than=family)
    base = _document(found, kind, family).data
    return replace(document, data=_extended(base, data, path, parent, kind))


def _read(path: Path) -> Document:
    status = path.stat()
    return _read_version(path, path.resolve(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _read_version(path: Path, resolved: Path, mtime_ns: int, size: int) -> Document:
    """Read a file once for each of its versions; callers copy what they change."""
    del resolved, mtime_ns, size  # parts of the cache key
    return load_yaml(path, error=ProfileError)


def _extended(
    base: Mapping[str, Any], changes: Mapping[str, Any], path: Path, parent: str, kind: _Kind
) -> dict[str, Any]:
    """Merge ``changes`` into ``base``; inherited sources say what was changed on top of them."""
    merged = _merged(base, changes)
    for group in kind.groups:
        changed, old, new = changes.get(group), base.get(group), merged.get(group)
        if not isinstance(changed, dict) or not isinstance(new, dict):
            continue
        if "source" not in changed and isinstance(old, dict) and "source" in old:
            keys = ", ".join(key for key in changed if key != "source")
            merged[group] = {
                **new,
                "source": f"{keys} set by {path.name}; the rest as {parent}: {old['source']}",
            }
    if isinstance(merged.get("kernels"), dict):
        own = changes.get("kernels")
        merged["kernels"] = _stand_in(merged["kernels"], own, str(base.get("name", parent)))
    return merged


def _stand_in(kernels: Mapping[str, Any], own: object, relative: str) -> dict[str, Any]:
    """Return kernels as those of a relative, unless the profile itself says otherwise.

    Not calibrated here, and whose they are; the same for those of each engine.
    """
    changed, stated = dict(kernels), own if isinstance(own, dict) else {}
    is_fitted_elsewhere = changed.get("calibrated") is not False
    if "calibrated" not in stated and (is_fitted_elsewhere or not changed.get("efficiencies_of")):
        changed |= {"calibrated": False, "efficiencies_of": relative}
    engines, own_engines = changed.get("engines"), stated.get("engines")
    if isinstance(engines, dict):
        states = own_engines if isinstance(own_engines, dict) else {}
        changed["engines"] = {
            name: _stand_in(group, states.get(name), relative) if isinstance(group, dict) else group
            for name, group in engines.items()
        }
    return changed


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
            continue
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _find(
    name: str,
    kind: _Kind,
    *,
    beside: Path | None = None,
    where: str = "",
    other_than: Collection[Path] = (),
) -> Path:
    """Return the file a name or path stands for."""
    candidates = list(dict.fromkeys(_candidates(name, kind, beside)))
    for candidate in candidates:
        if _is_file(candidate) and candidate.resolve() not in other_than:
            return candidate
    looked = ", ".join(str(candidate) for candidate in candidates)
    prefix = f"{where}: " if where else ""
    # A long name is somebody's mistake, not something to repeat in full.
    shown = repr(name) if len(name) <= 80 else repr(name[:77] + "...")
    places = f" (looked at {looked})" if looked and len(looked) <= 1000 else ""
    wanted = Path(name).stem if _looks_like_path(name) else name
    raise ProfileError(
        f"{prefix}unknown {kind.noun} {shown}{places}; {nearest(wanted[:80], kind.names())}"
    )


def _candidates(name: str, kind: _Kind, beside: Path | None) -> Iterator[Path]:
    if not name.strip() or "\0" in name:
        return
    if _looks_like_path(name):
        if beside is not None:
            yield beside / name
        yield Path(name)
        return
    folders = [] if beside is None else [beside]
    here = Path("hardware_profiles") / kind.folder
    for folder in (*folders, Path(), here, kind.packaged()):
        for suffix in _SUFFIXES:
            yield folder / f"{name}{suffix}"


def _looks_like_path(name: str) -> bool:
    return name.endswith(_SUFFIXES) or "/" in name or "\\" in name


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name the file system cannot hold
        return False
