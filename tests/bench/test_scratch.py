"""Temporary files: nothing of them is left behind, and a full folder is said to be one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tapegrad.bench import inputs, scratch
from tapegrad.bench.errors import WorkerError
from tapegrad.bench.store import open_store

from .conftest import Start
from .test_worker import TANH, Save, adapter, prepare

#: A run that says when it has a folder.
RUN = """
    import os, sys
    from tapegrad import bench
    class Printer(bench.Listener):
        def block(self, block):
            print("block", flush=True)
    bench.run("operators", frameworks=["numpy"], filter=["add", "exp"], sizes=["small"],
              store=sys.argv[1], listener=Printer(), processes=1, rounds=50, block=0.01)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a place for temporary files, and hide the frameworks that start slowly."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv("TAPEGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


def test_the_next_run_removes_what_a_killed_one_has_left(place: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(RUN), str(place.parent / "results.sqlite")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "block\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (left,) = place.iterdir()
    with scratch.folder() as mine:
        assert list(place.iterdir()) == [mine]
    assert not left.exists()
    assert list(place.iterdir()) == []


def test_folders_of_runs_that_go_on_are_left_alone(place: Path) -> None:
    (place / f"{scratch.PREFIX}without-a-lock").mkdir()
    with scratch.folder() as first:
        with scratch.folder() as second:
            assert first.is_dir() and second.is_dir()
        assert first.is_dir() and not second.exists()
    assert len(list(place.iterdir())) == 1


def test_a_folder_without_room_is_said_to_be_full(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux has a file that is always full."""
    monkeypatch.setattr(scratch, "ROOM", 1 << 62)  # no disk has so much
    (place / "x.npy").symlink_to("/dev/full")
    message = f"temporary folder {place} is full: .*TMPDIR"
    with pytest.raises(scratch.TemporaryFolderError, match=message):
        inputs.save({"x": np.ones(1 << 20)}, place)


def test_a_worker_that_finds_no_room_is_not_to_blame(
    start: Start, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = adapter(
        tmp_path,
        """
        class Own(Numpy):
            def operation(self, case, function, arrays):
                raise OSError(28, "No space left on device")
        """,
    )
    x = save(x=np.ones((4, 5), np.float32))
    with pytest.raises(WorkerError, match="No space left") as caught:
        prepare(start(own), TANH, x)
    assert caught.value.kind == "failed"
    monkeypatch.setattr(scratch, "ROOM", 1 << 62)
    with pytest.raises(scratch.TemporaryFolderError, match=r"is full: own: .*No space left"):
        prepare(start(own), TANH, x)


def test_a_run_that_cannot_write_its_files_ends_with_a_code_of_its_own(place: Path) -> None:
    """The shell limits files to half a megabyte: the store fits, the second case does not."""
    words = "bench run operators --frameworks numpy --filter add --processes 1 --rounds 1"
    shape = "--shape x=8x8,y=8x8 --shape x=1024x1024,y=1024x1024 --phases forward --block 0.001"
    store = place.parent / "results.sqlite"
    command = (
        f"ulimit -f 512; exec {sys.executable} -m tapegrad.cli {words} {shape} --store {store}"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 6, done.stderr
    assert f"The temporary folder {place} cannot be written: " in done.stderr
    assert "TMPDIR" in done.stderr and "Traceback" not in done.stderr
    assert list(place.iterdir()) == []
    with open_store(store) as opened:
        results = opened.load(opened.resolve("latest").id)
    assert results.run.status == "interrupted"
    assert [cell.verdict for cell in results.cells] == ["checked"]
