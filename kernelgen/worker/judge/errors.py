"""What an op's process does instead of giving results."""

NOT_ASKED_FOR = "TypeError: the op's process gave an answer that the judge did not ask for"


class CallError(Exception):
    """The op raised, or returned what is no result; `str()` says it in a line."""


class RaisedError(CallError):
    """The op raised: `kind` is the exception's type, `message` all that it said."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message.partition(chr(10))[0][:1000]}")
        self.kind, self.message = kind, message
