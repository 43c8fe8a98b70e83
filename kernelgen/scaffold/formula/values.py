"""The tensors and scalars of an op as recipes need them, with names that no stamped source uses itself."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.scaffold.formula import parts
from kernelgen.scaffold.formula.expressions import CODES
from kernelgen.scaffold.formula.graph import COORDINATES, FormulaGraph, Name
from kernelgen.scaffold.formula.lines import free_name
from kernelgen.scaffold.formula.neighbours import CONDITIONS
from kernelgen.scaffold.schema.identifiers import identifiers

# What the stamped sources call things: no argument can have such a name in C++.
_SOURCES = """
    Reading rows elements place first left k i index part grid kernel blocks unroll vectors values stream context shape
    gradients type error row column columns tensors buffers count grain partial_rows launch forward backward math terms
    totals room of_totals compute compute_totals finish backward_totals has_next has_numbers part kLength address read
    write widen checks dtypes tuned selected Tuned Number Numbers Kernel Bounds Operand Elements Gradient Place Rows
    Vector N T step last narrow gradient has_rest rank bytes partial threads spread store kept term is_small
    sums_by_kernel with_totals all_flat any_summed_by_kernel as_contiguous allocate_sums add_sums add_all_sums
    add_partial_sums element_blocks empty_contiguous empty_if for_each_piece for_each_row grain_of launch_row_kernel
    launch_rows launch_sums launch_totals of_pass row_number_t row_of rows_of_partial_sums split_backward split_forward
    split_rows store_evict_last store_totals store_totals_of_numbers with_exponent write_turns accumulate_t
    dimensions_but dimensions_from check_arguments check_backward_arguments check_dtype check_first check_floating
    check_last_dimension check_like check_mask check_spread check_square Accesses BackwardTensors Broadcast
    BroadcastElements BroadcastGradients Buffers CPU CPU_INDEPENDENT CUDA ColumnTotals CudaContext Cut CutArgument
    Defaults FormulaTotals ForwardTensors INSTANCE_T Index Inputs Layout REGISTER_KERNEL Row ResultPart RowBounds
    RowIndex RowTensors RowsReader STD_CUDA_CHECK ScalarType Sizes SmallElements SumGrid TotalsTensors Turns TurnsReader
    cudaError_t cudaGetLastError cudaSuccess dim3 kBackward kBackwardReductions kBackwardTotalsReductions kForward
    kForwardReductions kHeld kNumbers kOperandVector kResident kRowsOfOneBlock kSideBySide kStep kSumResident kSummed
    kThreads kTotalThreads kUnroll Border BoundedOperand Scalars TiledElements all_aligned all_in_lines blocks_of
    finish_read is_aligned is_in_lines neighbour place_of scalars start_read write_at
"""
TAKEN = frozenset(_SOURCES.split()) | CONDITIONS.keys()
DTYPES = ("float32", "float16", "bfloat16", "float64")
# Those of results that have one of their own, whatever the arguments have.
FIXED = ("float32", "float16", "bfloat16")
FLOATING = ("float", *FIXED)
# Those of which many numbers are alike: what PyTorch chooses among such is not documented everywhere.
_OF_16_BITS = ("float16", "bfloat16")


def with_free_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema with other C++ names where the stamped sources have such names already."""
    values = [*schema["arguments"], *schema["returns"]]
    taken = TAKEN | {f"{value['cpp']}_operand" for value in values} | {f"{value['cpp']}_number" for value in values}
    names = iter(identifiers([value["cpp"] for value in values], taken))
    renamed = {key: [{**value, "cpp": next(names)} for value in schema[key]] for key in ("arguments", "returns")}
    return {**schema, **renamed}


def tested(assumption: Mapping[str, Any], dtypes: Sequence[str]) -> list[str]:
    """The dtypes that tests and the lab are of: float64 alone where float32 has no results of numbers as they draw."""
    if assumption["wide_alone"]:
        return ["float64"]
    return [dtype for dtype in dtypes if not (assumption["ties"] and dtype in _OF_16_BITS)]


def drawn_between(name: str, assumption: Mapping[str, Any]) -> bool | list[float]:
    """The interval that tests draw a tensor's numbers from, because the function refuses others; true for one between 0
    and 1, where others have no result; false for any numbers."""
    return assumption.get("domains", {}).get(name) or name in assumption["between"]


def named_parts(
    schema: Mapping[str, Any], traced: Mapping[str, Any], tensors: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """The C++ names of the parts of these tensors, beside those of a schema."""
    if not any("cut" in tensor for tensor in tensors):
        return {}
    values = [value["cpp"] for value in (*schema["arguments"], *schema["returns"])]
    taken = TAKEN | {
        value + suffix for value in values for suffix in ("", "_operand", "_number", "_row", "_data", "_turns")
    }
    return parts.part_names(tensors, traced.get("part_names", []), taken)


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Data of which no part is the same object as another: YAML would write anchors, which two ops would share."""
    return json.loads(json.dumps(value))


def value_of(of: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """A tensor: its names, the type of its elements (T or bool), and of one in a formula. `saved` numbers are of the
    type that sums are computed in."""
    types = {"float": ("T", "Number"), "bool": ("bool", "bool"), "int": ("int64_t", "int64_t")}
    types |= {code: (type, type) for code, type in CODES.items()}
    types |= {fixed: (fixed, "Number") for fixed in FIXED} | {"saved": ("accumulate_t<T>", "Number")}
    element, number = types[dtype]
    names = {key: of[key] for key in ("name", "python", "cpp")}
    return names | {"dtype": dtype, "element": element, "number": number}


def scalar_of(argument: Mapping[str, Any], paths: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A scalar argument; of `paths`, traced graphs, some may compute integers of it.

    Raises:
        KernelgenError: they compute numbers of it as well.
    """
    keys = ("name", "python", "cpp", "type", "cpp_type")
    number = "bool" if argument["type"] == "bool" else "Number"
    graphs = [graph for path in paths for graph in (path["forward"], path["backward"]) if graph]
    arguments = [a for graph in graphs for node in graph["nodes"] for a in node["arguments"]]
    own = [a for a in arguments if a.get("scalar") == argument["name"]]
    if integers := {a["dtype"] for a in own} & set(CODES):
        if len(own) > sum(a["dtype"] in integers for a in own):
            raise KernelgenError(f"{argument['name']}, of which integers are computed, and numbers too")
        number = CODES[min(integers)]
    return {key: argument[key] for key in keys} | {"number": number}


def names_read(graphs: Iterable[FormulaGraph]) -> set[str]:
    """The C++ names of the arguments that some of the graphs read."""
    return set().union(*(graph.names() for graph in graphs))


def coordinates(read: Container[str]) -> list[str]:
    """The coordinates of an element that a formula reads."""
    return [name for name in COORDINATES.values() if name in read]


def dtypes_of(traced: Mapping[str, Any]) -> list[str]:
    """The dtypes of floating-point tensors that a traced function takes."""
    return [dtype for dtype in DTYPES if traced.get(f"takes_{dtype}", True)]


def of_other_dtype(same_as: Sequence[int | None], results: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """`same_as` without gradients of results of a dtype of their own, which are cast."""
    floating = [result for result in results if result["dtype"] in FLOATING]
    return [None if i is None or floating[i]["dtype"] != "float" else i for i in same_as]


def unchanged(graphs: Sequence[FormulaGraph], grads: Sequence[str]) -> list[int | None]:
    """For each gradient, the place among `grads` of the one that it is, unchanged, on every path; None where there is
    none, and for the first where all are such: the operator of the gradient computes something."""
    by_path = [[value.text if isinstance(value, Name) else None for value in graph.outputs] for graph in graphs]
    same = [names[0] if len(set(names)) == 1 else None for names in zip(*by_path, strict=True)]
    places = [grads.index(name) if name in grads else None for name in same]
    return places if None in places else [None, *places[1:]]


def schema_text(
    schema: Mapping[str, Any],
    tensors: Sequence[Mapping[str, Any]],
    scalars: Sequence[Mapping[str, Any]],
    grads: Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
) -> str:
    """Gradients of the results, the op's arguments, and which gradients are needed where there are several."""
    words = [f"Tensor {name}" for name in (*grads, *(tensor["name"] for tensor in tensors))]
    words += [f"{scalar['type']} {scalar['name']}" for scalar in scalars]
    taken = [*grads, *(value["name"] for value in (*tensors, *scalars))]
    results = [f"Tensor {free_name('grad_' + tensor['name'], taken)}" for tensor in inputs]
    if len(inputs) == 1:
        return f"({', '.join(words)}) -> {results[0]}"
    words += [f"bool {free_name(tensor['name'] + '_needed', taken)}" for tensor in inputs]
    return f"({', '.join(words)}) -> ({', '.join(results)})"


def needed_flags(entry: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The C++ names of the bools that say which gradients an operator of that entry computes; None of a single one."""
    return [a["cpp"] for a in entry["arguments"][-len(inputs) :]] if len(inputs) > 1 else [None]


def names_of_grads(
    results: Sequence[Mapping[str, Any]], differentiable: Sequence[int], arguments: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What the gradients of these results are called that come in, beside the arguments of the op."""
    taken = [argument["name"] for argument in arguments]
    if len(results) == 1 and "grad" not in taken:
        return ["grad"]
    return [free_name(f"grad_{results[i]['name']}", taken) for i in differentiable]
