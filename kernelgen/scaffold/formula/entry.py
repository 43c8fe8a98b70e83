"""What `traced` holds of an op's entry, for recipes to write kernels from: docs/ops-entry.md lists the keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelgen.scaffold.formula import signature
from kernelgen.scaffold.formula.pointwise import pointwise
from kernelgen.scaffold.formula.row_wise import row_wise
from kernelgen.scaffold.formula.values import with_free_names
from kernelgen.scaffold.formula.views import views_of


def kernels(schema: Mapping[str, Any], traced: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of an op of this schema (its entry) once its function is traced: `recipe`, `schema`, `traced`.

    Raises:
        KernelgenError: no recipe writes kernels of such a function; the message is a phrase that names what is in the
            way.
    """
    recipe = traced["assumption"]["recipe"]
    schema = _with_samples(schema, traced["assumption"].get("samples", {}))
    views = views_of(schema, traced)
    of_sizes = [view.argument for view in views]
    taken = [name for name in traced["arguments"] if name not in of_sizes]
    own_signature = signature.of_function(schema, taken, views)
    schema = with_free_names(signature.of_operator(schema, taken) if own_signature else schema)
    if dim := traced["assumption"].get("rows", {}).get("argument"):
        of_dim = [a | {"sample": a["default"] or "-1"} if a["name"] == dim else a for a in schema["arguments"]]
        schema = {**schema, "arguments": of_dim}
    return {
        "recipe": recipe,
        "schema": schema,
        "traced": {"pointwise": pointwise, "row_wise": row_wise}[recipe](schema, traced)
        | ({"signature": own_signature} if own_signature else {})
        | {key: value for view in views for key, value in view.of_traced().items()},
    }


def _with_samples(schema: Mapping[str, Any], samples: Mapping[str, str]) -> Mapping[str, Any]:
    """The same schema with these numbers for what tests and the lab pass."""
    arguments = [a | {"sample": samples.get(a["name"], a["sample"])} for a in schema["arguments"]]
    return {**schema, "arguments": arguments}
