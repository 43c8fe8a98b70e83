"""`kernelgen add-op`."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelgen.cli import output
from kernelgen.cli.parser import Parser
from kernelgen.errors import KernelgenError, UsageError

if TYPE_CHECKING:
    from kernelgen.scaffold.project import Project
    from kernelgen.scaffold.schema.from_python.reference import Reference
    from kernelgen.scaffold.schema.model import Schema

# The recipes of which the kernels are written too, by what the function decomposes to.
DERIVED = ("pointwise", "row_wise")
# The recipe of an op whose shapes are known, and the kernels not.
SHAPED = "shaped"


def run(arguments: list[str]) -> int:
    parser = Parser("add-op", "Add an op to a project: a recipe under a new name, or one of your own.")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the op's name; asked for at a terminal")
    parser.add_argument(
        "--recipe", metavar="R", help="the recipe to stamp it from (default: blank; `kernelgen list` shows all)"
    )
    parser.add_argument(
        "--schema", metavar="S", help='the op\'s schema, such as "(Tensor x, float eps=1e-6) -> Tensor"'
    )
    parser.add_argument("--from", dest="function", metavar="FILE.py:FUNCTION", help="a PyTorch function")
    parser.add_argument(
        "--shapes", metavar="S", help='the shapes of its tensors, such as "x: ... D; weight: D float32 -> ... D"'
    )
    parser.add_argument(
        "--backward",
        choices=("own", "composed", "none"),
        help="the gradient: an operator of its own, PyTorch's of the reference, or none (default: composed, if any)",
    )
    parser.add_project()
    parser.add_writing()
    options = parser.parse_args(arguments)

    from kernelgen.cli import questions
    from kernelgen.scaffold import ops, project

    is_asked = options.name is None
    if is_asked:
        questions.need_terminal("add-op", "NAME")
    with project.writing(options.project) as home:
        if is_asked:
            questions.ask_op(options, home, (*DERIVED, SHAPED))
        entry = _entry(options, home)
        plan = ops.add(home, entry)
        output.note(home.template.note if home.template.dirty else "")
        folder = home.relative(home.op_folder(options.name))
        edit = ops.to_write(plan) or ops.kernels(plan)
        written = entry["recipe"] in DERIVED
        if is_asked and not options.dry_run and not questions.confirm(plan):
            return 0
        steps = [*([] if written else [f"edit {', '.join(edit)}"]), "kernelgen build", f"pytest {folder}"]
        if output.finish(plan, plan.apply, dry_run=options.dry_run, as_json=options.json, op=entry, next=steps):
            print(output.steps(steps))
    return 0


def _entry(options: argparse.Namespace, home: "Project") -> dict[str, Any]:
    """The op's element of the answers' `ops`; with a schema, also everything that the schema implies."""
    if options.schema and options.function:
        raise UsageError("--schema and --from both give the schema; leave one of them out.")
    derived = options.schema is not None or options.function is not None
    if derived and options.recipe not in (None, "blank"):
        raise UsageError(f"--schema and --from choose the recipe; leave out --recipe {options.recipe}.")
    if options.recipe in DERIVED:
        raise UsageError(
            f"The recipe {options.recipe} is for functions that decompose; write "
            f"`kernelgen add-op {options.name} --from FILE.py:FUNCTION`."
        )
    if options.recipe == SHAPED:
        raise UsageError(
            f"The recipe {SHAPED} is for ops whose shapes are known; write `kernelgen add-op {options.name} --schema S "
            "--shapes S`."
        )
    entry = {"name": options.name, "recipe": options.recipe or "blank"}
    if not derived:
        if options.shapes is not None or options.backward is not None:
            raise UsageError("--shapes and --backward go with --schema or --from.")
        return entry

    if options.schema is not None:
        from kernelgen.scaffold.schema.parser import parse

        return _with_shapes(entry, _named(parse(options.schema), options.name, home), options, home)

    from kernelgen.scaffold.schema.from_python import reference

    function = reference.read(*reference.split_spec(options.function))
    if function.packages:
        packages = ", ".join(function.packages)
        output.note(f"{function.name} imports {packages}; add them to `dependencies` in pyproject.toml.")
    if function.unsaid:
        parts = " and ".join(filter(None, (", ".join(function.unsaid[:-1]), function.unsaid[-1])))
        output.note(f'assumed "{function.schema.text}": annotate {parts} if that is not so')
    _check_shapes_apply(function.schema, options)
    calls = None
    if options.shapes is not None:
        calls = _calls(options.shapes, function)  # What is wrong with it is said before anything is traced.
    entry |= {"schema": function.schema.entry(), "reference": function.source_as(options.name)}
    if not _has_shapes(function.schema):
        output.note(
            f"The kernels of {options.name} are yours to write: they are written for functions that take a Tensor, "
            "which is no list and always given, and return tensors alone."
        )
        return entry
    if options.recipe != "blank" and options.backward is None:
        said = _said_dtypes(options.shapes or function.shapes, function)
        said = said if options.shapes is not None else {**function.dtypes, **said}
        entry = _with_kernels(entry, home, calls, function, said)
    if entry["recipe"] not in DERIVED:
        return _with_learned_shapes(entry, function, options, home)
    if options.shapes is not None:
        output.note(f"The kernels of {options.name} are written, for these shapes and others: --shapes was left out.")
    return entry


def _calls(text: str, function: "Reference") -> list[dict[str, Any]]:
    """Shapes and dtypes of arguments, and shapes of results, that --shapes describes."""
    from kernelgen.scaffold.shapes import trials
    from kernelgen.scaffold.shapes.cases import shape_in
    from kernelgen.scaffold.shapes.operator import Operator
    from kernelgen.scaffold.shapes.parser import parse

    operator = Operator(function.name, "forward", parse(text, function.schema))
    return [
        {
            "arguments": {tensor.name: shape_in(tensor.shape, case) for tensor in operator.tensors},
            "dtypes": {tensor.name: tensor.dtype for tensor in operator.tensors},
            "results": [shape_in(result.shape, case) for result in operator.results],
        }
        for case in trials.test_cases(operator)
    ]


def _said_dtypes(text: str, function: "Reference") -> dict[str, str]:
    """The dtypes of tensors of integers and truth values, from --shapes or what the function says of its tensors."""
    from kernelgen.scaffold.shapes.dtypes import is_floating
    from kernelgen.scaffold.shapes.operator import Operator
    from kernelgen.scaffold.shapes.parser import parse

    if not text:
        return {}
    try:
        tensors = Operator(function.name, "forward", parse(text, function.schema)).tensors
    except KernelgenError:  # It is said where the shapes are used.
        return {}
    return {
        tensor.name: {"int": "int64"}.get(tensor.dtype, tensor.dtype)
        for tensor in tensors
        if not is_floating(tensor.dtype)
    }


def _named(schema: "Schema", name: str, home: "Project") -> "Schema":
    """The schema, with the operator's name where it is not the op's.

    Raises:
        UsageError: the schema names an operator that is no variant of the op, or another op's.
    """
    from dataclasses import replace

    if schema.operator in (None, name):
        return replace(schema, operator=None)
    base = schema.operator.partition(".")[0]
    if not name.startswith(base.rstrip("_")):
        raise UsageError(
            f"The schema is of an operator {schema.operator}, and the op is to be called {name}: leave the operator's "
            f"name out, or let the op's name begin with {base.rstrip('_')}."
        )
    for op in home.ops:
        if schema.operator in (op["name"], op.get("schema", {}).get("operator")):
            raise UsageError(f"The operator {schema.operator} is there already, in the op {op['name']}.")
    return schema


def _has_shapes(schema: "Schema") -> bool:
    """Whether it takes a tensor that is always given, and returns tensors alone, so that shapes describe it."""
    takes_tensor = any(argument.type.kind == "tensor" for argument in schema.arguments)
    return takes_tensor and all(result.type.is_tensor for result in schema.returns)


def _check_shapes_apply(schema: "Schema", options: argparse.Namespace) -> None:
    if options.shapes is not None and not schema.takes_tensors:
        raise UsageError(f"{schema.text} takes no tensor, so leave out --shapes.")
    if options.backward in ("own", "composed") and not schema.takes_tensors:
        raise UsageError(f"{schema.text} takes no tensor to differentiate by, so leave out --backward.")


def _with_shapes(
    entry: dict[str, Any], schema: "Schema", options: argparse.Namespace, home: "Project"
) -> dict[str, Any]:
    """The entry of an op that is made from a schema, whose shapes are given or assumed."""
    from kernelgen.scaffold.shapes.entry import assumed, shaped
    from kernelgen.scaffold.shapes.parser import parse

    _check_shapes_apply(schema, options)
    text = assumed(schema) if options.shapes is None else options.shapes
    if text is None and options.backward is not None:
        raise UsageError(f"--backward needs the shapes of {schema.text}; write them as --shapes.")
    if schema.operator is not None and (options.shapes is not None or options.backward is not None):
        raise UsageError(
            f"--shapes and --backward are for operators of their op's name, which {schema.operator} is not."
        )
    if text is None or schema.operator is not None or not _knows_shapes(home, options):
        return entry | {"schema": schema.entry()}
    shapes = parse(text, schema)
    if options.shapes is None:
        output.note(f'assumed --shapes "{shapes.text}": give others where the tensors have other shapes or dtypes')
    return entry | {"recipe": SHAPED} | shaped(options.name, shapes, options.backward)


def _with_learned_shapes(
    entry: dict[str, Any], function: "Reference", options: argparse.Namespace, home: "Project"
) -> dict[str, Any]:
    """The entry of an op that is made from a function, whose shapes are learned by calls of it."""
    from kernelgen.lab.shapes import NotLearnedError, WritesError, learn
    from kernelgen.scaffold.schema.from_python.reference import read, split_spec
    from kernelgen.scaffold.shapes.entry import shaped
    from kernelgen.scaffold.shapes.parser import parse
    from kernelgen.toolchain.python import find_python

    if not _knows_shapes(home, options):
        return entry
    learned = None
    try:
        with output.progress(f"calling {options.name}"):
            python = find_python(home.root)
            call = partial(learn, python, home.root, entry["reference"], options.name, function.schema)
            if options.shapes is None and function.shapes:
                try:
                    learned = call(function.shapes)
                    output.note(f'took --shapes "{learned.shapes.text}" from what {function.name} says of its tensors')
                except KernelgenError as reason:
                    sentence = str(reason).partition("\n")[0]
                    output.note(
                        f'{function.name} says of its tensors "{function.shapes}", which was not used: {sentence}'
                    )
            learned = learned or call(options.shapes)
    except WritesError as reason:
        path, name = split_spec(options.function)
        schema = read(path, name, mutates=reason.names).schema
        raise UsageError(
            f"{name} writes to {' and '.join(reason.names)}, which annotations do not say; write `kernelgen add-op "
            f'{options.name} --schema "{schema.text}"`.'
        ) from reason
    except NotLearnedError as reason:
        if options.shapes is None and options.backward is not None:
            raise UsageError(
                f"--backward needs shapes, so write them as --shapes. In the way was {reason}."
            ) from reason
        if options.shapes is None:
            output.note(
                f"The shapes of {options.name} are not known, so write them as --shapes. In the way was {reason}."
            )
            return entry if reason.sides is None else entry | {"sides": reason.sides}
        output.note(f"--shapes was not held against the function: {reason}.")
        facts = shaped(
            options.name, parse(options.shapes, function.schema), options.backward, docstring=function.docstring
        )
        return entry | {"recipe": SHAPED} | facts
    if learned.assumed:
        output.note(f'assumed --shapes "{learned.shapes.text}": give others where the tensors have other shapes')
    facts = shaped(
        options.name,
        learned.shapes,
        options.backward,
        docstring=function.docstring,
        drawn=learned.cases,
        least=learned.least,
        differentiable=learned.differentiable,
        drawing=learned.drawing,
        independent=learned.independent,
    )
    return entry | {"recipe": SHAPED} | facts


def _knows_shapes(home: "Project", options: argparse.Namespace) -> bool:
    """Whether the project's template has the recipe.

    Raises:
        UsageError: it has not, and the options need it.
    """
    if SHAPED in home.recipes():
        return True
    if options.shapes is not None or options.backward is not None:
        raise UsageError("The project's template knows no --shapes and no --backward; `kernelgen update` brings them.")
    return False


def _with_kernels(
    entry: dict[str, Any],
    home: "Project",
    calls: list[dict[str, Any]] | None,
    function: "Reference",
    said: dict[str, str],
) -> dict[str, Any]:
    """The entry of a recipe that writes the kernels too, where the function decomposes; else the same entry."""
    from kernelgen.lab.returned import ReturnedError
    from kernelgen.lab.trace import NotTracedError, trace
    from kernelgen.scaffold.formula.entry import kernels
    from kernelgen.scaffold.formula.parts import first_of_results
    from kernelgen.scaffold.render import lacking
    from kernelgen.toolchain.python import find_python

    recipes = [recipe for recipe in DERIVED if recipe in home.recipes()]
    name, schema = entry["name"], entry["schema"]
    try:
        if not recipes:
            raise NotTracedError("that the project's template has no recipe for it; `kernelgen update` brings one")
        with output.progress(f"tracing {name}"):
            python = find_python(home.root)
            traced = trace(python, home.root, entry["reference"], name, schema["arguments"], recipes, calls, said)
        schema = _with_results(name, function, schema, len(first_of_results(traced["paths"][0]["forward"])))
        facts = kernels(schema, traced)
        if lacks := lacking(home.renderer().folder, facts["traced"]):
            raise NotTracedError(f"that the project's template writes no {lacks}; `kernelgen update` brings them")
        if (compared := traced["assumption"]["compared"]) and calls is None:
            names = " and ".join(compared)
            output.note(f"assumed {names} of floating-point numbers: write dtypes as --shapes if that is not so")
        if traced["assumption"].get("any_size") and calls is None:
            points = [f"{name} of {cut['parts']}" for name, cut in traced["assumption"]["cuts"].items()]
            dim = traced["assumption"].get("flat", {}).get("dim")
            what = "a last dimension" if dim is None else f"a dimension {dim}"
            output.note(f"assumed {what} of {' and '.join(points)}: write --shapes if that is not so")
        for tensor, dtype in traced["assumption"]["guessed"].items():
            output.note(f"assumed {tensor} of {dtype}: write dtypes as --shapes if that is not so")
        for tensor, (low, high) in traced["assumption"]["domains"].items():
            why = f"{name} refuses some others, at which kernels do not look"
            if tensor in traced["assumption"]["scaled"]:
                why = f"float32 has no results of {name} of numbers near 1, which tests draw otherwise"
            output.note(f"assumed {tensor} between {low} and {high}: {why}")
        if traced["assumption"]["wide_alone"]:
            output.note(f"float32 has no results of {name} of numbers as tests draw: they are of float64 alone")
        if reason := facts["traced"]["composed"]:
            output.note(f"The gradient of {name} is PyTorch's of reference.py. In the way of its kernels was {reason}.")
        if cases := ", ".join(facts["traced"].get("signature", {}).get("kernels_are_for", [])):
            output.note(f"The kernels of {name} are for {cases}; any other call runs reference.py.")
        if (ranks := _ranks(facts["traced"])) and calls is None:
            output.note(f"The kernels of {name} are for {ranks}: write --shapes if you mean others.")
        return entry | facts
    except ReturnedError:
        raise
    except KernelgenError as reason:
        output.note(f"The kernels of {name} are yours to write. In the way was {str(reason).rstrip('.')}.")
        return entry


def _with_results(name: str, function: "Reference", schema: dict[str, Any], count: int) -> dict[str, Any]:
    """The schema of a function that returned so many tensors, which only an annotation contradicts.

    Raises:
        ReturnedError: one does.
    """
    from kernelgen.lab.returned import check_count
    from kernelgen.scaffold.schema.parser import parse

    if count == len(schema["returns"]) or "its result" not in function.unsaid:
        check_count(name, len(schema["returns"]), count)
        return schema
    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    text = f"{schema['text'].rpartition(' -> ')[0]} -> {results}"
    output.note(f'{name} returned {count} tensors: assumed "{text}"')
    return parse(text).entry()


def _ranks(traced: dict[str, Any]) -> str | None:
    """The tensors that kernels of rows take, in words, where the number of dimensions is limited."""
    least, most = (traced.get("rows", {}).get(key) for key in ("least", "most"))
    if not most:
        return None
    if "groups" in traced:  # Which are a dimension for the operator alone.
        least, most = least - 1, most - 1
    count = f"{least}" if least == most else f"{least} to {most}"
    return f"{traced['tensors'][0]['python']} of {count} dimension{'s' if most > 1 else ''}"
