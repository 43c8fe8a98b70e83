"""The command itself: help, versions, errors and exit codes."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from kernelgen import __version__, caches, cli
from kernelgen.cli import VERBS, output
from kernelgen.errors import KernelgenError, UsageError
from kernelgen.lab.ncu.profiler import FailedError
from tests.conftest import ROOT


def process(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "kernelgen", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **options)


def test_help_names_every_verb(run):
    result = run("--help")
    assert result.code == 0
    assert all(verb in result.out for verb in VERBS)
    assert run().code == 2


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(run, verb):
    result = run(verb, "--help")
    assert result.code == 0
    assert f"kernelgen {verb}" in result.out


def test_the_version_is_the_package_s(run):
    assert run("--version").out == f"kernelgen {__version__}\n"


def test_an_unknown_verb_is_answered_with_the_closest(run):
    refused = run("ad-op", "x")
    assert refused.code == 2
    assert "Did you mean add-op?" in refused.err


def test_a_bug_has_an_exit_code_of_its_own(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_dispatch", lambda arguments: {}["missing"])
    assert cli.main(["compare", "a.json", "b.json"]) == 70
    error_text = capsys.readouterr().err
    assert error_text.startswith("Traceback")
    assert error_text.endswith("KeyError: 'missing'\n")


@pytest.mark.parametrize("arguments", (["add-op"], ["list", "--nonsense"], ["new"], ["add-op", "x", "--recipe"]))
def test_wrong_usage_is_one_line_and_exit_2(run, arguments):
    refused = run(*arguments)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "--help" in refused.err


def test_with_json_an_error_is_json_too(run, tmp_path):
    refused = run("add-op", "x", "--project", tmp_path, "--json")
    assert refused.code == 1
    assert refused.json["exit_code"] == 1
    assert "not inside a kernelgen project" in refused.json["error"]
    assert refused.err == ""
    assert run("add-op", "--json").json["exit_code"] == 2
    assert run("build", "--watch", "--json").json["error"].startswith("--watch prints builds as they happen")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    (
        (KeyboardInterrupt(), 130, "Interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 1, "No space left on device: /x/y"),
        (OSError(errno.EROFS, "Read-only file system", "/x/y"), 1, "Read-only file system: /x/y; nothing was changed."),
        (
            FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
            1,
            "set TMPDIR to a folder",
        ),
    ),
)
def test_an_interrupt_or_a_disk_s_error_is_one_line(run, monkeypatch, error, code, message):
    def fail(_):
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    failed = run("list")
    assert failed.code == code
    assert message in failed.err
    assert failed.err.count("\n") == 1


@pytest.mark.parametrize("place", ("file", "file/cache", "folder"))
def test_a_cache_that_cannot_be_written_is_named_with_the_variable(run, monkeypatch, tmp_path, place):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))

    def fail(_):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / place / "kernelgen" / "emulator" / "x"))

    def make(_):
        caches.folder("templates").mkdir(parents=True)
        fail(_)

    for verb, code in (("list", 1), ("fuzz", 2), ("compare", 3)):
        monkeypatch.setattr(cli, "_dispatch", fail if place == "folder" else make)
        failed = run(verb)
        assert failed.code == code
        assert f"{tmp_path / place / 'kernelgen'}; set XDG_CACHE_HOME to a folder that can be written" in failed.err


def test_a_cache_has_a_whole_path(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert caches.folder("emulator").is_absolute()


@pytest.mark.parametrize(("verb", "code"), (("bench", 2), ("verdict", 2), ("compare", 3), ("tune", 3), ("report", 1)))
def test_a_package_that_is_not_installed_beside_kernelgen_is_no_bug(run, monkeypatch, verb, code):
    """pipx and uv give kernelgen an environment of its own, with what it always needs alone."""

    def work(_):
        import no_such_numpy  # noqa: F401

    monkeypatch.setattr(cli, "_dispatch", work)
    failed = run(verb)
    assert failed.code == code
    assert (
        f"`kernelgen {verb}` needs no_such_numpy where kernelgen is installed; get it with: {sys.executable}"
        in failed.err
    )


@pytest.mark.parametrize(("error", "code"), ((KernelgenError("x"), 2), (FailedError("x"), 1), (UsageError("x"), 2)))
def test_an_error_is_no_verdict(run, monkeypatch, error, code):
    def fail(_):
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert run("profile").code == code


@pytest.mark.parametrize(
    ("words", "right"),
    (
        (["--json", "list"], "kernelgen list --json"),
        (["--project", "my ops", "build", "--json"], "kernelgen build --project 'my ops' --json"),
        (["--quiet"], "kernelgen VERB --quiet"),
    ),
)
def test_options_before_the_verb_are_answered_with_the_order(run, words, right):
    refused = run(*words)
    assert refused.code == 2
    assert f"Options follow the verb: {right}" in refused.out + refused.err


def test_a_user_without_a_home_is_given_none_of_another(run, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert run("--version").code == 0
    assert os.environ["HOME"] == "/"


def test_help_imports_nothing_heavy():
    code = "import sys, kernelgen.cli as c; c.main(['--help']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for heavy in ("copier", "jinja2", "yaml", "rich", "torch", "subprocess", "argparse"):
        assert f"'{heavy}'" not in loaded


def test_add_op_does_not_import_copier(project, checkout):
    verb = ["add-op", "x", "--recipe", "elementwise"]
    code = f"import sys, kernelgen.cli as c; c.main({verb}); print(sorted(sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "3. pytest" in result.stdout
    for heavy in ("copier", "rich", "torch", "pydantic"):
        assert f"'{heavy}'" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [("--version", ">&-", 0), ("list --json", ">&-", 1), ("add-op", "<&-", 2), ("new x", "<&- 2>&-", 2)],
)
def test_streams_that_a_shell_closed(tmp_path, arguments, closed, code):
    command = f"{sys.executable} -m kernelgen {arguments} {closed}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_a_verb_that_is_terminated_puts_away_what_it_has_and_names_the_signal(monkeypatch):
    put_away = []

    def work(arguments):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            put_away.append(True)

    monkeypatch.setattr(cli, "_dispatch", work)
    assert cli.main(["compare"]) == 128 + signal.SIGTERM
    assert put_away

    def work_that_notices(arguments):
        try:
            work(arguments)
        except KeyboardInterrupt:
            return 130

    monkeypatch.setattr(cli, "_dispatch", work_that_notices)
    assert cli.main(["bench"]) == 128 + signal.SIGTERM


def test_a_reader_that_stops_reading_is_no_error(project, checkout):
    command = f"{sys.executable} -m kernelgen new x --dry-run --defaults --data recipes=elementwise | head -n 1"
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=environment)
    assert result.stdout.startswith("diff --git")
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("help", 1, "the output is incomplete"),
        ("help --help", 1, "the output is incomplete"),
        ("diff --json --project /", 1, "/ is not inside a kernelgen project"),
        ("nonsense --json", 2, "There is no verb 'nonsense'"),
    ],
)
def test_standard_output_that_takes_nothing_is_said_on_standard_error(tmp_path, arguments, code, sentence):
    command = [sys.executable, "-m", "kernelgen", *arguments.split()]
    # Python writes buffered output once more when it ends, and exits with 120 where it cannot.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment["PYTHONPATH"] = str(ROOT)
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
        without_either = subprocess.run(command, stdout=full, stderr=full, cwd=tmp_path, env=environment)
    assert (done.returncode, without_either.returncode) == (code, code)
    assert sentence in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("term", "after"), (("xterm", "\r\033[K"), ("dumb", "\n"), (None, "\n")))
def test_progress_is_erased_by_terminals_that_can(monkeypatch, capsys, term, after):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM", raising=False)
    with output.progress("tracing"):
        pass
    assert capsys.readouterr().err == f"kernelgen: tracing …{after}"


def test_python_m_kernelgen_is_the_same_command():
    result = process("--version")
    assert (result.returncode, result.stdout) == (0, f"kernelgen {__version__}\n")
    assert process("nonsense").returncode == 2
