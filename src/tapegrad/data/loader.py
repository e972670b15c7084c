"""DataLoader: batches in a seeded order, made ahead by threads.

Threads do the reading, not processes: what takes long releases the interpreter's lock (files,
decoding, NumPy, tapegrad), nothing has to be pickled, and nothing outlives a crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from numbers import Integral
from typing import Any

from tapegrad.data.collate import default_collate
from tapegrad.data.dataset import TensorDataset
from tapegrad.errors import DTypeError, OptionError
from tapegrad.tensors import Generator, inference_mode, randperm, set_grad_enabled, tensor
from tapegrad.tensors.autograd import MODE

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Goes over a dataset in batches, again and again.

    Args:
        dataset: Anything with `__getitem__` and `__len__`.
        batch_size: Samples in a batch; None gives single samples as they are.
        shuffle: Whether each pass has an order of its own, drawn from `generator`.
        sampler: Sample numbers in the order wanted; not with shuffle.
        batch_sampler: Lists of sample numbers; not with any of the others.
        num_workers: Threads that make batches ahead; 0 makes each when it is asked for. Order and
            content of batches are the same with any number.
        collate_fn: Makes a batch of a list of samples; `default_collate` if None.
        pin_memory: Taken for PyTorch's sake; memory of the CPU needs no pinning here.
        drop_last: Whether a last batch that is smaller is left out.
        timeout: Seconds to wait for a batch that threads make; 0 waits for it.
        worker_init_fn: Called with its number by each thread before its first batch.
        multiprocessing_context: Not there: threads do the work, no processes.
        generator: Where the order comes from; tapegrad's own if None, so `manual_seed` sets it.
        prefetch_factor: Batches ahead per thread; 2 if None.
        persistent_workers: Taken for PyTorch's sake; threads begin at once.
        pin_memory_device: The same as pin_memory.
        in_order: Taken for PyTorch's sake; batches always come in their order.

    Example:
        >>> import tapegrad as tg
        >>> from tapegrad.data import DataLoader, TensorDataset
        >>> loader = DataLoader(TensorDataset(tg.arange(5)), batch_size=2)
        >>> len(loader), [x.tolist() for x, in loader]
        (3, [[0, 1], [2, 3], [4]])

    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_dataset(dataset, sampler is None and batch_sampler is None)
        if batch_size is not None and not _is_count(batch_size):
            raise OptionError(
                "DataLoader: expected batch_size to be a whole number of at least 1, got "
                f"{batch_size!r}"
            )
        ahead = 2 if prefetch_factor is None else prefetch_factor
        if not (_is_count(num_workers, 0) and _is_count(ahead)) or timeout < 0:
            raise OptionError(
                "DataLoader: expected whole numbers of at least 0 as num_workers and at least 1 as "
                "prefetch_factor, and timeout of at least 0, "
                f"got {num_workers!r}, {ahead!r} and {timeout!r}"
            )
        if multiprocessing_context is not None:
            raise OptionError(
                "DataLoader: threads make the batches, no processes; leave "
                "multiprocessing_context out"
            )
        if shuffle and sampler is not None:
            raise OptionError("DataLoader: expected shuffle or a sampler, got both")
        if batch_sampler is not None and (
            batch_size != 1 or shuffle or sampler is not None or drop_last
        ):
            raise OptionError(
                "DataLoader: a batch_sampler decides on batch_size, shuffle, sampler and "
                "drop_last; leave them out"
            )
        if batch_size is None and drop_last:
            raise OptionError("DataLoader: drop_last needs a batch_size, got None")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.generator = generator
        self.prefetch_factor = ahead
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.persistent_workers = persistent_workers
        self.in_order = in_order

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return _length(self.batch_sampler, "batch_sampler")
        plain = self.sampler is None
        samples = _length(*((self.dataset, "dataset") if plain else (self.sampler, "sampler")))
        if self.batch_size is None:
            return samples
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        # The order is drawn here and not in the generator below, so that it depends on when the
        # pass begins and not on when its first batch is asked for.
        batches = self._batches(self._order())
        return self._ahead(batches) if self.num_workers else map(self._fetch, batches)

    def _order(self) -> Iterable[Any]:
        """Return the numbers of samples in the order of this pass."""
        if self.batch_sampler is not None:
            return ()
        if self.sampler is not None:
            return self.sampler
        samples = len(self.dataset)
        if not self.shuffle:
            return range(samples)
        order: list[int] = randperm(samples, generator=self.generator).tolist()
        return order

    def _batches(self, order: Iterable[Any]) -> Iterator[Any]:
        if self.batch_sampler is not None:
            yield from self.batch_sampler
            return
        if self.batch_size is None:
            yield from order
            return
        numbers = iter(order)
        while batch := list(islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def _fetch(self, numbers: Any) -> Any:
        """Make one batch; rows of tensors are taken at once."""
        if self.batch_size is None and self.batch_sampler is None:
            sample = self.dataset[numbers]
            return sample if self.collate_fn is None else self.collate_fn(sample)
        if self.collate_fn is None and _has_rows(self.dataset):
            return list(self.dataset[tensor(list(numbers))])
        collate = self.collate_fn or default_collate
        return collate([self.dataset[number] for number in numbers])

    def _begin(self, pool: ThreadPoolExecutor, numbers: Any) -> Future[Any]:
        """Have one batch made in a thread, which records or not as the one that asks does."""
        recorded, inference = MODE.enabled, MODE.inference

        def make() -> Any:
            with inference_mode(inference), set_grad_enabled(recorded):
                return self._fetch(numbers)

        return pool.submit(make)

    def _made(self, batch: Future[Any]) -> Any:
        """Wait for a batch, for as long as it may take."""
        try:
            return batch.result(self.timeout or None)
        except TimeoutError:
            if batch.done():  # an error of the dataset's own
                raise
            raise TimeoutError(f"DataLoader: no batch within {self.timeout} seconds") from None

    def _ahead(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Keep some batches in the making; a pass that ends early leaves no thread behind."""
        number = count()
        failed: list[Exception] = []

        def begin() -> None:
            if self.worker_init_fn is not None:
                try:
                    self.worker_init_fn(next(number))
                except Exception as error:  # the one who asks for a batch gets it
                    failed.append(error)

        pool = ThreadPoolExecutor(self.num_workers, "tapegrad-data", begin)
        made: deque[Future[Any]] = deque()
        try:
            for numbers in islice(batches, self.num_workers * self.prefetch_factor):
                made.append(self._begin(pool, numbers))
            while made:
                batch = self._made(made.popleft())
                if failed:
                    raise failed[0]
                for numbers in islice(batches, 1):
                    made.append(self._begin(pool, numbers))
                yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _is_count(value: Any, least: int = 1) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and bool(value >= least)


def _has_rows(dataset: Any) -> bool:
    """Tell whether samples are rows of tensors: not those of a subclass with its own samples."""
    return getattr(type(dataset), "__getitem__", None) is TensorDataset.__getitem__


def _check_dataset(dataset: Any, ordered: bool) -> None:
    """Refuse what has no samples by number, or no length where that gives their order."""
    if not hasattr(dataset, "__getitem__") or (ordered and not hasattr(dataset, "__len__")):
        raise DTypeError(
            "DataLoader: expected a dataset with __getitem__ and __len__, got "
            f"{type(dataset).__name__}; put what it gives into a list"
        )


def _length(sized: object, what: str) -> int:
    """Return a length; what has none is a TypeError, which `list` takes as "not known"."""
    if not isinstance(sized, Sized):
        raise DTypeError(f"DataLoader: the {what} has no length, so neither has the loader")
    return len(sized)
