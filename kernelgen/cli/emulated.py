"""The emulated GPU among the devices of a verb: its options, and the build of what runs on it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.cli.parser import Parser

if TYPE_CHECKING:
    from kernelgen.emulator.project_library import EmulatedBuild

DEVICE = "emulated"


def add_gpu(parser: Parser) -> None:
    text = "with --device emulated: which GPU (sm_75, sm_80, sm_86, sm_89 or sm_90a; default: sm_90a)"
    parser.add_argument("--gpu", metavar="GPU", help=text)


def check(parser: Parser, options: argparse.Namespace) -> None:
    """Refuses --gpu without the device that it belongs to, and a GPU that cannot be emulated."""
    if options.gpu is not None and options.device != DEVICE:
        parser.error("--gpu goes with --device emulated")
    if options.device == DEVICE:
        from kernelgen.emulator import gpus

        gpus.find(options.gpu)


def measures_time(device: str) -> str:
    """The type of `--device` where times are measured.

    Raises:
        ArgumentTypeError: the GPU is an emulated one.
    """
    if device == DEVICE:
        raise argparse.ArgumentTypeError("the emulated GPU says nothing about speed; it is for build, fuzz and pytest")
    return device


def build(root: Path, python: Path, gpu: str | None, *, quiet: bool = True) -> "EmulatedBuild":
    """Brings the library for an emulated GPU up to date; `quiet` keeps standard output free."""
    from kernelgen.emulator import gpus, project_library

    return project_library.build(root, python, gpus.find(gpu), quiet=quiet)
