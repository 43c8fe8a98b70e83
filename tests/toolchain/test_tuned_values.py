"""Tuned values reach an op's sources by build_tools: what the header says, what is ignored, what is compiled again."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from build_tools import machine
from build_tools.messages import BuildError
from build_tools.tuning_header import tuned_entries, tuning_headers

from kernelgen.toolchain.build import Build, environment
from kernelgen.worker import environment as workers_environment
from tests.stamped.conftest import build, quickly, stamp

OP = Path("src/demo_kernels/ops/elementwise")
CPU = "A CPU"
# Prints the values of three classes of shapes, and for how many types the function that uses them was compiled.
CLASSES = """#include <cstdio>
#include <string_view>
#include "cpu/elementwise.h"
struct Defaults { static constexpr int threads = 256; };
struct Short : Defaults { static constexpr std::string_view shapes = "short rows"; };
struct Long : Defaults { static constexpr std::string_view shapes = "long rows"; };
struct Other : Defaults { static constexpr std::string_view shapes = "others"; };
int compiled = 0;
template <typename Tuned> struct Counted { static inline const int once = ++compiled; };
int main() {
  const auto print = [](auto values) {
    (void)Counted<decltype(values)>::once;
    std::printf("%d ", decltype(values)::threads);
  };
  tuned::elementwise::visit<Short>(print);
  tuned::elementwise::visit<Long>(print);
  tuned::elementwise::visit<Other>(print);
  std::printf("%d", compiled);
}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """Two ops, the CPU library built."""
    ops = [{"name": name, "recipe": "elementwise"} for name in ("elementwise", "other")]
    project = stamp(tmp_path_factory.mktemp("tuned") / "demo", ops=ops)
    build(project, USE_CUDA="0", **quickly()).check_returncode()
    return project


@pytest.fixture
def quick_builds(monkeypatch) -> None:
    """Builds have the flags of the project's."""
    for name, value in quickly().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def a_cpu(monkeypatch, tmp_path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor: 0\nmodel name\t: {CPU}\n")
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")


@pytest.mark.parametrize("text", ["processor: 0\nmodel name\t: A CPU\n", "processor: 0\nCPU part\t: 0xd40\n", None])
def test_tune_names_a_cpu_as_the_build_does(tmp_path, monkeypatch, text):
    """An ARM CPU's record has no model, and some systems have no record."""
    if text:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(platform, "processor", lambda: "another name")
    for module in (machine, workers_environment):
        monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    assert workers_environment.cpu_name() == machine.cpu_name()


@pytest.fixture
def tuned(project):
    """Writes the op's tuned.json; it is gone after the test."""
    path = project / OP / "tuned.json"
    yield lambda content: path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.unlink(missing_ok=True)


@pytest.fixture
def headers(project, a_cpu):
    """The text of the op's headers by backend, for these architectures; and the notes."""

    def call(*architectures: str) -> tuple[dict[str, str], str]:
        notes: list[str] = []
        texts = tuning_headers("elementwise", tuned_entries(project / OP), list(architectures), notes.append)
        return texts, "\n".join(notes)

    return call


def test_without_a_file_the_defaults_stand(headers):
    texts, notes = headers("9.0a")
    for text in texts.values():
        assert "return f(Defaults());" in text
        assert "Values" not in text
    assert notes == ""


def test_values_are_members_of_a_type_with_the_types_of_the_defaults(headers, tuned):
    tuned({"9.0": {"values": {"threads": 128, "fast": True}}, CPU: {"values": {"grain": 4096}}})
    texts, notes = headers("8.0", "9.0a")
    assert "static constexpr decltype(Defaults::threads) threads = 128;" in texts["cuda"]
    assert "static constexpr decltype(Defaults::fast) fast = true;" in texts["cuda"]
    assert "if (compute_capability() == 90)" in texts["cuda"]
    assert texts["cuda"].count("return f(Defaults());") == 1
    assert "decltype(Defaults::grain) grain = 4096;" in texts["cpu"]
    assert "Defaults()" not in texts["cpu"]
    assert notes == ""


def test_a_class_of_shapes_may_have_values_of_its_own(headers, tuned, tmp_path):
    """And the others are compiled with the values that are for all, or with the defaults, but with no other class's."""
    shapes = {"short rows": {"threads": 64}, "long rows": {"threads": 512}}
    (tmp_path / "cpu").mkdir()
    for entry, others in (({"values": {"threads": 128}, "shapes": shapes}, "128"), ({"shapes": shapes}, "256")):
        tuned({CPU: entry})
        (tmp_path / "cpu/elementwise.h").write_text(headers("9.0")[0]["cpu"])
        (tmp_path / "main.cpp").write_text(CLASSES)
        command = ["c++", "-std=c++17", "-Wall", "-Werror", f"-I{tmp_path}", "main.cpp", "-o", "main"]
        subprocess.run(command, cwd=tmp_path, check=True)
        assert subprocess.check_output(tmp_path / "main", text=True).split() == ["64", "512", others, "3"]


def test_another_chips_values_are_ignored_with_a_line(headers, tuned):
    tuned({"8.0": {"values": {"threads": 128}}, "Another CPU": {"values": {"grain": 1}}})
    texts, notes = headers("9.0a")
    for text in texts.values():
        assert "Values" not in text
    assert "elementwise/tuned.json is for 8.0, not for 9.0a: the defaults stand." in notes
    assert "elementwise/tuned.json is for Another CPU, not for A CPU: the defaults stand." in notes


@pytest.mark.parametrize(
    "content",
    ["{", "[]", {"9.0": 1}, {"9.0": {"values": {"threads": "many"}}}, {"9.0": {"values": {"threads": 1.5}}}],
)
def test_a_damaged_file_is_refused_with_its_cure(headers, tuned, content):
    tuned(content)
    with pytest.raises(BuildError, match=r"elementwise/tuned\.json is damaged: .* delete it to have the defaults"):
        headers("9.0a")


def test_a_changed_file_rebuilds_exactly_its_op(project, tuned, quick_builds, monkeypatch):
    for name in ("DEBUG", "SANITIZE", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USE_CUDA", "0")
    build = Build(project, environment(), Path(sys.executable))
    build.run(quiet=True)
    chip = machine.cpu_name()
    source = f"{OP}/cpu.cpp"
    tuned({chip: {"values": {"grain": 4096}}})
    assert build.run(quiet=True).compiled == [source]
    assert build.run(quiet=True).compiled == []
    tuned({chip: {"values": {"grain": 8192}}})
    assert build.run(quiet=True).compiled == [source]
    (project / OP / "tuned.json").unlink()
    assert build.run(quiet=True).compiled == [source]
    tuned({chip: {"values": {"grian": 8192}}})
    with pytest.raises(Exception, match="the native build failed"):
        build.run(quiet=True)


def test_the_values_are_those_that_the_kernel_runs_with(project, tuned, quick_builds):
    """A wheel's library, too: the values are compiled in, and the file is not needed to run."""
    source = project / OP / "cpu.cpp"
    text = source.read_text()
    chip = machine.cpu_name()
    tuned({chip: {"values": {"chunk": 77}}})
    mark = "constexpr int chunk = decltype(values)::chunk; static_assert(chunk == 77);"
    try:
        source.write_text(
            text.replace(
                "      multiply_add<decltype(values)>(", f"      {mark}\n      multiply_add<decltype(values)>("
            )
        )
        assert mark in source.read_text()
        build(project, USE_CUDA="0").check_returncode()
        (project / OP / "tuned.json").unlink()
        assert build(project, USE_CUDA="0").returncode != 0
    finally:
        source.write_text(text)
    build(project, USE_CUDA="0").check_returncode()
