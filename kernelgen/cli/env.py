"""`kernelgen env`."""

import json
import tempfile
from pathlib import Path

from kernelgen.cli import output, target
from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError


def run(arguments: list[str]) -> int:
    parser = Parser("env", 'Print the variables that a build here uses, for eval "$(kernelgen env)".')
    target.add_options(parser)
    text = "how to write them: for sh (the default), for fish, or as lines of a Dockerfile"
    parser.add_argument("--shell", choices=("sh", "fish", "docker"), default="sh", help=text)
    parser.add_json()
    options = parser.parse_args(arguments)

    from kernelgen.toolchain import environment, facts

    with tempfile.TemporaryDirectory() as scratch:
        examined = target.find(options, Path(scratch))
        if isinstance(examined.python, str):
            raise KernelgenError(examined.python)
        gathered = facts.gather(examined.root, examined.tools, examined.python)
        variables = environment.variables(gathered, output.note)
    if options.json:
        print(json.dumps(variables))
    else:
        print("\n".join(environment.in_syntax(variables, options.shell)))
    return 0
