"""Weights and training states in files: round trips, resumed training, damage."""

from __future__ import annotations

import json
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tapegrad import io, nn, optim
from tapegrad.data import DataLoader, TensorDataset
from tapegrad.errors import DTypeError, FileError, StateError
from tapegrad.tensors import (
    Generator,
    Tensor,
    arange,
    bool_,
    float32,
    float64,
    full,
    int32,
    manual_seed,
    ones,
    rand,
    tensor,
    zeros,
)
from tapegrad.tensors.random import DEFAULT


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {
        "a": arange(6).reshape(2, 3).T,
        "b.c": tensor([1.5, float("nan")], dtype=float64),
        "flag": ones(2, dtype=bool_),
        "empty": zeros(0, 3),
        "number": tensor(7, dtype=int32),
        "learnt": nn.Parameter(ones(2)),
    }
    io.save(tensors, tmp_path / "t.safetensors")
    found = io.load(str(tmp_path / "t.safetensors"))
    assert set(found) == set(tensors)
    for name, each in tensors.items():
        assert found[name].dtype == each.dtype and found[name].shape == each.shape
        np.testing.assert_array_equal(found[name].numpy(), each.detach().numpy())
    assert list(tmp_path.iterdir()) == [tmp_path / "t.safetensors"]


def test_files_are_everybodys(tmp_path: Path) -> None:
    io.save({"a": ones(2)}, tmp_path / "ours")
    assert load_file(tmp_path / "ours")["a"].tolist() == [1, 1]
    save_file({"b": np.arange(3)}, tmp_path / "theirs")
    assert io.load(tmp_path / "theirs")["b"].tolist() == [0, 1, 2]


class Training:
    """A model with dropout and all that trains it."""

    def __init__(self) -> None:
        self.model = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)
        )
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.05, amsgrad=True)
        warm_up = optim.LinearLR(self.optimizer, 0.1, total_iters=3)
        cosine = optim.CosineAnnealingLR(self.optimizer, 8)
        self.schedule = optim.SequentialLR(self.optimizer, [warm_up, cosine], [3])
        rows = TensorDataset((arange(24) * 0.1).reshape(8, 3))
        self.loader = DataLoader(rows, 4, shuffle=True)

    def epochs(self, number: int) -> list[float]:
        losses = []
        for _ in range(number):
            for (x,) in self.loader:
                loss = (self.model(x) ** 2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            self.schedule.step()
        return losses

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}


def test_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    manual_seed(1)
    path, training = tmp_path / "state.safetensors", Training()
    training.epochs(4)
    io.save_training(path, **training.parts, step=4)
    expected = training.epochs(3)
    manual_seed(2)
    resumed = Training()
    resumed.epochs(1)
    assert io.load_training(path, **resumed.parts) == 4
    assert resumed.epochs(3) == expected
    assert resumed.schedule.get_last_lr() == training.schedule.get_last_lr()


def test_generators_of_users_are_kept(tmp_path: Path) -> None:
    generator = Generator().manual_seed(5)
    rand(3, generator=generator)
    io.save_training(tmp_path / "g", generator=generator)
    expected = rand(3, generator=generator).tolist()
    assert io.load_training(tmp_path / "g", generator=generator) == 0
    assert rand(3, generator=generator).tolist() == expected


def test_numbers_of_numpy_are_kept(tmp_path: Path) -> None:
    optimizer = optim.SGD(nn.Linear(2, 2).parameters())
    optimizer.param_groups[0]["lr"] = np.float32(0.25)
    io.save_training(tmp_path / "s", optimizer=optimizer, step=np.int64(7))  # type: ignore[arg-type]
    optimizer.param_groups[0]["lr"] = 1.0
    assert io.load_training(tmp_path / "s", optimizer=optimizer) == 7
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    io.save_training(tmp_path / "s", model=model)
    with pytest.raises(StateError, match="expected the state of a optimizer"):
        io.load_training(tmp_path / "s", model=model, optimizer=optim.SGD(model.parameters()))
    with pytest.raises(StateError, match="expected shape"):
        io.load_training(tmp_path / "s", model=nn.Linear(3, 2))
    io.save({"a": ones(1)}, tmp_path / "w")
    with pytest.raises(FileError, match="tensors alone"):
        io.load_training(tmp_path / "w", model=model)
    with pytest.raises(FileNotFoundError, match="there is none"):
        io.load(tmp_path / "nowhere")
    with pytest.raises(DTypeError, match="expected Tensors by names, got int"):
        io.save({"a": 1}, tmp_path / "w")  # type: ignore[dict-item]
    assert io.load(tmp_path / "w")["a"].tolist() == [1]


def test_other_types_are_refused(tmp_path: Path) -> None:
    save_file({"half": np.ones(2, np.float16)}, tmp_path / "half")
    with pytest.raises(FileError, match="half is of float16"):
        io.load(tmp_path / "half")
    header = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "bf16").write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0")
    with pytest.raises(FileError):
        io.load(tmp_path / "bf16")


def test_files_that_several_write_at_once_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "w"

    def write(number: int) -> None:
        for _ in range(20):
            io.save({"a": full((5000,), float(number))}, path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = io.load(path)["a"]
    assert found.numel() == 5000 and bool((found == found[0]).all())
    assert [each.name for each in tmp_path.iterdir()] == ["w"]


def test_writing_leaves_links_and_files_of_like_names(tmp_path: Path) -> None:
    (tmp_path / "w.part").write_text("of a user")
    (tmp_path / "latest").symlink_to(tmp_path / "w")
    io.save({"a": ones(1)}, tmp_path / "w")
    io.save({"a": ones(2)}, tmp_path / "latest")
    assert io.load(tmp_path / "w")["a"].tolist() == [1.0, 1.0]
    assert (tmp_path / "w.part").read_text() == "of a user"
    assert (tmp_path / "latest").is_symlink() and len(list(tmp_path.iterdir())) == 3


def test_who_may_read_a_file_may_still_do_so_when_it_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "w"
    io.save({"a": ones(1)}, path)
    path.chmod(0o644)
    io.save({"a": ones(2)}, path)
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_is_explained(tmp_path: Path) -> None:
    loose: Any = io
    with pytest.raises(DTypeError, match=r"got Linear; pass its state_dict\(\)"):
        loose.save(nn.Linear(1, 1), tmp_path / "a")
    with pytest.raises(DTypeError, match="got list"):
        loose.save([ones(1)], tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="expected a folder"):
        io.save({"a": ones(1)}, tmp_path / "nowhere" / "a")
    save_file({"a": np.ones(1, np.uint8)}, tmp_path / "bytes")
    with pytest.raises(FileError, match="a is of uint8"):
        io.load(tmp_path / "bytes")
    assert [each.name for each in tmp_path.iterdir()] == ["bytes"]


class Refusing(dict[str, Any]):
    """A part with a state that it does not take back at first."""

    times = 0

    def state_dict(self) -> dict[str, Any]:
        return dict(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.update(state_dict)
        self.times += 1
        if self.times == 1:
            raise StateError("not now")


@pytest.mark.parametrize("failing", ["optimizer", "schedule", "refusing"])
def test_training_states_load_whole_or_not_at_all(tmp_path: Path, failing: str) -> None:
    saved = Training()
    saved.epochs(2)
    parts = dict(saved.parts)
    if failing == "optimizer":
        parts["optimizer"] = optim.Adam([nn.Parameter(ones(3))])
    if failing == "schedule":
        parts["schedule"] = optim.StepLR(saved.optimizer, 3)
    if failing == "refusing":
        parts["schedule"] = Refusing(number=1)
    io.save_training(tmp_path / "s", **parts, step=2)
    training = Training()
    training.epochs(1)
    wanted = dict(training.parts)
    if failing == "refusing":
        wanted["schedule"] = Refusing(number=2)
    before = _numbers({name: part.state_dict() for name, part in wanted.items()})
    state = DEFAULT.get_state()
    with pytest.raises(StateError):
        io.load_training(tmp_path / "s", **wanted)
    assert _numbers({name: part.state_dict() for name, part in wanted.items()}) == before
    assert DEFAULT.get_state() == state


def _numbers(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _numbers(each) for key, each in tree.items()}
    if isinstance(tree, list):
        return [_numbers(each) for each in tree]
    return tree.tolist() if isinstance(tree, Tensor) else tree


@pytest.mark.parametrize("text", [None, "{", "[]", '{"dict": 3}', '{"dict": [["step", 1]]}', "9"])
def test_states_that_are_no_states(tmp_path: Path, text: str | None) -> None:
    metadata = {} if text is None else {"tapegrad.state": text}
    save_file({"a": np.ones(1)}, tmp_path / "s", metadata)
    with pytest.raises(FileError):
        io.load_training(tmp_path / "s", model=nn.Linear(1, 1))


def test_files_of_others_may_speak_of_tapegrad(tmp_path: Path) -> None:
    notes = {"notes": "trained with tapegrad", "see tapegrad": "1"}
    save_file({"a": np.ones(1)}, tmp_path / "s", notes)
    assert io.load(tmp_path / "s")["a"].tolist() == [1.0]


def test_bools_are_zero_or_one(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}).encode()
    start = struct.pack("<Q", len(header)) + header
    (tmp_path / "good").write_bytes(start + b"\0\1\1\0")
    assert io.load(tmp_path / "good")["a"].tolist() == [False, True, True, False]
    (tmp_path / "bad").write_bytes(start + b"\0\1\2\0")
    with pytest.raises(FileError, match="a is of bool, and holds bytes that are neither 0 nor 1"):
        io.load(tmp_path / "bad")


@pytest.mark.parametrize("whole", [True, False])
def test_no_damage_of_a_name_hides_the_checksum(tmp_path: Path, whole: bool) -> None:
    path, model = tmp_path / "state", nn.Linear(1, 1)
    if whole:
        io.save_training(path, model=model)
    else:
        io.save(model.state_dict(), path)
    data = path.read_bytes()
    names = (b"__metadata__", b"tapegrad.crc32", b"written_by", b'"tapegrad"', b"tapegrad.state")
    for name in names if whole else names[:-1]:
        for place in range(start := data.index(name), start + len(name)):
            for bit in (1, 4, 32):
                damaged = bytearray(data)
                damaged[place] ^= bit
                path.write_bytes(damaged)
                with pytest.raises(FileError):
                    io.load_training(path, model=model) if whole else io.load(path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_damage_is_found(tmp_path: Path, chance: random.Random) -> None:
    path = tmp_path / "state"
    model = nn.Linear(4, 4)
    io.save_training(path, model=model, optimizer=optim.SGD(model.parameters()))
    data = bytearray(path.read_bytes())
    match chance.randrange(3):
        case 0:
            place = chance.randrange(len(data))
            data[place] ^= chance.randrange(1, 256)
        case 1:
            del data[chance.randrange(len(data)) :]
        case _:
            data += b"more"
    path.write_bytes(data)
    try:
        io.load_training(path, model=model)
    except FileError:
        return
    # A space in the header that became another blank is no damage.
    assert model.weight.dtype == float32
    np.testing.assert_array_equal(load_file(path)["model.weight"], model.weight.detach().numpy())
