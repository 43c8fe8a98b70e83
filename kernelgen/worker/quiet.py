"""Calls a user's function without what it, or torch, has to say of the calls."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """What the function warns of concerns its author when it runs, not now; nor does torch's log of what fails here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
