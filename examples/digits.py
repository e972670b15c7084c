"""Learn to read handwritten digits, and draw how the loss fell.

pip install 'tapegrad[bench,weights]' scikit-learn
python examples/digits.py --plot loss.png --weights digits.safetensors
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import tapegrad as tg
from tapegrad import io, nn, optim
from tapegrad.data import DataLoader, TensorDataset


def make_model() -> nn.Sequential:
    """Return three convolutions and a linear layer, for images of 8x8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 2 * 2, 10),
    )


def datasets(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return 1,438 images to learn from and 359 others to be tested on."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = (images[order].reshape(-1, 1, 8, 8) / 16).astype("float32")
    y = labels[order].astype("int64")
    split = len(y) // 5
    test = TensorDataset(tg.tensor(x[:split]), tg.tensor(y[:split]))
    return TensorDataset(tg.tensor(x[split:]), tg.tensor(y[split:])), test


def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    """Return the part of the images that a model reads right."""
    x, y = dataset.tensors
    model.eval()
    with tg.no_grad():
        right = (model(x).argmax(1) == y).to(tg.float32).mean().item()
    model.train()
    return float(right)


def train(
    model: nn.Module, dataset: TensorDataset, test: TensorDataset, epochs: int
) -> list[float]:
    """Train a model, with a bar of progress; return the loss of every step."""
    loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True, num_workers=1)
    opt = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    steps = epochs * len(loader)
    warm_up = optim.LinearLR(opt, start_factor=0.1, total_iters=steps // 10 or 1)
    cosine = optim.CosineAnnealingLR(opt, T_max=steps)
    schedule = optim.SequentialLR(opt, [warm_up, cosine], milestones=[steps // 10 or 1])
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    losses: list[float] = []
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=steps)
        for epoch in range(1, epochs + 1):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                schedule.step()
                losses.append(loss.item())
                progress.advance(task)
            text = f"epoch {epoch}: loss {np.mean(losses[-len(loader) :]):.4f}"
            progress.update(task, description=f"{text}, test {accuracy(model, test):.2%}")
    return losses


def plot(losses: list[float], title: str, path: Path) -> None:
    """Draw the loss of every step, and its mean over 20 steps."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(losses, color="0.8", label="each step")
    width = min(20, len(losses))
    mean = np.convolve(losses, np.ones(width) / width, mode="valid")
    axes.semilogy(range(width - 1, len(losses)), mean, color="tab:blue", label=f"mean of {width}")
    axes.set(title=title, xlabel="step", ylabel="cross entropy")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train, test, and write what was asked for."""
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="where to draw the loss, as loss.png")
    parser.add_argument("--weights", type=Path, help="where to save weights (safetensors)")
    options = parser.parse_args()
    tg.manual_seed(options.seed)
    model = make_model()
    learnt, test = datasets(options.seed)
    print(model)
    start = time.perf_counter()
    losses = train(model, learnt, test, options.epochs)
    seconds = time.perf_counter() - start
    summary = f"{accuracy(model, test):.2%} of {len(test)} test images right after {seconds:.1f} s"
    print(summary)
    if options.plot:
        plot(losses, summary, options.plot)
    if options.weights:
        io.save(model.state_dict(), options.weights)


if __name__ == "__main__":
    main()
