"""Times calls on tensors of a few numbers, gradients on, in tapegrad and in PyTorch.

What such a call costs is its bookkeeping. Each library runs in a process and an environment of its
own; the two take turns, row by row, and both are timed by the processor time of their own thread,
so other programs on the machine hit both alike and waiting does not count. The garbage collector
is on, as it is for users. Times are the smallest over all rounds.

    python tools/tiny_calls.py [--torch PYTHON] [--rounds N] [--filter X]
"""

import argparse
import re
import subprocess
import sys
import time

SECONDS = 0.01  # that a row takes each round


#: What is timed, the same text for both libraries, in the words of `names`.
ROWS = [
    "a * b",
    "a + 1.0",
    "1.0 / a",
    "a**2",
    "-a",
    "a > 0.5",
    "m + bias",
    "tg.exp(a)",
    "a.relu()",
    "F.gelu(a)",
    "F.silu(a)",
    "F.softplus(a)",
    "a.clamp(0.0, 1.0)",
    "tg.where(mask, a, b)",
    "tg.where(mask, a, 0.0)",
    "a.masked_fill(mask, 0.0)",
    "a.sum()",
    "m.sum(0)",
    "m.mean()",
    "m.var(1)",
    "m.amax(1)",
    "m.max(1)",
    "m.argmax(1)",
    "m.cumsum(1)",
    "m.prod(1)",
    "tg.softmax(m, -1)",
    "F.log_softmax(m, -1)",
    "tg.logsumexp(m, -1)",
    "m @ m",
    "bias @ m",
    "stack @ m",
    "tg.bmm(stack, stack)",
    'tg.einsum("ij,jk->ik", m, m)',
    "F.linear(x, m, bias)",
    "m.reshape(2, 8)",
    "m.view(-1)",
    "m.flatten()",
    "m.transpose(0, 1)",
    "m.T",
    "m.permute(1, 0)",
    "m.unsqueeze(0)",
    "image.squeeze()",
    "bias.expand(4, 4)",
    "m[1]",
    "m[1:3]",
    "m[:, 1]",
    "m[index]",
    "a[mask]",
    "m.split(2)",
    "m.unbind()",
    "m.index_select(0, index)",
    "m.gather(0, columns)",
    "F.embedding(index, m)",
    "tg.cat([a, b])",
    "tg.stack([a, b])",
    "F.pad(a, (1, 1))",
    "m.clone()",
    "m.T.contiguous()",
    "a.detach()",
    "a.double()",
    "a.sum().item()",
    "F.layer_norm(m, (4,), bias, bias)",
    "F.conv2d(image, kernel)",
    "F.max_pool2d(image, 2)",
    "F.dropout(a)",
    "F.scaled_dot_product_attention(stack, stack, stack)",
    "F.mse_loss(a, b)",
    "F.cross_entropy(m[:2], target)",
    "tg.zeros(3)",
    "tg.ones_like(a)",
    "tg.tensor([1.0, 2.0])",
    "tg.randn(3)",
    "mul_in_no_grad()",
    "layer(x)",
    "(a * b).sum().backward()",
    "(m @ m).sum().backward()",
    "(m + bias).sum().backward()",
    "m[1].sum().backward()",
    "tg.softmax(m, -1)[0, 0].backward()",
    "chain_of_20()",
    "train_two_layers()",
    "sgd.step()",
    "adamw.step()",
]


def names(tg, nn, optim):
    """Return what the rows speak of."""
    F = nn.functional  # noqa: N806  its usual name
    a, b = (tg.tensor([0.5, 1.0, 1.5], requires_grad=True) for _ in range(2))
    m, bias = tg.ones(4, 4, requires_grad=True), tg.ones(4, requires_grad=True)
    x, stack = tg.ones(2, 4), tg.ones(2, 4, 4, requires_grad=True)
    image = tg.ones(1, 1, 4, 4, requires_grad=True)
    kernel = tg.ones(1, 1, 3, 3, requires_grad=True)
    mask, target, index = (tg.tensor(each) for each in ([True, False, True], [1, 3], [2, 0, 2]))
    columns = tg.tensor([[0, 1, 2, 3]])
    layer = nn.Linear(4, 4)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    trained = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    F.cross_entropy(trained(x), target).backward()
    sgd = optim.SGD(trained.parameters(), lr=1e-9, momentum=0.9)
    adamw = optim.AdamW(trained.parameters(), lr=1e-9)

    def chain_of_20():
        c = a
        for _ in range(10):
            c = c * b + a
        c.sum().backward()

    def train_two_layers():
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        net.zero_grad()

    def mul_in_no_grad():
        with tg.no_grad():
            return a * b

    return locals()


def serve(library):
    """Time rows that are named on standard input, and print microseconds per call."""
    if library == "torch":
        import torch as tg
        from torch import nn, optim
    else:
        import tapegrad as tg
        from tapegrad import nn, optim

    known = names(tg, nn, optim)
    for text in sys.stdin:
        print(timed(eval(f"lambda: {text}", known)), flush=True)


def timed(call):
    """Return microseconds per call, over some SECONDS."""
    count, taken = 16, 0.0
    while taken < SECONDS:
        count *= 2
        begin = time.thread_time()
        for _ in range(count):
            call()
        taken = time.thread_time() - begin
    return taken / count * 1e6


class Side:
    """A library in a process of its own."""

    def __init__(self, python, library):
        self._process = subprocess.Popen(
            [python, __file__, "--serve", library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def time(self, text):
        """Return microseconds per call of a row."""
        print(text, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"tiny_calls: {self._process.args[0]} ended with {self._process.wait()}")
        return float(line)


def torch_python():
    """Return the interpreter of the environment that `tapegrad bench frameworks install` made."""
    from tapegrad.bench.frameworks import find

    return find("torch").interpreter() or sys.exit(
        "tiny_calls: PyTorch is not there; run `tapegrad bench frameworks install torch`"
    )


def main():
    """Run both sides in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--filter", default="", help="a regular expression for rows")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    sides = [Side(sys.executable, "tapegrad"), Side(given.torch or torch_python(), "torch")]
    times = {text: [] for text in ROWS if re.search(given.filter, text)}
    for _ in range(given.rounds):
        for text, taken in times.items():
            taken.append([side.time(text) for side in sides])
    print("| µs per call | tapegrad | PyTorch | ratio |\n|---|---|---|---|")
    for text, taken in times.items():
        ours, theirs = map(min, zip(*taken, strict=True))
        print(f"| `{text}` | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    main()
