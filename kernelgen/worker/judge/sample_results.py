"""What the calls of a sample returned: read from the memory of their process, as it was when the clock stopped."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kernelgen.errors import LabError
from kernelgen.protocol import OP
from kernelgen.worker.evaluation import own
from kernelgen.worker.judge.errors import CallError
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.judge.reading import CpuReader, reader_of
from kernelgen.worker.judge.results import Layout, checked_layouts

# Samples that are taken until the results of one lie in memory that was open when the clock stopped.
READING_TRIES = 4
READ_LATE = (
    "its results were read after its process went on: they lie in other allocations with every call, or in such as "
    "CUDA does not share"
)


@dataclass(frozen=True)
class TimedSample:
    """A sample: whose it is, its sets, the kinds of their values if they are special, whether the calls were joined in
    a CUDA graph, its seconds a call, and the addresses of its results."""

    name: str
    indices: list[int]
    kinds: list[str]
    joined: bool
    seconds: float
    addresses: list[int]


class SampleResults:
    """The results of a `JudgedCase`'s samples.

    Args:
        timed: has `op`, `device`, `functions`, `sets` and `run_again`.
    """

    def __init__(self, timed: Any) -> None:
        self._timed = timed
        self.readers: dict[OpProcess, CpuReader] = {}
        self._layouts: dict[str, list[Layout]] = {}

    def join(self, process: OpProcess) -> None:
        """Lets results of another process be read."""
        self.readers[process] = reader_of(process, self._timed.device)

    def open(self, name: str) -> None:
        """Where the last results of a function lie, later ones will, too: opened now, that can be read as it was when
        the clock stopped."""
        self._reader(name).open()

    def close(self) -> None:
        """Lets go of the memory of all processes."""
        for reader in self.readers.values():
            reader.close()

    def forget(self) -> None:
        """Lets functions return other layouts from now on."""
        self.close()
        self._layouts = {}

    def learn_layout(self, name: str) -> None:
        """The results of the first call say how those of later calls have to lie in memory.

        Raises:
            LabError: the op returns nothing that could be looked at.
        """
        if name in self._layouts:
            return
        layout = checked_layouts(self._timed.functions[name].ask("layouts"))[0]
        op = self._timed.op
        if name == OP and not layout and not op.mutates:
            raise LabError(
                f"{op.name} returns no tensor, so nothing shows that it computed what is timed; "
                f"`kernelgen fuzz {op.name}` compares what it returns."
            )
        self._layouts[name] = layout

    def where(self, sample: TimedSample, position: int) -> list[tuple[int, Layout]]:
        """The address and the layout of each result of one of a sample's calls."""
        layout = self._layouts[sample.name]
        addresses = sample.addresses[position * len(layout) :][: len(layout)]
        return list(zip(addresses, layout, strict=True))

    def read(self, sample: TimedSample) -> tuple[TimedSample, list[list[Tensor]], str | None]:
        """Copies of a sample's results, by call, as they were when the clock stopped; and a doubt where nobody can say
        that. On a GPU it may take further samples, and returns the last.

        Raises:
            CallError: they are not plain tensors in memory, or not as many or as large as those of earlier calls.
        """
        reader = self._reader(sample.name)
        for _ in range(READING_TRIES):
            copies = self._copies(sample)
            if copies and reader.is_current():
                return sample, copies, None
            reader.open()
            sample = self._timed.run_again(sample)
        return sample, self.read_now(sample), READ_LATE

    def read_now(self, sample: TimedSample) -> list[list[Tensor]]:
        """Copies of a sample's results as they are now, whatever has run since.

        Raises:
            CallError: as `read`.
        """
        self.open(sample.name)
        copies = self._copies(sample)
        if copies is None:
            raise CallError("its results lie in memory that cannot be read")
        return copies

    def _copies(self, sample: TimedSample) -> list[list[Tensor]] | None:
        """Copies of the arguments that each call writes to, which lie in the arena, and of what it returned. None if
        that lies where the judge cannot read yet."""
        process, layout = self._timed.functions[sample.name], self._layouts[sample.name]
        if len(sample.addresses) != len(layout) * len(sample.indices):
            raise CallError(f"it returned {len(sample.addresses)} tensors in {len(sample.indices)} calls")
        # Read first: what the process says of its results, it says after the clock stopped.
        pairs = zip(sample.addresses, layout * len(sample.indices), strict=True)
        written = [[own(tensor) for tensor in self._timed.sets[index].written()] for index in sample.indices]
        copies = self._reader(sample.name).read([(address, *facts) for address, facts in pairs])
        said = checked_layouts(process.ask("layouts"))
        if any(of_call != layout for of_call in said):
            raise CallError("the shapes, strides or dtypes of its results differ from call to call")
        if copies is None:
            return None
        count = len(layout)
        return [of_call + copies[i * count : (i + 1) * count] for i, of_call in enumerate(written)]

    def _reader(self, name: str) -> CpuReader:
        return self.readers[self._timed.functions[name]]
