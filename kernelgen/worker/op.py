"""An op as the `lab.py` of its folder describes it, checked, with defaults filled in."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelgen.errors import LabError, NoGpuError
from kernelgen.worker.mutation import on_copies

Sizes = Mapping[str, int]
# The public names of a lab.py; and what refuses one, by whether it is as it should be and a sentence that says that.
Names = Mapping[str, Any]
Check = Callable[[bool, str], None]

# A device of fuzz: the CUDA kernels, on CPU tensors. The worker's environment chooses the library that holds them.
EMULATED = "emulated"
# The keys of a case beside its sizes; see cases.py.
RESERVED = ("dtype", "layout", "values", "alias", "requires_grad", "call")


@dataclass(frozen=True)
class Op:
    """One op, as its lab.py describes it.

    Attributes:
        function: the public function; `reference`: the same in plain PyTorch, which leaves its arguments unchanged.
        mutates: the positions of the arguments that the function writes to. What it wrote counts as results, before
            those that it returns: `reference` returns them so.
        dtypes: those it is fuzzed in, `cpu_dtypes` on the CPU; `bench_dtypes`: those it is measured in by default.
        domain: for fuzzing, the smallest and the largest value of each size that `inputs` takes.
        cases, cpu_cases: sizes by a name, for measuring on a GPU and on the CPU.
        inputs: `inputs(make, **sizes)` gives the positional arguments; see `kernelgen.worker.inputs.Make`.
        bytes_moved: `bytes_moved(dtype, **sizes)`, the fewest bytes that have to cross the memory bus.
        flops: `flops(**sizes)`, the floating-point operations; `backward_…`: these two for the gradient.
        peers: other implementations, by name. Each has the op's signature.
        repeatable: True where the same input gives the same bits, else how far two results may differ, relative to
            the largest element; or `repeatable(**sizes)`, which says either.
        gradient: whether the op has one.
        tunables: the values that `kernelgen tune` may try, by kind of device (cpu, cuda; also "cuda 9.0" and "cuda
            backward" where these have kernels of their own) and name; see tune/space.py.
        estimates: by the same keys, `estimate(values, dtype, **sizes)`, what the kernel takes of a GPU; see
            tune/gates.py.
        shape_classes: by the same keys, `shape_class(**sizes)`, the name of the class of shapes that is tuned for these
            sizes; None for sizes that the tunables of this key do not serve.
        untuned: by the same keys, `untuned(dtype, **sizes)`, why the tunables of this key do not matter in a case, such
            as "the kernel of short rows has no tunables"; None where they do.
        huge: sizes that make more than 2³¹ elements, where indices of 32 bits do not reach; run on GPUs that hold them.
        defaults: of sizes that a case may leave out, as `inputs` gives them.
        edges: by size, the values at which the op's kernels branch; fuzzing covers pairs of them.
        contiguous: whether outputs are contiguous wherever all inputs and the reference's outputs are.
        allowed_error: `allowed_error(*args)`, what the hardware loses beside the roundings of the op's dtype, by
            result: "output 0" or "gradient 0", counted over the tensors among the arguments; it may take `cotangents`
            and the op's `dtype` by these names. See `errors_allowed`.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    dtypes: tuple[torch.dtype, ...]
    cpu_dtypes: tuple[torch.dtype, ...]
    bench_dtypes: tuple[torch.dtype, ...]
    domain: dict[str, tuple[int, int]]
    cases: dict[str, dict[str, int]]
    cpu_cases: dict[str, dict[str, int]]
    inputs: Callable[..., tuple[Any, ...]]
    bytes_moved: Callable[..., int] | None = None
    flops: Callable[..., int] | None = None
    backward_bytes_moved: Callable[..., int] | None = None
    backward_flops: Callable[..., int] | None = None
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    tunables: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, Callable[..., Any]] = field(default_factory=dict)
    shape_classes: dict[str, Callable[..., str | None]] = field(default_factory=dict)
    untuned: dict[str, Callable[..., str | None]] = field(default_factory=dict)
    repeatable: bool | float | Callable[..., bool | float] = True
    gradient: bool = True
    huge: dict[str, int] | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    edges: dict[str, tuple[int, ...]] = field(default_factory=dict)
    contiguous: bool = True
    allowed_error: Callable[..., dict[str, Any]] | None = None
    mutates: tuple[int, ...] = ()

    def dtypes_on(self, device: str) -> dict[str, torch.dtype]:
        """The dtypes it is fuzzed in on a device, by name."""
        dtypes = self.cpu_dtypes if device == "cpu" else self.dtypes
        return {dtype_name(dtype): dtype for dtype in dtypes}

    def repeatable_at(self, sizes: Sizes) -> bool | float:
        """True, or a tolerance, for these sizes.

        Raises:
            LabError: its lab.py says something else.
        """
        tolerance = call_with(self.repeatable, sizes) if callable(self.repeatable) else self.repeatable
        if tolerance is not True and not isinstance(tolerance, float):
            raise LabError(f"{self.name}/lab.py: REPEATABLE should give True or a tolerance, not {tolerance!r}.")
        return tolerance

    def errors_allowed(
        self, args: Sequence[Any], cotangents: Sequence[torch.Tensor], dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """By result, how far the hardware may be off beside the roundings of the op's dtype; all tensors are in
        float64.

        In lab.py a gradient has the number of its input among all tensors of the arguments; here among those that take
        one, as in `Evaluation.named`.

        Raises:
            LabError: its lab.py gives something else than errors by result.
        """
        if self.allowed_error is None:
            return {}
        with torch.no_grad():
            taken = inspect.signature(self.allowed_error).parameters
            more = {"cotangents": list(cotangents), "dtype": dtype}
            given = self.allowed_error(*args, **{name: value for name, value in more.items() if name in taken})
        inputs = list({id(arg): arg for arg in tree_leaves(list(args)) if isinstance(arg, torch.Tensor)}.values())
        numbers = [i for i, tensor in enumerate(inputs) if tensor.requires_grad]
        names = {f"gradient {i}": f"gradient {numbers.index(i)}" for i in numbers}
        errors = {}
        for name, error in given.items() if isinstance(given, dict) else [(given, None)]:
            if not re.fullmatch(r"(output|gradient) \d+", str(name)) or not isinstance(error, (float, torch.Tensor)):
                what = "ALLOWED_ERROR should give a number or a tensor for 'output 0', 'gradient 0' and so on"
                raise LabError(f"{self.name}/lab.py: {what}, not {name!r}.")
            if name.startswith("output") or name in names:
                errors[names.get(name, name)] = torch.as_tensor(error, dtype=torch.float64)
        return errors

    def refuse_case(self, sizes: Sizes) -> str | None:
        """A sentence if these are not the sizes that `inputs` takes."""
        if not set(self.domain) - set(self.defaults) <= set(sizes) <= set(self.domain):
            return f"{self.name} takes the sizes {', '.join(self.domain)}, not {', '.join(sizes) or 'none'}."
        return None


def call_with(function: Callable[..., Any], sizes: Sizes) -> Any:
    """Calls a function of lab.py with those of the sizes that it takes: it need not name all that have defaults."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function(**sizes)
    return function(**{name: size for name, size in sizes.items() if name in parameters})


def load(package: str, name: str) -> Op:
    """The op of a project whose `src` is importable.

    Raises:
        LabError: its lab.py is absent, does not import, or leaves something out; the message says what.
    """
    path = f"{package}.ops.{name}.lab"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):
            raise LabError(f"{name} has no lab.py in its folder; every recipe's shows what to write there.") from None
        raise LabError(f"{name}/lab.py needs {error.name}; install it with: pip install {error.name}") from error
    except Exception as error:
        raise LabError(f"{name}/lab.py does not import: {type(error).__name__}: {error}") from error
    return read(name, module)


def read(name: str, module: ModuleType) -> Op:
    """The op that a module describes.

    Raises:
        LabError: a name is missing, or holds something else than it should.
    """
    names = {key: getattr(module, key) for key in dir(module) if not key.startswith("_")}

    def check(holds: bool, what: str) -> None:
        if not holds:
            raise LabError(f"{name}/lab.py: {what}.")

    for key in ("OP", "REFERENCE", "DTYPES", "DOMAIN", "inputs"):
        check(key in names, f"{key} is missing")
    for key in ("OP", "REFERENCE", "inputs"):
        check(callable(names[key]), f"{key} should be a function")
    rules = _read_rules(names, check)
    return Op(
        name=name,
        function=names["OP"],
        reference=on_copies(names["REFERENCE"], rules["mutates"]),
        inputs=names["inputs"],
        bytes_moved=names.get("bytes_moved"),
        flops=names.get("flops"),
        backward_bytes_moved=names.get("backward_bytes_moved"),
        backward_flops=names.get("backward_flops"),
        peers=dict(names.get("PEERS", {})),
        tunables=dict(names.get("TUNABLES", {})),
        estimates=dict(names.get("ESTIMATES", {})),
        shape_classes=dict(names.get("SHAPE_CLASSES", {})),
        untuned=dict(names.get("UNTUNED", {})),
        contiguous=bool(names.get("CONTIGUOUS", True)),
        **_read_dtypes(names, check),
        **_read_sizes(names, check),
        **rules,
    )


def _read_dtypes(names: Names, check: Check) -> dict[str, tuple[torch.dtype, ...]]:
    dtypes = tuple(names["DTYPES"])
    cpu_dtypes = tuple(names.get("CPU_DTYPES", dtypes))
    for key, some in (("DTYPES", dtypes), ("CPU_DTYPES", cpu_dtypes)):
        check(bool(some) and all(isinstance(d, torch.dtype) for d in some), f"{key} should hold torch dtypes")
    bench = tuple(names.get("BENCH_DTYPES", dtypes[:1]))
    check(set(bench) <= set(dtypes) & set(cpu_dtypes), "BENCH_DTYPES should be some of DTYPES, and of CPU_DTYPES")
    return {"dtypes": dtypes, "cpu_dtypes": cpu_dtypes, "bench_dtypes": bench}


def _read_sizes(names: Names, check: Check) -> dict[str, Any]:
    """The domain, and the tables whose sizes are the domain's."""
    domain = dict(names["DOMAIN"])
    check(bool(domain) and all(_is_range(r) for r in domain.values()), "DOMAIN should hold (smallest, largest) by size")
    check(not set(domain) & set(RESERVED), f"no size can be named {', '.join(RESERVED)}")
    parameters = inspect.signature(names["inputs"]).parameters
    taken = list(parameters)[1:]
    defaults = {key: parameters[key].default for key in taken if parameters[key].default is not inspect.Parameter.empty}
    check(set(taken) == set(domain), f"DOMAIN names {', '.join(domain)}, and inputs takes {', '.join(taken) or 'none'}")
    needed = set(domain) - set(defaults)
    cases = {key: dict(names.get(key, {})) for key in ("CASES", "CPU_CASES")}
    for key, table in cases.items():
        for case, sizes in table.items():
            check(needed <= set(sizes) <= set(domain), f"{key}[{case!r}] should give {', '.join(domain)}")
    check(needed <= set(names.get("HUGE") or domain) <= set(domain), f"HUGE should give {', '.join(domain)}")
    edges = {key: tuple(values) for key, values in dict(names.get("EDGES", {})).items()}
    check(set(edges) <= set(domain), f"EDGES should name sizes of DOMAIN: {', '.join(domain)}")
    return {
        "domain": {key: (low, high) for key, (low, high) in domain.items()},
        "defaults": defaults,
        "cases": cases["CASES"],
        "cpu_cases": cases["CPU_CASES"] or cases["CASES"],
        "huge": names.get("HUGE"),
        "edges": edges,
    }


def _read_rules(names: Names, check: Check) -> dict[str, Any]:
    """What the judge holds the op to, beside its reference."""
    repeatable = names.get("REPEATABLE", True)
    check(
        repeatable is True or isinstance(repeatable, float) or callable(repeatable),
        "REPEATABLE should be True, a tolerance or a function of the sizes",
    )
    allowed_error = names.get("ALLOWED_ERROR")
    check(allowed_error is None or callable(allowed_error), "ALLOWED_ERROR should be a function of the arguments")
    mutates, gradient = tuple(names.get("MUTATES", ())), bool(names.get("GRADIENT", True))
    check(all(type(place) is int and place >= 0 for place in mutates), "MUTATES should hold positions of arguments")
    check(not (mutates and gradient), "GRADIENT should be False, since the op writes to its arguments")
    return {"repeatable": repeatable, "allowed_error": allowed_error, "mutates": mutates, "gradient": gradient}


def tensor_device(device: str) -> str:
    """Where the tensors are: those that the emulated GPU works on are the CPU's."""
    return "cpu" if device == EMULATED else device


def known_device(request: Mapping[str, Any]) -> str | None:
    """The device that a request asks for, or the CPU where there is no GPU; None where the op's libraries decide.

    Raises:
        NoGpuError: it asks for a GPU where there is none.
    """
    device = request.get("device")
    if device == EMULATED:
        return device
    if torch.device(device or "cpu").type == "cuda" and not torch.cuda.is_available():
        raise NoGpuError(device)
    return device or (None if torch.cuda.is_available() else "cpu")


def chosen_device(request: Mapping[str, Any]) -> str:
    """As `known_device`; where the libraries decide, cuda if there is one for it, else the CPU."""
    if device := known_device(request):
        return device
    library = importlib.import_module(f"{request['package']}._library")
    return "cpu" if library.missing["CUDA"] else "cuda"


def require_kernel(package: str, name: str, device: str) -> None:
    """Makes sure that a compiled kernel answers on this device, and not the reference in its place.

    Raises:
        LabError: no library is built or loads, there is no GPU, or the kernel is not written yet.
    """
    backend = torch.device(tensor_device(device)).type.upper()
    library = importlib.import_module(f"{package}._library")
    if problem := library.missing[backend]:
        raise LabError(f"{name} cannot run on {device}: {problem}, or with `kernelgen build`.")
    schemas = getattr(importlib.import_module(f"{package}.ops.{name}"), "SCHEMAS", {name: ""})
    operator = name if name in schemas else next(iter(schemas))  # An op of an overload has another name.
    if problem := getattr(library, "stale", {}).get((operator, backend)):  # Older projects' libraries hold no schemas.
        raise LabError(f"{problem}, or with `kernelgen build`.")
    # Where C++ registered nothing, `_library.define` registered a Python function.
    for line in torch._C._dispatch_dump(f"{package}::{operator}").splitlines():
        if line.startswith(f"{backend}: registered at") and "_library.py:" not in line:
            return
    kernel = "CUDA" if device == EMULATED else backend
    raise LabError(f"{name} cannot run on {device}: its {kernel} kernel is not written yet.")


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(bound, int) for bound in value)
        and 0 <= value[0] <= value[1]
    )
