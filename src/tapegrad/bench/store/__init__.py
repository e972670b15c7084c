"""Where results are kept: a SQLite file, or a PostgreSQL database by its URL.

Example:
    >>> from tapegrad.bench.results import Machine, Run
    >>> from tapegrad.bench.store import open_store
    >>> with open_store(":memory:") as store:
    ...     store.begin(Run("r1", "quick", 0.0, Machine("f0", "laptop")), [], [])
    ...     store.finish("r1", "finished", 9.0)
    ...     store.resolve("latest").status
    'finished'

"""

from tapegrad.bench.store.errors import (
    DuplicateError,
    NotAStoreError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
    StoreNewerError,
    StoreReadOnlyError,
    StoreUnreachableError,
    StoreUrlError,
    UnknownRunError,
)
from tapegrad.bench.store.location import in_memory, locate
from tapegrad.bench.store.open import open_store
from tapegrad.bench.store.store import Store, Summary

__all__ = [
    "DuplicateError",
    "NotAStoreError",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreMissingError",
    "StoreNewerError",
    "StoreReadOnlyError",
    "StoreUnreachableError",
    "StoreUrlError",
    "Summary",
    "UnknownRunError",
    "in_memory",
    "locate",
    "open_store",
]
