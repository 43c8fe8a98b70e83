"""`kernelgen build`: what it compiles, what it leaves alone, and what an interrupted or doubled build leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import json_schemas
from tests.stamped.conftest import quickly, stamp

PACKAGE = Path("src/demo_kernels")
OPS = PACKAGE / "ops"
ROOT = Path(__file__).parents[2]
# No build takes as long, however busy the machine is, unless it hangs.
LIMIT_S = 600

# A compiler that halts while the project holds a file `hang` whose text names the step, compile or link: it writes a
# part of its output, creates the file `hangs`, and waits. It goes on once `hang` is gone, and fails if that says `die`.
HALTING = """#!/bin/sh
out=; last=
for word; do [ "$last" = -o ] && out=$word; last=$word; done
case " $* " in *" -shared "*) kind=link;; *" -c "*) kind=compile;; *) kind=;; esac
if [ -n "$kind" ] && grep -q "$kind" hang 2> /dev/null; then
    head -c 999 /dev/zero > "$out"
    touch hangs
    while [ -e hang ]; do sleep 0.05; grep -q die hang 2> /dev/null && rm hang && exit 1; done
fi
exec g++ "$@"
"""


@pytest.fixture(scope="session")
def built(made_once) -> Path:
    """A project of one op with its CPU library. Shared: do not change it."""

    def make(folder: Path) -> None:
        project = stamp(folder / "demo", ops=[{"name": "elementwise", "recipe": "elementwise"}])
        (project / "halting-g++").write_text(HALTING)
        (project / "halting-g++").chmod(0o755)
        kernelgen(project, "build").check_returncode()

    return made_once("built", make) / "demo"


@pytest.fixture
def demo(built, tmp_path) -> Path:
    """A copy, with the times of its files."""
    return Path(shutil.copytree(built, tmp_path / "demo", symlinks=True))


def variables(project: Path, **more: str) -> dict[str, str]:
    """The environment of these builds: no CUDA, and a compiler that can be halted."""
    known = {"USE_CUDA": "0", "USE_CCACHE": "0", "CXX": "./halting-g++", "PYTHONPATH": str(ROOT), **quickly(), **more}
    names = ("TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "DEBUG", "SANITIZE", "MAX_JOBS", "CXXFLAGS", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in names}, **known}


def kernelgen(project: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelgen", *arguments]
    result = subprocess.run(
        command, cwd=project, env=variables(project, **more), capture_output=True, text=True, check=False
    )
    json_schemas.check(arguments, result.stdout)
    return result


def start(project: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """Starts kernelgen in the background, in a process group of its own, as a terminal would."""
    command = [sys.executable, "-m", "kernelgen", *arguments]
    pipe = subprocess.PIPE
    environment = variables(project, **more)
    return subprocess.Popen(
        command,
        cwd=project,
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        # A test run in the background of a script inherits SIGINT ignored; a program of a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def compiled(project: Path, **more: str) -> list[str]:
    """What a build compiles, as paths inside ops/."""
    result = kernelgen(project, "build", "--json", **more)
    assert result.returncode == 0, result.stderr + result.stdout
    return sorted(str(Path(path).relative_to(OPS)) for path in json.loads(result.stdout)["compiled"])


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def holder(project: Path) -> str:
    """The id of the process that holds the lock of the release build."""
    return (project / "build/release.lock").read_text()


def loads(project: Path) -> None:
    code = "import demo_kernels, torch; x = torch.ones(3); print(demo_kernels.elementwise(x, x, x).tolist())"
    environment = variables(project, PYTHONPATH="src")
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "[2.0, 2.0, 2.0]\n", result.stderr


def test_the_library_is_the_one_that_import_finds(built):
    loads(built)


def test_nothing_edited_needs_neither_torch_nor_setuptools(demo):
    assert compiled(demo) == []  # The copy lies elsewhere, so it is configured once more.
    environment = variables(demo)
    # Imports of the build's own Python process are listed too.
    environment["PYTHONPROFILEIMPORTTIME"] = "1"
    command = [sys.executable, "-m", "kernelgen", "build"]
    result = subprocess.run(command, cwd=demo, env=environment, capture_output=True, text=True, check=True)
    assert "nothing to do: _cpu.so up to date" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert {"kernelgen.toolchain.build", "build_tools.build"} <= imported
    assert not imported & {"torch", "setuptools", "yaml", "copier", "jinja2", "rich", "build_tools.configure"}
    before = (demo / "build/release/environment.json").stat().st_mtime_ns
    again = kernelgen(demo, "build", "--json")
    assert (json.loads(again.stdout)["compiled"], again.stderr) == ([], "")  # Ninja, too, is silent.
    assert (demo / "build/release/environment.json").stat().st_mtime_ns == before


def test_an_edit_compiles_one_file_and_says_so(demo):
    edit(demo / OPS / "elementwise/cpu.cpp")
    result = kernelgen(demo, "build")
    assert result.stdout.splitlines()[-1].startswith("built _cpu.so in ")
    assert result.stdout.endswith(" s (1 of 1 files compiled)\n")
    assert compiled(demo) == []


def test_a_changed_header_compiles_its_users(demo):
    edit(demo / PACKAGE / "include/torch/checks.h")
    assert compiled(demo) == ["elementwise/cpu.cpp"]


def test_ops_come_and_go(demo):
    ops = demo / OPS
    shutil.copytree(ops / "elementwise", ops / "second")
    for path in (ops / "second").glob("*.*"):
        path.write_text(path.read_text().replace("elementwise", "second"))
    assert compiled(demo) == ["second/cpu.cpp"]
    (ops / "second").rename(ops / "third")
    for path in (ops / "third").glob("*.*"):
        path.write_text(path.read_text().replace("second", "third"))
    assert compiled(demo) == ["third/cpu.cpp"]
    shutil.rmtree(ops / "third")
    result = json.loads(kernelgen(demo, "build", "--json").stdout)
    assert (result["compiled"], result["linked"]) == ([], [str(PACKAGE / "_cpu.so")])
    (ops / "elementwise/cpu.cpp").rename(ops / "elementwise/cpu_main.cpp")
    assert compiled(demo) == ["elementwise/cpu_main.cpp"]


def test_an_instantiation_that_is_named_is_compiled(demo):
    """Configuring reads that line of each .cu; other edits of it are left to Ninja."""
    snapshot = demo / "build/release/snapshot.json"
    assert compiled(demo) == []
    kernel = demo / OPS / "elementwise/kernel.cu"

    def configured() -> bool:
        before = snapshot.read_text()
        assert compiled(demo) == []  # There is no CUDA here, so no .cu is compiled.
        return snapshot.read_text() != before

    edit(kernel)
    assert not configured()
    kernel.write_text(kernel.read_text() + "// instantiate: T = float16\n")
    assert configured()
    (demo / OPS / "elementwise/sm90").mkdir()
    (demo / OPS / "elementwise/sm90/further.cu").touch()
    assert configured()
    assert not configured()


def test_a_changed_schema_reaches_the_compiler(demo):
    init = demo / OPS / "elementwise/__init__.py"
    init.write_text(init.read_text().replace("(Tensor ", "(int further, Tensor ", 1))
    result = kernelgen(demo, "build")
    assert result.returncode == 1
    assert "static assertion failed" in result.stdout
    assert result.stderr.splitlines()[-1] == "kernelgen: the native build failed; the compiler's messages are above."
    init.write_text("SCHEMAS = list_of()\n")
    result = kernelgen(demo, "build")
    sentence = 'needs a literal SCHEMAS = {"name": "(Tensor x) -> Tensor"}.'
    assert result.stderr == f"kernelgen: {init.relative_to(demo)} {sentence}\n"
    init.write_text("SCHEMAS = {\n")
    assert kernelgen(demo, "build").stderr == f"kernelgen: {init.relative_to(demo)}, line 1: '{{' was never closed.\n"


def test_a_changed_flag_or_compiler_compiles_again_and_another_path_does_not(demo, tmp_path):
    assert compiled(demo, CXXFLAGS="-DANYTHING") == ["elementwise/cpu.cpp"]
    assert compiled(demo) == ["elementwise/cpu.cpp"]
    assert compiled(demo, PATH=f"{tmp_path}:{os.environ['PATH']}") == []
    # A compiler that was upgraded where it was.
    wrapper = (demo / "halting-g++").read_text()
    (demo / "halting-g++").write_text(wrapper.replace("exec", '[ "$1" = -dumpfullversion ] && echo 99\nexec'))
    assert compiled(demo) == ["elementwise/cpu.cpp"]
    # Another torch, in the place of the one before.
    (demo / "build/release/torch.txt").write_text("2.10.0\n")
    (demo / "build/release/snapshot.json").unlink()
    assert compiled(demo) == ["elementwise/cpu.cpp"]


def test_a_compiler_cache_is_used_where_there_is_one_and_never_doubled(demo, tmp_path):
    cache = tmp_path / "tools/ccache"
    cache.parent.mkdir()
    cache.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nexec "$@"\n')
    cache.chmod(0o755)
    path = f"{cache.parent}:{os.environ['PATH']}"
    log = tmp_path / "log"

    def cached() -> str:
        edit(demo / OPS / "elementwise/cpu.cpp")
        log.write_text("")
        assert compiled(demo, PATH=path, **settings) == ["elementwise/cpu.cpp"]
        return log.read_text()

    settings = {"USE_CCACHE": "1"}
    assert cached().startswith("./halting-g++ -MD")
    # With a cache or without, Ninja's command is the same: finding one compiles nothing.
    assert compiled(demo) == []
    settings = {"USE_CCACHE": "0"}
    assert cached() == ""
    settings = {"USE_CCACHE": "1", "CXX": f"{cache} ./halting-g++"}
    assert cached().startswith("./halting-g++ -MD")


@pytest.mark.parametrize("stage", ["compile", "link"])
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_an_interrupted_build_leaves_nothing_broken(demo, stage, how):
    before = (demo / PACKAGE / "_cpu.so").read_bytes()
    edit(demo / PACKAGE / "include/torch/checks.h")
    (demo / "hang").write_text(stage)
    process = start(demo, "build")
    wait_for(demo / "hangs")
    os.killpg(process.pid, signal.SIGKILL if how == "kill" else signal.SIGINT)
    if how == "kill":  # The compiler is not of that process group: it goes a little later.
        (demo / "hang").write_text("die")
        while (demo / "hang").exists():
            time.sleep(0.02)
    (demo / "hang").unlink(missing_ok=True)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == (130 if how == "ctrl-c" else -signal.SIGKILL), out + err
    assert (demo / PACKAGE / "_cpu.so").read_bytes() == before
    result = json.loads(kernelgen(demo, "build", "--json").stdout)
    assert result["linked"] == [str(PACKAGE / "_cpu.so")]
    loads(demo)
    assert compiled(demo) == []


def test_a_reader_that_leaves_stops_no_build(demo):
    edit(demo / OPS / "elementwise/cpu.cpp")
    (demo / "hang").write_text("compile")
    process = start(demo, "build")
    wait_for(demo / "hangs")
    process.stdout.close()
    (demo / "hang").unlink()
    assert process.stderr.read() == ""
    process.wait(LIMIT_S)
    assert compiled(demo) == []


def test_two_builds_at_once_take_turns(demo):
    edit(demo / OPS / "elementwise/cpu.cpp")
    (demo / "hang").write_text("compile")
    first = start(demo, "build")
    wait_for(demo / "hangs")
    second = start(demo, "build")
    assert second.stderr.readline() == f"kernelgen: waiting for another build (pid {holder(demo)})\n"
    (demo / "hang").unlink()
    assert first.communicate(timeout=LIMIT_S)[0].endswith("(1 of 1 files compiled)\n")
    assert "nothing to do" in second.communicate(timeout=LIMIT_S)[0]
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_lock_goes_with_the_last_of_its_processes(demo):
    edit(demo / OPS / "elementwise/cpu.cpp")
    (demo / "hang").write_text("compile")
    first = start(demo, "build")
    wait_for(demo / "hangs")
    first.kill()  # Ninja and the compiler go on.
    first.wait()
    second = start(demo, "build")
    assert second.stderr.readline() == f"kernelgen: waiting for another build (pid {holder(demo)})\n"
    (demo / "hang").unlink()
    assert "nothing to do" in second.communicate(timeout=LIMIT_S)[0]
    loads(demo)


def test_variants_stand_beside_the_release_build(demo):
    before = (demo / PACKAGE / "_cpu.so").read_bytes()
    result = kernelgen(demo, "build", "--sanitize", "address")
    assert result.returncode == 0, result.stderr
    assert "built _cpu.so in build/asan in" in result.stdout
    assert "use it with: DEMO_KERNELS_VARIANT=asan LD_PRELOAD=/" in result.stdout
    assert "__asan_" in subprocess.check_output(["nm", "-D", demo / "build/asan/_cpu.so"], text=True)
    assert "use it with: DEMO_KERNELS_VARIANT=debug pytest" in kernelgen(demo, "build", "--debug").stdout
    assert (demo / "build/debug/_cpu.so").is_file()
    assert (demo / PACKAGE / "_cpu.so").read_bytes() == before
    assert compiled(demo) == []


def test_a_wheel_is_built_and_checked(demo):
    result = kernelgen(demo, "build", "--wheel", "--json")
    assert result.returncode == 0, result.stderr
    checks = [finding["check"] for finding in json.loads(result.stdout)["findings"]]
    assert (checks[0], checks[-1]) == ("wheel", "portable")
    assert len(list((demo / "dist").glob("demo_kernels-*-cp310-abi3-*.whl"))) == 1


def test_clean_starts_over(demo):
    result = kernelgen(demo, "build", "--clean", "-v")
    assert "(1 of 1 files compiled)" in result.stdout
    assert " -O3 " in result.stdout  # -v shows commands


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "sentence"),
    [
        (["--debug", "--sanitize", "address"], {}, 2, "--debug and --sanitize are two variants; choose one"),
        (["--test"], {}, 2, "--test goes with --watch"),
        (["--wheel", "--debug"], {}, 2, "--wheel packs the release build; leave out --debug"),
        (["-j", "0"], {}, 2, "argument -j: 0 is no whole number from 1 to"),
        (["-j", "9" * 30], {}, 2, f"argument -j: {'9' * 30} is no whole number from 1 to 2147483647"),
        (["--python", "/nowhere"], {}, 2, "There is no Python at /nowhere."),
        ([], {"CXX": "no-such-compiler"}, 1, "the C++ compiler 'no-such-compiler' was not found; install one"),
        ([], {"SANITIZE": "thread"}, 1, "SANITIZE=thread is not known; write SANITIZE=address or"),
        ([], {"MAX_JOBS": "many"}, 1, "MAX_JOBS=many is no number of processes; write a whole number"),
        ([], {"USE_CUDA": "1", "CUDA_HOME": "/nowhere"}, 1, "CUDA_HOME=/nowhere holds no CUDA toolkit"),
        ([], {"NVCC_APPEND_FLAGS": "-O3 -arch=sm_80"}, 1, "NVCC_APPEND_FLAGS holds -arch=sm_80, which would"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(demo, arguments, settings, code, sentence):
    result = kernelgen(demo, "build", *arguments, **settings)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert result.stderr.splitlines()[-1].startswith(f"kernelgen: {sentence}")


def test_an_error_is_json_where_json_was_asked_for(demo):
    result = kernelgen(demo, "build", "--json", CXX="no-such-compiler")
    assert json.loads(result.stdout)["exit_code"] == 1
    assert result.stderr == ""


def test_a_machine_without_a_compiler_refutes_no_op(demo):
    result = kernelgen(demo, "verdict", "elementwise", "--device", "cpu", "--json", CXX="no-such-compiler")
    assert result.returncode == 2, result.stderr
    assert [step["outcome"] for step in json.loads(result.stdout)["steps"]] == ["open"]


def test_the_compiler_s_errors_are_json_with_file_and_line(demo):
    source = demo / PACKAGE / "ops/elementwise/cpu.cpp"
    text = source.read_text()
    source.write_text(f"{text}\nint f() {{ return nothing; }}\n")
    result = kernelgen(demo, "build", "--json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["exit_code"]) == (1, 1)
    (error,) = report["errors"]
    place = (error["file"], error["line"], error["column"])
    assert place == (str(source.relative_to(demo)), text.count("\n") + 2, 18)
    assert "nothing" in error["message"]
    assert f"{place[0]}:{place[1]}:18: error:" in result.stderr  # A person sees it too.
    fuzz = kernelgen(demo, "fuzz", "elementwise", "--device", "cpu", "--json")
    assert fuzz.returncode == 2
    assert json.loads(fuzz.stdout)["errors"] == [error]  # A verb that builds first says the same.


def test_compile_commands_are_those_of_the_build(demo):
    (entry,) = json.loads((demo / "compile_commands.json").read_text())
    assert entry["file"] == str(PACKAGE / "ops/elementwise/cpu.cpp")
    assert (demo / entry["output"]).is_file()
    check = [*entry["arguments"], "-fsyntax-only"]
    assert subprocess.run(check, cwd=demo, check=False, capture_output=True).returncode == 0


def test_a_project_of_the_older_layout_is_told_how_to_go_on(demo):
    shutil.rmtree(demo / "build_tools")
    sentence = f"{demo} has no build_tools: it is of an older layout; bring it up to date: kernelgen update"
    result = kernelgen(demo, "build")
    assert (result.returncode, result.stderr) == (1, f"kernelgen: {sentence}\n")
    (finding,) = (
        finding
        for finding in json.loads(kernelgen(demo, "doctor", "--json").stdout)["findings"]
        if finding["check"] == "build_tools"
    )
    assert (finding["text"], finding["cure"]) == (sentence, "kernelgen update")
    assert kernelgen(demo, "env").stderr == f"kernelgen: {sentence}\n"


def test_a_setup_script_that_makes_no_project_is_refused(demo):
    (demo / "setup.py").write_text("from setuptools import setup\n")
    sentence = "setup.py makes no PROJECT; bring it up to date with `kernelgen update` or `copier update`."
    assert kernelgen(demo, "build").stderr == f"kernelgen: {sentence}\n"


def until_it_watches(process: subprocess.Popen[str]) -> None:
    for line in process.stderr:
        if "watching" in line:
            return
    pytest.fail(f"it ended with {process.wait()}")


def test_watch_builds_on_save_and_ends_on_ctrl_c(demo):
    process = start(demo, "build", "--watch")
    until_it_watches(process)
    edit(demo / OPS / "elementwise/cpu.cpp")
    until_it_watches(process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert "(1 of 1 files compiled)" in out
    assert err.endswith("kernelgen: stopped watching\n")


def test_watch_runs_the_tests_of_the_op_that_changed(demo):
    (demo / "tests" / "test_project.py").write_text("def test_of_no_op():\n    raise AssertionError\n")
    process = start(demo, "build", "--watch", "--test")
    until_it_watches(process)
    (demo / OPS / "elementwise/test_elementwise.py").write_text("def test_of_the_op():\n    pass\n")
    until_it_watches(process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert "1 passed" in out
    assert "failed" not in out
