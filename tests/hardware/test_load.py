"""Where profiles are looked for, and profiles that extend others."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from simspec.core.errors import ProfileError
from simspec.core.resources import data_dir
from simspec.hardware.load import (
    engine_names,
    hardware_names,
    load_engine,
    load_hardware,
    load_hardware_config,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def packaged_text(name: str) -> str:
    """Return the YAML of a packaged profile."""
    return (data_dir("hardware_profiles") / f"{name}.yaml").read_text(encoding="utf-8")


def test_names_are_those_of_the_folder() -> None:
    """A profile is known by its file name, engines apart from devices."""
    assert {"h100_sxm", "h200_sxm", "a100_sxm_80gb", "l40s", "rtx_4090"} <= set(hardware_names())
    assert {"vllm", "pytorch", "ideal"} <= set(engine_names())
    assert "engines" not in hardware_names()
    assert list(hardware_names()) == sorted(hardware_names())


def test_a_path_works_like_a_name(here: Path) -> None:
    """A user's own YAML is loaded from where it lies."""
    folder = here / "mine"
    folder.mkdir()
    text = packaged_text("l40s").replace("name: l40s", "name: my_l40s")
    (folder / "my_l40s.yaml").write_text(text, encoding="utf-8")
    assert load_hardware("mine/my_l40s.yaml").name == "my_l40s"
    assert load_hardware(str(folder / "my_l40s.yaml")).name == "my_l40s"


def test_the_working_folder_comes_before_the_packaged_ones(here: Path) -> None:
    """A local file of a packaged name wins, in the folder itself or in hardware_profiles/."""
    (here / "hardware_profiles").mkdir()
    text = packaged_text("l40s")
    (here / "hardware_profiles" / "h100_sxm.yaml").write_text(text, encoding="utf-8")
    assert load_hardware("h100_sxm").description == "NVIDIA L40S, 48 GB GDDR6"
    (here / "h100_sxm.yaml").write_text(packaged_text("rtx_4090"), encoding="utf-8")
    assert "4090" in load_hardware("h100_sxm").description


def test_unknown_name_offers_the_nearest_and_says_where_it_looked(here: Path) -> None:
    """A misspelt name is answered with the one that was meant and the places tried."""
    with pytest.raises(ProfileError) as failure:
        load_hardware("h100_sxn")
    text = str(failure.value)
    assert "unknown hardware profile 'h100_sxn'" in text
    assert "did you mean 'h100_sxm'" in text
    assert "h100_sxn.yaml" in text
    assert str(data_dir("hardware_profiles")) in text
    assert "\n" not in text


def test_unknown_path_offers_the_nearest_name(here: Path) -> None:
    """A path that leads nowhere is answered with the packaged name of that stem."""
    with pytest.raises(ProfileError, match="did you mean 'h200_sxm'"):
        load_hardware("profiles/h200_sxn.yaml")


@pytest.mark.parametrize(
    "name", ["", " ", "a\0b", "x" * 5000, "..", ".", "/", "con/../", "engines"]
)
def test_nonsense_names_are_one_sentence(here: Path, name: str) -> None:
    """Whatever is asked for, the answer is one short line."""
    with pytest.raises(ProfileError) as failure:
        load_hardware(name)
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 2500


def test_an_engine_is_not_a_device(here: Path) -> None:
    """Names of one kind do not answer for the other."""
    with pytest.raises(ProfileError, match="unknown hardware profile 'vllm'"):
        load_hardware("vllm")
    with pytest.raises(ProfileError, match="unknown engine profile 'h100_sxm'"):
        load_engine("h100_sxm")


def test_errors_name_file_and_line(here: Path) -> None:
    """A wrong value is refused at its line."""
    text = packaged_text("h100_sxm").replace("bandwidth_gb_s: 3350", "bandwidth_gb_s: -3350")
    (here / "mine.yaml").write_text(text, encoding="utf-8")
    line = 1 + text.splitlines().index("  bandwidth_gb_s: -3350")
    with pytest.raises(ProfileError, match=rf"^mine\.yaml:{line}: memory\.bandwidth_gb_s"):
        load_hardware("mine.yaml")


def test_an_edited_file_is_read_again(here: Path) -> None:
    """A second load sees what was written in between."""
    file = here / "mine.yaml"
    file.write_text("extends: l40s\nmemory: {bandwidth_gb_s: 400}\n", encoding="utf-8")
    assert load_hardware("mine.yaml").memory_bandwidth_bytes_per_s == 4e11
    file.write_text("extends: l40s\nmemory: {bandwidth_gb_s: 1728}\n", encoding="utf-8")
    assert load_hardware("mine.yaml").memory_bandwidth_bytes_per_s == 1.728e12


def test_profiles_survive_pickling() -> None:
    """Worker processes get the same profile."""
    device = load_hardware("h100_sxm")
    assert pickle.loads(pickle.dumps(device)) == device


# -- extends ---------------------------------------------------------------------------------


def test_extends_changes_what_it_says_and_nothing_else(here: Path) -> None:
    """Halving the bandwidth is two lines, and everything else stays that of the base."""
    (here / "slow_h100.yaml").write_text(
        "extends: h100_sxm\nmemory: {bandwidth_gb_s: 1675}\n", encoding="utf-8"
    )
    base, slow = load_hardware("h100_sxm"), load_hardware("slow_h100")
    assert slow.name == "slow_h100"
    assert slow.memory_bandwidth_bytes_per_s == base.memory_bandwidth_bytes_per_s / 2
    assert slow.memory_capacity_bytes == base.memory_capacity_bytes
    for dtype, fit in slow.gemm.items():
        # The coefficients stay; how sure they are of another device does not.
        assert replace(fit, error=base.gemm[dtype].error) == base.gemm[dtype]
        assert fit.error.borrowed > base.gemm[dtype].error.borrowed == 0.0
    assert slow.link == base.link


def test_a_what_if_is_not_calibrated(here: Path) -> None:
    """Nobody measured the changed device, unless its author says so."""
    (here / "a.yaml").write_text(
        "extends: h100_sxm\nmemory: {bandwidth_gb_s: 1675}\n", encoding="utf-8"
    )
    (here / "b.yaml").write_text(
        "extends: h100_sxm\nkernels: {calibrated: true}\n", encoding="utf-8"
    )
    assert load_hardware("h100_sxm").calibrated
    assert not load_hardware("a").calibrated
    assert load_hardware("b").calibrated


def test_an_inherited_source_says_what_was_changed(here: Path) -> None:
    """The source of a changed group names the file that changed it, and its own source wins."""
    (here / "a.yaml").write_text(
        "extends: h100_sxm\n"
        "memory: {bandwidth_gb_s: 1675}\n"
        "power: {tdp_w: 500, source: the limit set in our cluster}\n",
        encoding="utf-8",
    )
    sources = load_hardware("a").sources
    assert sources["memory"].startswith("bandwidth_gb_s set by a.yaml; the rest as h100_sxm:")
    assert sources["power"] == "the limit set in our cluster"
    assert sources["compute"] == load_hardware("h100_sxm").sources["compute"]


def test_null_removes_an_optional_group(here: Path) -> None:
    """A device without its link is one line."""
    (here / "alone.yaml").write_text("extends: h100_sxm\nlink: null\n", encoding="utf-8")
    device = load_hardware("alone")
    assert device.link is None
    assert "link" not in device.sources


def test_a_local_file_may_extend_the_packaged_one_of_its_name(here: Path) -> None:
    """A file does not find itself when it asks for its base."""
    (here / "h100_sxm.yaml").write_text(
        "extends: h100_sxm\nmemory: {capacity_gb: 60}\n", encoding="utf-8"
    )
    device = load_hardware("h100_sxm")
    assert device.memory_capacity_bytes == 60e9
    assert device.memory_bandwidth_bytes_per_s == 3.35e12


def test_extends_is_looked_for_beside_the_file(here: Path) -> None:
    """A base given by path or name is found in the folder of the file that names it."""
    folder = here / "profiles"
    folder.mkdir()
    (folder / "base.yaml").write_text(
        "extends: l40s\nmemory: {capacity_gb: 40}\n", encoding="utf-8"
    )
    (folder / "by_name.yaml").write_text("extends: base\n", encoding="utf-8")
    (folder / "by_path.yaml").write_text("extends: base.yaml\n", encoding="utf-8")
    assert load_hardware("profiles/by_name.yaml").memory_capacity_bytes == 40e9
    assert load_hardware("profiles/by_path.yaml").memory_capacity_bytes == 40e9


def test_profiles_that_extend_each_other_are_refused(here: Path) -> None:
    """A circle of profiles is an error, not an endless loop."""
    (here / "a.yaml").write_text("extends: b\n", encoding="utf-8")
    (here / "b.yaml").write_text("extends: a\n", encoding="utf-8")
    with pytest.raises(ProfileError, match=r"extends"):
        load_hardware("a")


@pytest.mark.parametrize("base", ["42", "[h100_sxm]", "''", "h100_sxn"])
def test_a_wrong_base_is_named_at_its_line(here: Path, base: str) -> None:
    """What cannot be extended is refused at the line of ``extends``."""
    (here / "a.yaml").write_text(f"\nextends: {base}\n", encoding="utf-8")
    with pytest.raises(ProfileError, match=r"^a\.yaml:2: extends: .*h100_sxm"):
        load_hardware("a.yaml")


def test_a_wrong_override_is_named(here: Path) -> None:
    """A misspelt key in an override is refused like one in a full profile."""
    (here / "a.yaml").write_text(
        "extends: h100_sxm\nmemory: {bandwith_gb_s: 1}\n", encoding="utf-8"
    )
    with pytest.raises(ProfileError, match=r"a\.yaml:2: memory\.bandwith_gb_s.*bandwidth_gb_s"):
        load_hardware("a.yaml")


def test_engines_extend_too(here: Path) -> None:
    """An engine with another host time is two lines."""
    (here / "fast.yaml").write_text("extends: vllm\nhost: {per_step_us: 100}\n", encoding="utf-8")
    fast, base = load_engine("fast.yaml"), load_engine("vllm")
    assert fast.host_time_per_step_s == pytest.approx(1e-4)
    assert fast.host_time_per_sequence_s == base.host_time_per_sequence_s
    assert fast.max_num_seqs == base.max_num_seqs


def test_the_config_keeps_the_evidence() -> None:
    """Calibration reads rows, standard errors and cache size, which the SI form leaves out."""
    config = load_hardware_config("h100_sxm")
    assert config.memory.l2_mb == 50
    entry = config.kernels.gemm["bf16"]
    assert entry.rows is not None
    assert entry.held_out_error is not None
    assert set(entry.standard_error) <= set(type(entry).model_fields)


def test_a_what_if_names_its_relative(here: Path) -> None:
    """A profile that takes over efficiencies says whose, through any number of profiles."""
    (here / "a.yaml").write_text(
        "extends: h100_sxm\nmemory: {bandwidth_gb_s: 1675}\n", encoding="utf-8"
    )
    (here / "b.yaml").write_text("extends: a\nmemory: {bandwidth_gb_s: 1000}\n", encoding="utf-8")
    for name in ("a", "b"):
        assert load_hardware(name).uncalibrated_note == "uncalibrated: efficiencies of h100_sxm"
    assert load_hardware("h100_sxm").uncalibrated_note == ""


def test_kernels_of_an_engine_are_inherited_as_a_stand_in(here: Path) -> None:
    """Kernels fitted for an engine stay fitted in their own profile alone."""
    (here / "base.yaml").write_text(
        "extends: h100_sxm\n"
        "kernels:\n"
        "  calibrated: true\n"
        "  engines:\n"
        "    mine:\n"
        "      calibrated: true\n"
        "      source: measured by hand on this very device\n"
        "      elementwise: {bandwidth_efficiency: 0.5, overhead_us: 7}\n",
        encoding="utf-8",
    )
    (here / "child.yaml").write_text(
        "extends: base\nkernels: {calibrated: true}\n", encoding="utf-8"
    )
    base, child = load_hardware("base"), load_hardware("child")
    assert base.with_kernels("mine").calibrated
    assert base.with_kernels("mine").elementwise.overhead_s == pytest.approx(7e-6)
    assert child.calibrated
    note = child.with_kernels("mine").uncalibrated_note
    assert note == "uncalibrated: efficiencies of base"
    assert "measured by hand" in child.sources["kernels.engines.mine"]
