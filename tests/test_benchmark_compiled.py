"""benchmarks/compiled.py: the kernels and the compile time of each object of an op."""

import importlib.util
import json
from pathlib import Path

FILE = Path(__file__).parents[1] / "benchmarks" / "compiled.py"
OBJECTS = {
    "build/release/op/kernel.cu.float16.90a.o": "src/demo/ops/op/kernel.cu (float16)",
    "build/release/op/sm90/forward.cu.90a.o": "src/demo/ops/op/sm90/forward.cu",
    "build/release/op/cpu.cpp.o": "src/demo/ops/op/cpu.cpp",
    "build/release/other/kernel.cu.90a.o": "src/demo/ops/other/kernel.cu",
}


def test_instantiations_are_among_the_kernels_of_an_op(tmp_path):
    spec = importlib.util.spec_from_file_location("compiled", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path / "build" / "release"
    folder.mkdir(parents=True)
    (folder / "environment.json").write_text(json.dumps({"objects": OBJECTS}))
    log = ["# ninja log v7", *(f"0\t2000\t1\t{path}\tab" for path in OBJECTS)]
    (folder / ".ninja_log").write_text("\n".join(log))
    _, seconds = module.compiled(tmp_path, ("op",))
    assert seconds == {"src/demo/ops/op/kernel.cu (float16)": 2.0, "src/demo/ops/op/sm90/forward.cu": 2.0}
