"""`kernelgen new`."""

from pathlib import Path

from kernelgen.cli import output
from kernelgen.cli.parser import Parser


def run(arguments: list[str]) -> int:
    parser = Parser("new", "Stamp a project into a new folder.")
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="the folder to create; its name becomes the project's"
    )
    parser.add_argument(
        "--defaults", action="store_true", help="ask nothing: take the default of every question without an answer"
    )
    parser.add_argument("--data", action="append", default=[], metavar="NAME=VALUE", help="answer one question")
    parser.add_argument("--data-file", type=Path, metavar="FILE", help="answer questions from a YAML file")
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.scaffold import new, template

    source = template.installed()
    data = new.read_data(options.data, options.data_file)
    with new.claimed(options.directory):
        stamp = new.stamp(source, options.directory, data, options.defaults)
        output.note(source.note)
        plan = stamp.plan
        if output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, note=source.note):
            print(f"\n{stamp.message}")
    template.remember(source)
    return 0
