"""`kernelgen new`."""

from pathlib import Path
from typing import Any

from kernelgen.cli import output
from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("new", "Stamp a project into a new folder.")
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        nargs="?",
        help="the folder to create; its name becomes the project's; asked for at a terminal",
    )
    parser.add_argument(
        "--defaults", action="store_true", help="ask nothing: take the default of every question without an answer"
    )
    parser.add_argument("--data", action="append", default=[], metavar="NAME=VALUE", help="answer one question")
    parser.add_argument("--data-file", type=Path, metavar="FILE", help="answer questions from a YAML file")
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.cli import questions
    from kernelgen.scaffold import new, template

    if options.directory is None:
        questions.need_terminal("new", "DIR")
        options.directory = questions.ask_folder()
    source = template.installed()
    data = new.read_data(options.data, options.data_file)
    output.note(_record_gpus(data))
    with new.claimed(options.directory):
        stamp = new.stamp(source, options.directory, data, options.defaults)
        output.note(source.note)
        plan = stamp.plan
        if output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, note=source.note):
            print(f"\n{stamp.message}")
    template.remember(source)
    return 0


def _record_gpus(data: dict[str, Any]) -> str:
    """Answers the question for architectures with this machine's GPUs, and says so; "" where there is none, or another
    answer. So a colleague's build, and a wheel, are for the GPUs that the project was begun for."""
    from kernelgen.toolchain import gpus

    if "cuda_architectures" in data or not (present := gpus.present()):
        return ""
    data["cuda_architectures"] = ";".join(dict.fromkeys(architecture for _, architecture in present))
    names = " and ".join(dict.fromkeys(name for name, _ in present))
    pinned = data["cuda_architectures"]
    return f"setup.py pins {pinned}, for the {names} here; --data cuda_architectures=native leaves it open"
