"""Runs in a project's Python, with the path of its setup.py as the argument: prints what a build would use, as JSON.

That Python need not hold kernelgen, so this file imports the standard library alone. It is handed over as text.
"""

import contextlib
import importlib.util
import io
import json
import sys
from importlib import metadata


def ask(function, *arguments):
    """What a function returns, what it says on the way, and the sentence it stops with, if it does."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return {"value": function(*arguments), "said": said.getvalue().strip(), "error": ""}
    except SystemExit as refusal:
        problem = str(refusal)
    except Exception as failure:
        problem = f"setup.py stopped with {type(failure).__name__}: {failure}"
    return {"value": None, "said": said.getvalue().strip(), "error": problem}


def load(path):
    spec = importlib.util.spec_from_file_location("project_setup", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def fields(thing, *names):
    """Those attributes of a dataclass as JSON takes them."""
    values = ((name, getattr(thing, name, None)) for name in names)
    return {name: value if isinstance(value, (tuple, type(None))) else str(value) for name, value in values}


def examine(path):
    setup = ask(load, path)
    facts = {"setup": {**setup, "value": None}}
    if setup["error"]:
        return facts
    module = setup["value"]
    torch = ask(lambda: module.find_torch())
    toolkit = ask(lambda: module.find_toolkit(torch["value"])) if torch["value"] else ask(lambda: None)
    facts["torch"] = {**torch, "value": torch["value"] and fields(torch["value"], "home", "version", "cuda")}
    names = ("home", "version", "nvcc", "static_runtime")
    facts["toolkit"] = {**toolkit, "value": toolkit["value"] and fields(toolkit["value"], *names)}
    for name in ("ninja", "compiler"):
        facts[name] = ask(lambda name=name: getattr(module, f"find_{name}")())
    facts["architectures"] = ask(lambda: module.architectures(toolkit["value"]))
    facts["jobs"] = ask(lambda: module.jobs())
    facts["pinned"] = ask(lambda: module.CUDA_ARCHITECTURES)
    return facts


def main():
    facts = examine(sys.argv[1])
    facts["python"] = {"value": ".".join(map(str, sys.version_info[:3])), "said": "", "error": ""}
    wanted = ("ninja", "pip", "setuptools", "torch", "nvidia-")
    names = ((found.metadata["Name"] or "").lower() for found in metadata.distributions())
    installed = {name: metadata.version(name) for name in names if name.startswith(wanted)}
    facts["installed"] = {"value": installed, "said": "", "error": ""}
    print(json.dumps(facts))


main()
