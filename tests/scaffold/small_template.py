"""A template of a few small files in several versions, so that a stamp or an update takes milliseconds."""

from collections.abc import Mapping
from pathlib import Path

from kernelgen.scaffold.render import parse_yaml
from tests.conftest import ROOT, commit_all, git

ANSWERS = "{{ _copier_conf.answers_file }}.jinja"
PACKAGE = "src/{{ package_name }}"


def op_folder(recipe: str) -> str:
    return f"{PACKAGE}/ops/{{% yield op from ops_by_recipe.{recipe} %}}{{{{ op.name }}}}{{% endyield %}}"


def lines(name: str, count: int = 30) -> str:
    """A text that no other is similar to; its lines can be edited one by one."""
    return "".join(f"{name}: line {number}\n" for number in range(count))


ANSWERS_FILE = ".copier-answers.yml"
OPS = "src/my_kernels/ops"
KERNEL = f"{op_folder('alpha')}/kernel.cu"
MINE = "this line is the owner's"


def copier_yml(recipes: list[str], questions: str = "") -> str:
    return f"""\
_min_copier_version: "9.19.0"
_subdirectory: template
_answers_file: .copier-answers.yml
_envops:
  undefined: jinja2.StrictUndefined
  keep_trailing_newline: true
_exclude: [_macros, __pycache__, "*.so"]
project_name:
  type: str
  default: "{{{{ _folder_name }}}}"
package_name:
  type: str
  default: my_kernels
{questions}
recipes:
  type: str
  multiselect: true
  secret: true
  when: "{{{{ ops is not defined }}}}"
  choices: &recipes {recipes}
  default: [{recipes[0]}]
ops:
  type: yaml
  ask: false
  default: "[{{% for name in recipes %}}{{name: {{{{ name }}}}, recipe: {{{{ name }}}}}}, {{% endfor %}}]"
known_recipes:
  type: yaml
  when: false
  default: *recipes
ops_by_recipe:
  type: json
  when: false
  default: "{{{{ dict(dict.fromkeys(known_recipes, []), **dict(ops | groupby('recipe'))) | to_json }}}}"
"""


def first() -> dict[str, str]:
    """The first version, by path in the template."""
    return {
        ANSWERS: (ROOT / "template" / ANSWERS).read_text(),
        "README.md.jinja": "# {{ project_name }}\n\n" + lines("readme"),
        "setup.py": lines("setup"),
        "tools/run.sh": "#!/bin/sh\n" + lines("run"),
        ".gitignore": "*.so\n__pycache__/\n",
        f"{PACKAGE}/__init__.py": "",
        f"{PACKAGE}/include/common.h": lines("common"),
        f"{PACKAGE}/include/math.h": lines("math"),
        **{
            f"{op_folder(recipe)}/{file}": text
            for recipe in ("alpha", "beta")
            for file, text in {
                "__init__.py.jinja": "# {{ op.name }}\n" + lines(f"{recipe} init"),
                "kernel.cu": lines(f"{recipe} kernel"),
                "tuning.h": lines("tuning"),
            }.items()
        },
    }


def write(
    repository: Path,
    files: Mapping[str, str],
    tag: str | None = None,
    executable: tuple[str, ...] = (),
    recipes: tuple[str, ...] = ("alpha", "beta"),
    questions: str = "",
) -> None:
    """Commit a version of the template, with nothing left of the one before."""
    if (repository / "template").exists():
        git(repository, "rm", "-r", "--quiet", "--ignore-unmatch", ".")
    for path, text in files.items():
        file = repository / "template" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if path in executable else 0o644)
    (repository / "copier.yml").write_text(copier_yml(list(recipes), questions))
    commit_all(repository, tag or "a version")
    if tag:
        git(repository, "tag", tag)


def edited(text: str, number: int, mark: str) -> str:
    """A text of `lines` with one line changed."""
    parts = text.splitlines(keepends=True)
    parts[number] = f"{mark}\n"
    return "".join(parts)


def edit(path: Path, number: int = 20, mark: str = MINE) -> None:
    path.write_text(edited(path.read_text(), number, mark))


def newer(source: Path, changes: dict[str, str | None] | None = None, tag: str | None = "v2.0", **options) -> None:
    """Commit a version in which files differ; by default, the second line of alpha's kernel."""
    changes = {KERNEL: edited(lines("alpha kernel"), 2, "from the newer template")} if changes is None else changes
    files = {path: text for path, text in (first() | changes).items() if text is not None}
    write(source, files, tag, **options)


def newer_everywhere(source: Path, tag: str = "v2.0") -> None:
    newer(source, {path: edited(text, 2, "newer") for path, text in first().items() if text.count("\n") > 20}, tag)


def recorded(project: Path) -> dict[str, dict]:
    """The entries of a project's ops, by name."""
    return {op["name"]: op for op in parse_yaml((project / ANSWERS_FILE).read_bytes())["ops"]}
