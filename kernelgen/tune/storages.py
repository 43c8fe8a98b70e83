"""Where trials are kept: Optuna's storages, which outlive the workers and which several workers may share.

Optuna's own locks of a journal are files, which stay if their holder is killed and hold all others up for 30 s; and
Optuna 5 cannot read a journal in which something follows a line that was left half-written. So the lock here is the
system's, which ends with its holder, and half a line is cut off.
"""

import fcntl
import importlib.util
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend

from kernelgen.errors import KernelgenError
from kernelgen.tune.errors import DiskFullError, TuningError, is_disk_full

# The package to install for a module that a storage imports, where their names differ.
_PACKAGES = {"psycopg2": "psycopg2-binary", "psycopg": "psycopg2-binary", "grpc": "grpcio", "google": "protobuf"}


class FileLock:
    """The system's lock on the file NAME.lock beside a file; for a `with`, too."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.lock")

    def acquire(self) -> bool:
        self._file = self._path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def is_journal(where: str) -> bool:
    """Whether a storage's name is that of a file."""
    return "://" not in where


def open_storage(where: str) -> optuna.storages.BaseStorage:
    """The storage of this name: grpc://HOST:PORT, a database's URL, or a journal's path."""
    if where.startswith("grpc://"):
        host, _, port = where.removeprefix("grpc://").partition(":")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proxy = optuna.storages.GrpcStorageProxy(host=host, port=int(port or 13000))
            proxy.get_all_studies()
            return proxy
    if not is_journal(where):
        return optuna.storages.RDBStorage(_with_driver(where))
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    _repair(path)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=FileLock(path)))


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turns what a storage raises when it cannot be used into a TuningError of one sentence."""
    try:
        yield
    except (KernelgenError, KeyboardInterrupt):
        raise
    except OSError as error:
        raise DiskFullError(where) if is_disk_full(error) else _unreachable(where, error) from error
    except ImportError as error:
        name = getattr(error.__cause__, "name", None) or error.name or str(error)
        package = _PACKAGES.get(name.partition(".")[0], name)
        raise TuningError(
            f"The storage {_without_password(where)} needs {package}; install it with: pip install {package}"
        ) from error
    except Exception as error:
        module = type(error).__module__.partition(".")[0]
        if module in ("sqlalchemy", "grpc", "psycopg2") or isinstance(error, optuna.exceptions.StorageInternalError):
            raise _unreachable(where, error) from error
        if isinstance(error, ValueError) and is_journal(where) and _is_no_journal(Path(where)):
            raise TuningError(f"{where} is no journal of trials; name another file as --storage.") from error
        raise


def _with_driver(url: str) -> str:
    """A PostgreSQL URL with the driver that is installed: SQLAlchemy's default differs by its release."""
    scheme, separator, rest = url.partition("://")
    drivers = [driver for driver in ("psycopg2", "psycopg") if importlib.util.find_spec(driver)]
    return f"postgresql+{drivers[0]}{separator}{rest}" if scheme in ("postgresql", "postgres") and drivers else url


def _repair(journal: Path) -> None:
    """Cut off a last line that was left half-written."""
    if not journal.is_file():
        return
    with FileLock(journal):
        text = journal.read_bytes()
        if not text.endswith(b"\n"):
            with journal.open("r+b") as file:
                file.truncate(text.rfind(b"\n") + 1)


def _is_no_journal(path: Path) -> bool:
    try:
        return "op_code" not in json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    except (OSError, ValueError, TypeError):
        return True


def _unreachable(where: str, error: Exception) -> TuningError:
    cause = str(error.__cause__ or error).strip().partition("\n")[0][:200]
    return TuningError(f"The storage {_without_password(where)} cannot be reached: {cause}")


def _without_password(where: str) -> str:
    scheme, separator, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator and "@" in rest else where
