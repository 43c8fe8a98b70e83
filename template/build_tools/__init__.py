"""How this project builds. What it pins is in setup.py; everything here is the same in every project.

    src/PACKAGE/_cpu.so     every op's cpu*.cpp
    src/PACKAGE/_cuda.so    every op's other sources, where there is a CUDA toolkit

A build has two steps. `configure` looks at the tools, the settings and the ops, and writes build/VARIANT/build.ninja.
Ninja then compiles what changed. Neither library needs Python's or torch's C++ ABI: the glue uses the stable ABI only,
and kernels include no torch header.

It has two entry points, which share the objects in build/, and both call build.py:

    commands.py         setuptools: `pip install`, `pip wheel`, `python setup.py build_ext --inplace`
    __main__.py         `python -m build_tools`, which `kernelgen` and the package's jit.py run

The modules, in the order in which a build uses them:

    project.py          the pins: a Project, which setup.py makes
    variant.py          release, debug, asan, ubsan: their flags
    ops.py              the ops that there are
    request.py          which ops, backends and variant to build, into which folder
    lock.py             one build at a time in a folder
    snapshot.py         has anything changed that configuring looks at? If not, straight to Ninja
    configure.py        writes the build definition:
      toolkit.py          torch, Ninja, the C++ compiler, a compiler cache, the CUDA toolkit
      architectures.py    what to compile kernels for
      sources.py          an op's sources, and which architectures each is for
      instantiations.py   the types and sizes that a source is instantiated for
      objects.py          the objects that follow from all that, and their flags
      schema_header.py    the schemas, as the C++ glue includes them
      tuning_header.py    the values of tuned.json, as the sources include them
      ninja.py            the text of build.ninja
      compile_commands.py the same, for clangd
    configuration.py    the record of a build definition
    diagnostics.py      the compilers' errors, by file and line
    stale.py            has anything changed that a build would compile?

Besides these: environment.py (the variables that are read), machine.py (compiler processes at once, the CPU's name),
messages.py (notes and refusals), files.py (atomic writes), perturb.py (nvcc, with random waits in the kernels), jit.py
(one op, compiled into a cache for a running process), emulated.py (what kernelgen compiles for an emulated GPU),
facts.py (what a build would use, for `kernelgen doctor`).

Every path is relative to the project, and the project is the working folder. It needs the standard library alone, is in
source distributions and in no wheel.

Environment variables:
    USE_CUDA=0|1          leave the CUDA library out | fail if it cannot be built (default: build it if nvcc is found)
    TORCH_CUDA_ARCH_LIST  architectures instead of the pinned ones, such as "8.0;9.0a", "Hopper" or "native"
    CUDA_HOME             the CUDA toolkit to use
    CXX                   the C++ compiler (default: g++); CXXFLAGS, LDFLAGS, NVCC_APPEND_FLAGS: further flags
    DEBUG=1               build without optimisation and with debug information, under build/debug
    SANITIZE=address      build for a sanitizer, under build/asan; `undefined` under build/ubsan
    PERTURB=SEED          build the CUDA library with random waits around synchronisation, under build/perturbed
    MAX_JOBS              compiler processes at once (default: by cores and memory)
    USE_CCACHE=0          leave ccache or sccache aside, which are used where they are on PATH
"""
