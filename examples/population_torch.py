"""Evaluate a graph in PyTorch: read it as JSON, write value, gradient and seconds as JSON.

`population.py` runs this under the Python of PyTorch's environment, which need not have tapegrad.
"""

import json
import sys
import time

import torch

#: Opcodes of the article's C.
SOFTPLUS, SUM, PRODUCT = 1, 2, 3
REPEATS = 3


def evaluate(ops, point):
    """Return the sum of all nodes at a point, and its gradient."""
    x = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    nodes = list(x.unbind())
    for kind, ins in ops:
        operands = [nodes[i] for i in ins]
        if kind == SOFTPLUS:
            nodes.append(torch.nn.functional.softplus(*operands))
        elif kind == SUM:
            nodes.append(torch.stack(operands).sum())
        elif kind == PRODUCT:
            nodes.append(torch.mul(*operands))
        else:
            nodes.extend(torch.softmax(torch.stack(operands), 0).unbind())
    value = torch.stack(nodes).sum()
    (gradient,) = torch.autograd.grad(value, x)
    return value.item(), gradient.tolist()


def main():
    """Answer one question."""
    torch.set_num_threads(1)  # numbers one by one have nothing to share
    asked = json.load(sys.stdin)
    value, gradient = evaluate(asked["ops"], asked["point"])
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        evaluate(asked["ops"], asked["point"])
        seconds.append(time.perf_counter() - begin)
    json.dump({"value": value, "gradient": gradient, "seconds": min(seconds)}, sys.stdout)


if __name__ == "__main__":
    main()
