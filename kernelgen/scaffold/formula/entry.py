"""What `traced` holds of an op's entry, for recipes to write kernels from: docs/ops-entry.md lists the keys."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import parts, rows, signature
from kernelgen.scaffold.formula.graph import Graph, Name, Node, Value
from kernelgen.scaffold.formula.lines import lines
from kernelgen.scaffold.formula.saved_results import reading_results
from kernelgen.scaffold.formula.totals import depends_on_totals, take_totals
from kernelgen.scaffold.schema.identifiers import identifiers
from kernelgen.scaffold.schema.parser import parse

# The elements of a row, the rows, and the first size, among the scalars of a trace.
COLUMNS, ROWS, BATCH = "row size", "row count", "batch size"
# What they are called in a formula.
_OF_ROWS = {COLUMNS: "columns", ROWS: "row_count", BATCH: "batch"}
# The kinds and dtypes of results of rows.
_RESULTS = (("element", "float"), ("row", "float"), ("row", "int"), ("total", "float"))
# What the stamped sources call things: no argument can have such a name in C++.
_SOURCES = """
    rows elements place first left k i index part grid kernel blocks unroll vectors values stream context shape
    gradients type error row column columns tensors buffers count grain partial_rows launch forward backward math
    terms totals room of_totals finish backward_totals has_next has_numbers part kLength
    address read write widen checks dtypes tuned selected Tuned Number Numbers Kernel Bounds Operand Elements Gradient
    Place Rows Vector N T
"""
_TAKEN = frozenset(_SOURCES.split())
# A kernel adds up the gradients of targets beside those of weights as long as its threads have registers for the sums,
# and up to so many reductions of a row: see `_summed`. On an H200 a loss with two gained by it, one with five lost.
_MOST_SUMS, _MOST_REDUCTIONS = 2, 3
# How a row calls what it has one of.
_MEMBERS = {"float": "number", "int": "place"}
DTYPES = ("float32", "float16", "bfloat16", "float64")


def kernels(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of an op of this schema (its entry) once its function is traced: `recipe`, `schema`, `traced`.

    Raises:
        KernelgenError: no recipe writes kernels of such a function; the message is a phrase that names what is in the
            way.
    """
    recipe = traced["assumption"]["recipe"]
    own_signature = signature.of_function(schema, traced["arguments"])
    schema = _with_free_names(signature.of_operator(schema, traced["arguments"]) if own_signature else schema)
    if dim := traced["assumption"].get("rows", {}).get("argument"):
        of_dim = [a | {"sample": a["default"] or "-1"} if a["name"] == dim else a for a in schema["arguments"]]
        schema = {**schema, "arguments": of_dim}
    return {
        "recipe": recipe,
        "schema": schema,
        "traced": {"pointwise": pointwise, "row_wise": row_wise}[recipe](schema, traced)
        | ({"signature": own_signature} if own_signature else {}),
    }


def _with_free_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with other C++ names where the stamped sources have such names already."""
    values = [*schema["arguments"], *schema["returns"]]
    taken = _TAKEN | {f"{value['cpp']}_operand" for value in values} | {f"{value['cpp']}_number" for value in values}
    names = iter(identifiers([value["cpp"] for value in values], taken))
    renamed = {key: [{**value, "cpp": next(names)} for value in schema[key]] for key in ("arguments", "returns")}
    return {**schema, **renamed}


def pointwise(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """The formula of a function of this schema (its entry) that was traced to pointwise operators alone.

    Raises:
        KernelgenError: a result that is joined of parts is not of floating-point numbers.
    """
    assumption, outputs = traced["assumption"], parts.first_of_results(traced["paths"][0]["forward"])
    dtypes, cuts = assumption["dtypes"], assumption.get("cuts")
    tensors = [
        parts.with_cut(_value(argument, dtypes[argument["name"]]), (cuts or {}).get(argument["name"]))
        | {"place": place, "between": argument["name"] in assumption["between"]}
        for place, argument in enumerate(schema["arguments"])
        if argument["kind"] == "tensor"
    ]
    results = [
        parts.with_cut(_value(result, output["dtype"]) | {"of": None}, cut)
        for result, (output, cut) in zip(schema["returns"], outputs, strict=True)
    ]
    if any("cut" in result and result["dtype"] != "float" for result in results):
        raise KernelgenError("a result that is joined of parts and not of floating-point numbers")
    part_names = _part_names(schema, traced["paths"][0]["forward"], [*tensors, *results])
    arguments = {a["name"]: a["cpp"] for a in schema["arguments"]}
    parameters = arguments | part_names
    graphs = [(path["flags"], Graph(path["forward"], parameters)) for path in traced["paths"]]
    read = _read(graph for _, graph in graphs)
    for tensor in tensors:
        own = [part_names[key] for key in part_names if key[0] == tensor["name"]] or [tensor["cpp"]]
        tensor["used"] = any(name in read for name in own)
    scalars = [_scalar(a) for a in schema["arguments"] if a["kind"] == "other"]
    written = parts.outputs(results, part_names)
    names = [*parameters.values(), *(result["cpp"] for result in results), *(output["cpp"] for output in written)]
    forward = _body(graphs, arguments, names, written)
    facts = {
        "dtypes": [dtype for dtype in DTYPES if traced["takes_float64"] or dtype != "float64"],
        "broadcasts": assumption["broadcasts"],
        "tensors": tensors,
        "scalars": scalars,
        "results": results,
        "forward": forward,
        "exponent": _exponent(graph for _, graph in graphs),
        "operations": max(len(path["forward"]["nodes"]) for path in traced["paths"]),
        "composed": assumption["composed"],
        "twice": assumption["twice"],
        "backward": _backward(schema, traced["paths"], tensors, scalars, results, arguments, part_names),
    }
    if cuts is not None:
        facts |= {"operands": parts.operands(tensors, part_names, read), "outputs": written}
        facts |= {key: assumption[key] for key in ("no_columns", "no_rows")}
    return _plain(facts)


def _part_names(
    schema: Mapping[str, Any], traced: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """The C++ names of the parts of these tensors, beside those of a schema."""
    if not any("cut" in tensor for tensor in tensors):
        return {}
    values = [value["cpp"] for value in (*schema["arguments"], *schema["returns"])]
    taken = _TAKEN | {value + suffix for value in values for suffix in ("", "_operand", "_number", "_row", "_data")}
    return parts.part_names(tensors, traced.get("part_names", []), taken)


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Data of which no part is the same object as another: YAML would write anchors, which two ops would share."""
    return json.loads(json.dumps(value))


def _exponent(graphs: Iterable[Graph]) -> str | None:
    """The C++ name of the scalar that exponents of powers are computed of, if there is such a scalar: the first."""
    return min((name for graph in graphs for name in graph.exponents()), default=None)


def _read(graphs: Iterable[Graph]) -> set[str]:
    """The C++ names of the arguments that some of the graphs read."""
    return set().union(*(graph.names() for graph in graphs))


def _value(of: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """A tensor: its names, the type of its elements (T or bool), and of one in a formula."""
    types = {"float": ("T", "Number"), "bool": ("bool", "bool"), "int": ("int64_t", "int64_t")}
    element, number = types[dtype]
    names = {key: of[key] for key in ("name", "python", "cpp")}
    return names | {"dtype": dtype, "element": element, "number": number}


def _scalar(argument: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("name", "python", "cpp", "type", "cpp_type")
    return {key: argument[key] for key in keys} | {"number": "bool" if argument["type"] == "bool" else "Number"}


def _body(
    paths: Sequence[tuple[Mapping[str, bool], Graph]],
    parameters: Mapping[str, str],
    names: Sequence[str],
    results: Sequence[Mapping[str, Any]],
) -> list[str]:
    """The lines of a formula: under conditions where a bool argument chooses between several."""
    outputs = [result["cpp"] for result in results]
    if len(paths) == 1:
        return lines(paths[0][1], outputs, names)
    bodies = [(flags, lines(graph, outputs, names, indent=4)) for flags, graph in paths]
    if all(body == bodies[0][1] for _, body in bodies):
        return lines(paths[0][1], outputs, names)
    text: list[str] = []
    for i, (flags, body) in enumerate(bodies):
        chosen = " && ".join(("" if value else "!") + parameters[name] for name, value in flags.items())
        condition = f"if ({chosen}) {{" if i == 0 else f"}} else if ({chosen}) {{"
        text.append("} else {" if i == len(bodies) - 1 else condition)
        text += [f"  {line}" for line in body]
    return [*text, "}"]


def _backward(
    schema: Mapping[str, Any],
    paths: Sequence[Mapping[str, Any]],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, str],
    part_names: Mapping[tuple[str, int], str],
) -> dict[str, Any] | None:
    """The gradient: an operator of its own, whose results are as large as those of the op."""
    if paths[0]["backward"] is None:
        return None
    floating = [tensor for tensor in tensors if tensor["dtype"] == "float"]
    outputs = [output for output, _ in parts.first_of_results(paths[0]["backward"])]
    inputs = [tensor for tensor, output in zip(floating, outputs, strict=True) if output is not None]
    if not inputs:
        return None
    differentiable = [i for i, result in enumerate(results) if result["dtype"] == "float"]
    grads = ["grad"] if len(results) == 1 else [f"grad_{results[i]['name']}" for i in differentiable]
    entry = _with_free_names(parse(_schema_text(schema, tensors, scalars, grads, inputs)).entry())
    words = {a["name"]: a["cpp"] for a in entry["arguments"]}
    parameters = {name: words[name] for name in parameters}
    named = dict(zip(differentiable, (words[grad] for grad in grads), strict=True))
    places_of = {argument["name"]: argument for argument in entry["arguments"]}
    dtype_of = {tensor["name"]: tensor["dtype"] for tensor in tensors}
    cut_of = {tensor["name"]: tensor.get("cut") for tensor in tensors}
    cut_of |= {grad: results[i].get("cut") for grad, i in zip(grads, differentiable, strict=True)}
    read_by_kernel = [
        parts.with_cut(_value(places_of[name], dtype_of.get(name, "float")), cut_of[name])
        for name in (*grads, *dtype_of)
    ]
    gradients = [
        parts.with_cut(_value(result, "float") | {"of": tensor["name"]}, cut_of[tensor["name"]])
        for result, tensor in zip(entry["returns"], inputs, strict=True)
    ]
    result_of = {grad: results[i]["name"] for grad, i in zip(grads, differentiable, strict=True)}
    names_of_parts = _backward_part_names(entry, read_by_kernel, gradients, part_names, result_of)
    of_grads = {
        (i, part): name
        for i, grad in zip(differentiable, grads, strict=True)
        for (tensor, part), name in names_of_parts.items()
        if tensor == grad
    }
    graphs = []
    for path in paths:
        graph = Graph(path["backward"], {**parameters, **names_of_parts}, {**named, **of_grads})
        graph.outputs = [value for value in graph.outputs if value is not None]
        graphs.append((path["flags"], graph))
    read = _read(graph for _, graph in graphs)
    written = parts.outputs(gradients, names_of_parts)
    same_as = _same_as([graph for _, graph in graphs], list(named.values()))
    copies = _copies([graph for _, graph in graphs])
    for gradient, tensor in zip(gradients, inputs, strict=True):
        same = copy = None
        if "cut" not in gradient:
            place = next(i for i, output in enumerate(written) if output["tensor"] == gradient["cpp"])
            same, copy = same_as[place], parts.uncut(copies[place], written)
        needed = words.get(f"{tensor['name']}_needed")
        gradient |= {"needed": needed, "same_as": same, "copy_of": copy}
    for tensor in read_by_kernel:
        own = [name for (of, _), name in names_of_parts.items() if of == tensor["name"]] or [tensor["cpp"]]
        tensor["used"] = any(name in read for name in own)
    names = [*words.values(), *(gradient["cpp"] for gradient in gradients), *names_of_parts.values()]
    facts = {
        "schema": entry,
        "grads": [
            {key: tensor[key] for key in tensor if key != "used"} | {"kind": "element", "used": tensor["used"]}
            for tensor in read_by_kernel[: len(grads)]
        ],
        "tensors": read_by_kernel,
        "scalars": [_scalar(places_of[scalar["name"]]) for scalar in scalars],
        "gradients": gradients,
        "places": [tensor["place"] for tensor in inputs],
        "exponent": _exponent(graph for _, graph in graphs),
        "operations": max(len(path["backward"]["nodes"]) for path in paths),
        "lines": _body(graphs, parameters, names, written),
    }
    if "cuts" in paths[0]["backward"]:
        facts |= {"operands": parts.operands(read_by_kernel, names_of_parts, read), "outputs": written}
    return facts


def _backward_part_names(
    entry: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    gradients: Sequence[Mapping[str, Any]],
    forward: Mapping[tuple[str, int], str],
    result_of: Mapping[str, str],
) -> dict[tuple[str, int], str]:
    """The names of the parts in the backward: those of the forward, and of their gradients after them.

    Args:
        result_of: the result that each of the given gradients is of.
    """
    held = [[*key, name] for key, name in forward.items()]
    of_results = [
        (grad, part, name) for grad, of in result_of.items() for (r, part), name in forward.items() if r == of
    ]
    held += [[grad, part, f"grad_{name}"] for grad, part, name in of_results]
    held += [
        [g["name"], part, f"grad_{name}"] for g in gradients for (of, part), name in forward.items() if of == g["of"]
    ]
    return _part_names(entry, {"part_names": held}, [*tensors, *gradients])


def _same_as(graphs: Sequence[Graph], grads: Sequence[str]) -> list[int | None]:
    """For each gradient, the place among `grads` of the one that it is, unchanged, on every path; None where there is
    none."""
    by_path = [[value.text if isinstance(value, Name) else None for value in graph.outputs] for graph in graphs]
    same = [names[0] if len(set(names)) == 1 else None for names in zip(*by_path, strict=True)]
    return [grads.index(name) if name in grads else None for name in same]


def _copies(graphs: Sequence[Graph]) -> list[int | None]:
    """For each gradient, the place of the first one that is the same on every path; None where it is itself."""
    values = list(zip(*(graph.outputs for graph in graphs), strict=True))
    first = [values.index(value) for value in values]
    return [place if place != i else None for i, place in enumerate(first)]


def _schema_text(
    schema: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    grads: Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
) -> str:
    """Gradients of the results, the op's arguments, and which gradients are needed where there are several."""
    words = [f"Tensor {name}" for name in (*grads, *(tensor["name"] for tensor in tensors))]
    words += [f"{scalar['type']} {scalar['name']}" for scalar in scalars]
    if len(inputs) == 1:
        return f"({', '.join(words)}) -> Tensor grad_{inputs[0]['name']}"
    words += [f"bool {tensor['name']}_needed" for tensor in inputs]
    return f"({', '.join(words)}) -> ({', '.join('Tensor grad_' + tensor['name'] for tensor in inputs)})"


def row_wise(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a function with reductions of rows.

    Raises:
        KernelgenError: a result is neither of rows nor a number for each row.
    """
    path, assumption = traced["paths"][0], traced["assumption"]
    parameters = {a["name"]: a["cpp"] for a in schema["arguments"]} | _OF_ROWS
    graph = Graph(path["forward"], parameters)
    tensors = [
        _of_rows(argument, assumption)
        | {"place": place, "between": argument["name"] in assumption["between"]}
        | {"used": argument["cpp"] in graph.names(), "checked": argument["cpp"] in graph.checked_places()}
        for place, argument in enumerate(schema["arguments"])
        if argument["kind"] == "tensor"
    ]
    scalars = [_scalar(a) for a in schema["arguments"] if a["kind"] == "other"]
    outputs = path["forward"]["outputs"]
    if any((output["kind"], output["dtype"]) not in _RESULTS for output in outputs):
        raise KernelgenError("a result that is neither of rows nor a number for each row")
    results = [
        _value(result, output["dtype"]) | {"kind": output["kind"], "keeps": output["keeps"], "needed": None}
        for result, output in zip(schema["returns"], outputs, strict=True)
    ]
    kinds = [(result["cpp"], result["kind"]) for result in results]
    names = [*parameters.values(), *(result["cpp"] for result in results)]
    totals = _forward_totals(graph, kinds, names)
    forward = rows.lines(graph, _inputs(tensors), kinds, _row_inputs(tensors), names)
    facts = {
        "dtypes": [dtype for dtype in DTYPES if traced["takes_float64"] or dtype != "float64"],
        "short_rows": assumption["short_rows"],
        "no_rows": assumption["no_rows"],
        "rows": _rows(schema, assumption),
        "tensors": tensors,
        "scalars": scalars,
        "results": results,
        "forward": forward,
        "reductions": rows.reductions(forward),
        "late": _late(graph, tensors),
        "accesses": _accesses(graph, tensors),
        "operations": len(path["forward"]["nodes"]),
        "totals": totals,
        "composed": assumption["composed"],
        "twice": assumption["twice"],
    }
    try:
        facts["backward"] = _row_backward(schema, path, tensors, scalars, results, parameters)
    except KernelgenError as reason:
        facts |= {"backward": None, "composed": str(reason)}
    return _plain(facts)


def _forward_totals(graph: Graph, kinds: list[tuple[str, str]], names: Sequence[str]) -> dict[str, Any] | None:
    """Sums over all rows in results: how many there are, and the lines that compute results of them. In `graph` and
    `kinds`, the results that depend on such sums give way to what each row adds to them."""
    totals, terms = take_totals(graph, names)
    pairs = list(zip(kinds, graph.outputs, strict=True))
    if any(kind != "total" and depends_on_totals(value) for (_, kind), value in pairs):
        raise KernelgenError("a result of rows that depends on a sum over all rows")
    if not totals:
        return None
    of_totals = [(result, value) for result, value in pairs if result[1] == "total"]
    graph.outputs = [value for _, value in of_totals]
    results = [result for result, _ in of_totals]
    lines_of_totals = rows.lines(graph, [], results, [(name, "total") for name in totals], names)
    finish = [re.sub(r"\brow\.", "totals.", line) for line in lines_of_totals]
    kept = [(result, value) for result, value in pairs if result[1] != "total"]
    kinds[:] = [*(result for result, _ in kept), *((name, "term") for name in totals)]
    graph.outputs = [*(value for _, value in kept), *terms]
    return {"count": len(totals), "results": len(results), "lines": finish}


def _rows(schema: Mapping[str, Any], assumption: Mapping[str, Any]) -> dict[str, Any]:
    """The dimensions of a row: as C++ of the op's first tensor, as Python of a rank, in words, and the least and the
    most dimensions of a tensor; tests draw tensors of `drawn` dimensions and more."""
    form, (least, most) = assumption["rows"], assumption["ranks"]
    first = next(a for a in schema["arguments"] if a["kind"] == "tensor")["cpp"]
    text = {"least": least, "most": most, "argument": None, "like": None, "drawn": least}
    if "like" in form:
        like = next(a for a in schema["arguments"] if a["name"] == form["like"])
        text |= {"cpp": f"dimensions_from({first}.dim() - {like['cpp']}.dim(), {first})", "python": "(-1,)"}
        return text | {"like": like["name"], "words": f"as many of the last dimensions as {like['name']} has"}
    if "argument" in form:
        argument = next(a for a in schema["arguments"] if a["name"] == form["argument"])
        dim = int(argument["sample"])
        text |= {"cpp": f"{{{argument['cpp']}}}", "python": f"({dim},)", "argument": argument["name"]}
        return text | {"words": f"the dimension {argument['name']}", "drawn": max(least, dim + 1, -dim)}
    if "from" in form:
        dim = form["from"]
        words = "all dimensions" if dim == 0 else f"the dimensions from {dim} on"
        return text | {"cpp": f"dimensions_from({dim}, {first})", "python": f"range({dim}, rank)", "words": words}
    if "but" in form:
        dim = form["but"]
        python = f"(dim for dim in range(rank) if dim != {dim})"
        return text | {"cpp": f"dimensions_but({dim}, {first})", "python": python, "words": f"all dimensions but {dim}"}
    dims = form["dims"]
    listed = ", ".join(map(str, dims))
    words = {(-1,): "the last dimension", (-2, -1): "the last two dimensions"}.get(
        tuple(dims), f"dimension {listed}" if len(dims) == 1 else f"the dimensions {listed}"
    )
    # Tensors of several rows, where a row takes more than one dimension.
    drawn = least if len(dims) == 1 else min(max(least, len(dims) + 1), most or len(dims) + 1)
    python = f"({listed}{',' if len(dims) == 1 else ''})"
    return text | {"cpp": f"{{{listed}}}", "python": python, "words": words, "drawn": drawn}


def _of_rows(argument: Mapping[str, Any], assumption: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor of an op of rows: its elements are read as numbers, those of a mask too."""
    name = argument["name"]
    dtype = assumption["dtypes"][name]
    kind = "row" if assumption["kinds"][name] == "row" else "element"
    shape = "numbers" if kind == "row" else _shape(name, assumption)
    return _value(argument, dtype) | {"kind": kind, "shape": shape}


def _inputs(tensors: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tensor["cpp"] for tensor in tensors if tensor["kind"] == "element" and tensor["used"]]


def _row_inputs(tensors: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The C++ names of what a row has one of, and how the row calls them."""
    chosen = [tensor for tensor in tensors if tensor["kind"] in ("row", "total") and tensor["used"]]
    return [(t["cpp"], "given" if t["kind"] == "total" else _MEMBERS[t["dtype"]]) for t in chosen]


def _shape(name: str, assumption: Mapping[str, Any]) -> str:
    """What a tensor may be: `rows`, a `vector` of the last dimension, `either`, or what may be `broadcast`."""
    if assumption["kinds"][name] == "column":
        return "vector"
    return assumption["vectors"].get(name, "rows")


def _late(graph: Graph, tensors: Sequence[Mapping[str, Any]]) -> int:
    """A bit for each tensor of rows that is read, and only by the last pass, and may be a vector."""
    early = rows.read_by_reductions(graph)
    read = [tensor for tensor in tensors if tensor["kind"] == "element" and tensor["used"]]
    return sum(1 << i for i, t in enumerate(read) if t["shape"] != "rows" and t["cpp"] not in early)


def _summed(inputs: Sequence[Mapping[str, Any]], early: Container[str], reductions: int) -> int:
    """A bit for each gradient that the kernel adds up over the rows, where the tensor is a vector. One that may be
    either is mostly one of rows where the forward reduces it, as a target, and a vector where it does not, as a weight:
    targets are added up as long as registers last. A block that adds up has a multiprocessor alone, which waits at each
    of the `reductions`: of many, it is faster to write a target's gradient for each row.
    """
    may_be_vector = [i for i, tensor in enumerate(inputs) if tensor["shape"] != "rows"]
    is_target = [inputs[i]["shape"] != "vector" and inputs[i]["cpp"] in early for i in may_be_vector]
    weights = [i for i, target in zip(may_be_vector, is_target, strict=True) if not target]
    targets = [i for i, target in zip(may_be_vector, is_target, strict=True) if target]
    added = targets[: max(0, _MOST_SUMS - len(weights))] if reductions <= _MOST_REDUCTIONS else []
    return sum(1 << i for i in [*weights, *added])


def _accesses(graph: Graph, tensors: Sequence[Mapping[str, Any]]) -> int:
    """How many accesses of a row a thread has registers for, of each tensor that it holds."""
    held = sum(t["kind"] == "element" and t["used"] for t in tensors) - _late(graph, tensors).bit_count()
    return 4 if held < 3 else 2


def _row_backward(
    schema: Mapping[str, Any],
    path: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, str],
) -> dict[str, Any] | None:
    if path["backward"] is None:
        return None
    floating = [tensor for tensor in tensors if tensor["dtype"] == "float"]
    outputs = path["backward"]["outputs"]
    inputs = [tensor for tensor, output in zip(floating, outputs, strict=True) if output is not None]
    if not inputs:
        return None
    early = rows.read_by_reductions(Graph(path["forward"], parameters))
    differentiable = [i for i, result in enumerate(results) if result["dtype"] == "float"]
    grads = ["grad"] if len(results) == 1 else [f"grad_{results[i]['name']}" for i in differentiable]
    traced, reads = reading_results(path["backward"], path["forward"], [result["name"] for result in results])
    read_results = [results[i]["name"] for i in reads]
    entry = _with_free_names(parse(_schema_text(schema, tensors, scalars, [*grads, *read_results], inputs)).entry())
    words = {argument["name"]: argument["cpp"] for argument in entry["arguments"]}
    places = {argument["name"]: argument for argument in entry["arguments"]}
    graph = Graph(
        traced,
        {name: words.get(name, cpp) for name, cpp in parameters.items()} | {name: words[name] for name in read_results},
        {i: words[grad] for i, grad in zip(differentiable, grads, strict=True)},
    )
    graph.outputs = [_before_column_sum(output) for output in graph.outputs if output is not None]
    names = [*words.values(), *(result["cpp"] for result in entry["returns"])]
    totals, terms = take_totals(graph, [*names, *parameters.values()])
    read = graph.names()
    gradients = [
        _value(result, "float")
        | {"of": tensor["name"], "needed": words.get(f"{tensor['name']}_needed"), "kind": tensor["kind"]}
        | {"same_as": same}
        for result, tensor, same in zip(
            entry["returns"], inputs, _same_as([graph], [words[grad] for grad in grads]), strict=True
        )
    ]
    given = [
        _value(places[grad], "float") | {"kind": results[i]["kind"], "shape": "rows", "used": words[grad] in read}
        for grad, i in zip([*grads, *read_results], [*differentiable, *reads], strict=True)
    ]
    own = [
        _value(places[tensor["name"]], tensor["dtype"])
        | {"kind": tensor["kind"], "shape": tensor["shape"], "used": words[tensor["name"]] in read}
        for tensor in tensors
    ]
    read_by_kernel = [*given, *own]
    kinds = [(gradient["cpp"], gradient["kind"]) for gradient in gradients]
    row_inputs = [*_row_inputs(read_by_kernel), *((name, "total") for name in totals)]
    lines_of_rows = rows.lines(graph, _inputs(read_by_kernel), kinds, row_inputs, names)
    reductions = rows.reductions(lines_of_rows)
    return {
        "schema": entry,
        "grads": given,
        "tensors": read_by_kernel,
        "scalars": [_scalar(places[scalar["name"]]) for scalar in scalars],
        "gradients": gradients,
        "reads": reads,
        "places": [tensor["place"] for tensor in inputs],
        "operations": len(path["backward"]["nodes"]),
        "reductions": reductions,
        "summed": _summed([tensor for tensor in inputs if tensor["kind"] == "element"], early, reductions),
        "late": _late(graph, read_by_kernel),
        "accesses": _accesses(graph, read_by_kernel),
        "lines": lines_of_rows,
        "totals": _backward_totals(graph, totals, terms, read_by_kernel, names),
    }


def _backward_totals(
    graph: Graph, totals: Sequence[str], terms: list[Value], tensors: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, Any] | None:
    """Sums over all rows that gradients depend on: the function of a row that adds to them, and what it reads."""
    if not totals:
        return None
    graph.outputs = terms
    read = graph.names()
    tensors = [{**tensor, "used": tensor["cpp"] in read} for tensor in tensors]
    kinds = [(name, "term") for name in totals]
    body = rows.lines(graph, _inputs(tensors), kinds, _row_inputs(tensors), names)
    facts = {"late": _late(graph, tensors), "accesses": _accesses(graph, tensors), "reductions": rows.reductions(body)}
    return {"count": len(totals), "tensors": tensors, "lines": body, **facts}


def _before_column_sum(output: Value) -> Value:
    """The terms of a sum over the rows: the gradient of a vector, which is summed in Python."""
    if isinstance(output, Node) and output.op == "column_sum":
        return output.arguments[0]
    if output.kind == "column":
        raise KernelgenError("a gradient that is computed of a sum over the rows")
    return output
