"""What is to be added, and whom to tell what was assumed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kernelgen.errors import UsageError
from kernelgen.lab.new_op import SHAPED
from kernelgen.scaffold.project import Project
from kernelgen.scaffold.schema.model import Schema


@dataclass(frozen=True)
class NewOp:
    """An op to be added to the project `home`.

    Args:
        name: its name.
        shapes: the text of --shapes; None where it was not given.
        backward: "own", "composed" or "none"; None where --backward was not given.
        note: is told each assumption, in one line.
        progress: the context of a step that takes seconds, of which it is told what it does.
    """

    home: Project
    name: str
    shapes: str | None
    backward: str | None
    note: Callable[[str], object]
    progress: Callable[[str], AbstractContextManager[None]]

    def check_options(self, schema: Schema) -> None:
        """Raises UsageError where --shapes or --backward means nothing for an operator of this schema."""
        if self.shapes is not None and not schema.takes_tensors:
            raise UsageError(f"{schema.text} takes no tensor, so leave out --shapes.")
        if self.backward in ("own", "composed") and not schema.takes_tensors:
            raise UsageError(f"{schema.text} takes no tensor to differentiate by, so leave out --backward.")

    def template_knows_shapes(self) -> bool:
        """Whether the project's template has the recipe `shaped`.

        Raises:
            UsageError: it has not, and --shapes or --backward was given.
        """
        if SHAPED in self.home.recipes():
            return True
        if self.shapes is not None or self.backward is not None:
            raise UsageError(
                "The project's template knows no --shapes and no --backward; `kernelgen update` brings them."
            )
        return False
