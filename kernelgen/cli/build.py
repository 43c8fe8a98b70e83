"""`kernelgen build`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from kernelgen.cli import emulated
from kernelgen.cli.parser import Parser, whole

if TYPE_CHECKING:
    from kernelgen.toolchain.build import Build


def run(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    emulated.check(parser, options)
    if options.device == emulated.DEVICE:
        return _emulated(parser, options)
    if options.debug and options.sanitize:
        parser.error("--debug and --sanitize are two variants; choose one")
    if options.test and not options.watch:
        parser.error("--test goes with --watch")
    if options.watch and options.json:
        parser.error("--watch prints builds as they happen, for people; leave out --json")
    if options.wheel and (options.debug or options.sanitize or options.watch):
        parser.error("--wheel packs the release build; leave out --debug, --sanitize and --watch")

    from kernelgen.toolchain.build import Build, environment, find_root

    variables = environment(arch=options.arch, debug=options.debug, sanitize=options.sanitize)
    build = Build(find_root(options.project), variables, options.python)
    if options.wheel:
        return _wheel(build, options.json)
    if options.watch:
        from kernelgen.toolchain.watch import watch

        return watch(build, options.jobs, test=options.test)
    outcome = build.run(options.jobs, clean=options.clean, verbose=options.verbose, quiet=options.json)
    report = outcome.as_dict()
    text = []
    if options.timings:
        from kernelgen.toolchain import timings

        steps = timings.read(build.root, outcome)
        picture = timings.draw(build.root / outcome.folder, steps)
        report["timings"] = {"steps": [step.as_dict() for step in steps], "picture": str(picture)}
        text += [timings.table(steps), f"picture: {picture}", ""]
    if options.resources:
        from kernelgen.toolchain import resources

        kernels = resources.read(build.root, outcome)
        report["resources"] = [kernel.as_dict() for kernel in kernels]
        text += [resources.table(kernels), ""]
    print(json.dumps(report) if options.json else "\n".join([*text, str(outcome), *outcome.usage()]))
    return 0


def _emulated(parser: Parser, options: argparse.Namespace) -> int:
    """Builds the library for an emulated GPU, which is no variant of build_tools'."""
    for name in ("arch", "debug", "sanitize", "timings", "resources", "watch", "wheel"):
        if getattr(options, name):
            parser.error(f"--{name} is for the compiler of CUDA or of the CPU; leave it out with --device emulated")
    from kernelgen.emulator import gpus, project_library
    from kernelgen.toolchain.build import find_root
    from kernelgen.toolchain.python import find_python

    root = find_root(options.project)
    switches = {name: getattr(options, name) for name in ("jobs", "clean", "verbose")}
    outcome = project_library.build(
        root, find_python(root, options.python), gpus.find(options.gpu), quiet=options.json, **switches
    )
    variables = " ".join(f"{name}={value}" for name, value in outcome.variables().items())
    print(json.dumps(outcome.as_dict()) if options.json else f"{outcome}\nuse it with: {variables} python …")
    return 0


def _wheel(build: Build, as_json: bool) -> int:
    from kernelgen.toolchain.finding import table
    from kernelgen.toolchain.python import find_python
    from kernelgen.toolchain.wheel import build_wheel, refuse_native

    python = find_python(build.root, build.python)
    refuse_native(build.root, python, build.environment)
    findings = build_wheel(build.root, python, build.root / "dist", build.environment)
    if as_json:
        print(json.dumps({"findings": [finding.as_dict() for finding in findings]}))
    else:
        print(table(findings))
    return int(any(finding.state == "error" for finding in findings))


def _parser() -> Parser:
    parser = Parser("build", "Compile what changed of a project's ops, in place.")
    parser.add_project()
    parser.add_python()
    text = "emulated: the CUDA sources for an emulated GPU, into build/emulated-GPU; needs CUDA's headers alone"
    parser.add_argument("--device", choices=(emulated.DEVICE,), help=text)
    emulated.add_gpu(parser)
    text = "CUDA architectures, such as '8.0;9.0a', Hopper, native or all (default: the project's)"
    parser.add_argument("--arch", metavar="LIST", help=text)
    parser.add_argument("--debug", action="store_true", help="build for a debugger, into build/debug")
    text = "build for a sanitizer of the host code, into build/asan or build/ubsan"
    parser.add_argument("--sanitize", choices=("address", "undefined"), help=text)
    parser.add_argument("--timings", action="store_true", help="show where the time went, and draw it")
    text = "show the registers, shared memory and spills of each kernel"
    parser.add_argument("--resources", action="store_true", help=text)
    parser.add_argument("--watch", action="store_true", help="build whenever a source is saved, until Ctrl-C")
    text = "with --watch: run the tests of the ops that changed after each build"
    parser.add_argument("--test", action="store_true", help=text)
    text = "build a wheel into dist/ instead, and check which Pythons, torches and GPUs it runs on"
    parser.add_argument("--wheel", action="store_true", help=text)
    text = "remove what was built before, and build it all"
    parser.add_argument("--clean", action="store_true", help=text)
    text = "compiler processes at once (default: $MAX_JOBS, or by cores and memory)"
    parser.add_argument("-j", dest="jobs", type=whole(1), metavar="N", help=text)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the compilers' command lines")
    parser.add_json()
    return parser
