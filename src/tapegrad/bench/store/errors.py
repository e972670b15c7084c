"""What the store raises. None of them loses what was written before."""

from tapegrad.errors import TapegradError


class StoreError(TapegradError):
    """The store cannot do what was asked."""


class StoreMissingError(StoreError):
    """There is no store to read from."""


class StoreLockedError(StoreError):
    """Another process kept the store locked for longer than we wait."""


class StoreReadOnlyError(StoreError):
    """The file, its folder or the database may not be written."""


class StoreFullError(StoreError):
    """There is no room left for what was to be written."""


class StoreNewerError(StoreError):
    """The store was written by a newer tapegrad, whose tables this one does not know."""


class StoreUnreachableError(StoreError):
    """The server does not answer or turns us away, or the file may not be read."""


class StoreUrlError(StoreError, ValueError):
    """The text does not name a store."""


class NotAStoreError(StoreError):
    """There is something else at that place."""


class UnknownRunError(StoreError, LookupError):
    """The store has no such run, or more than one that it may mean."""


class DuplicateError(StoreError):
    """The store has this already, and results are never overwritten."""
