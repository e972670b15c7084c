// The article's interpreter in Rust with its errors repaired: the way back starts at the last
// operation, and gradients are set anew at each point. Operations come as flat arrays, so nothing
// is allocated per operation.

use std::slice::{from_raw_parts, from_raw_parts_mut};

const MOST_OPERANDS: usize = 8;
const SOFTPLUS: i32 = 1;
const SUM: i32 = 2;
const PRODUCT: i32 = 3;

/// As the caller describes a graph: arrays with one entry (`ins`: one row) an operation.
#[repr(C)]
pub struct Graph {
    n_inputs: usize,
    n_operations: usize,
    n_nodes: usize,
    target: isize, // a node, or -1 for the sum of all nodes
    kinds: *const i32,
    counts: *const i32,
    ins: *const [i32; MOST_OPERANDS],
    outs: *const i32,
}

struct Op<'a> {
    kind: i32,
    ins: &'a [i32],
    out: usize,
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Graph {
    /// The operations in order.
    unsafe fn ops(&self) -> impl DoubleEndedIterator<Item = Op<'_>> {
        let n = self.n_operations;
        let (kinds, counts) = (from_raw_parts(self.kinds, n), from_raw_parts(self.counts, n));
        let (ins, outs) = (from_raw_parts(self.ins, n), from_raw_parts(self.outs, n));
        (0..n).map(move |i| Op {
            kind: kinds[i],
            ins: &ins[i][..counts[i] as usize],
            out: outs[i] as usize,
        })
    }

    unsafe fn forward(&self, values: &mut [f64]) {
        for Op { kind, ins, out } in self.ops() {
            match kind {
                SOFTPLUS => values[out] = softplus(values[ins[0] as usize]),
                SUM => values[out] = ins.iter().map(|&i| values[i as usize]).sum(),
                PRODUCT => values[out] = values[ins[0] as usize] * values[ins[1] as usize],
                _ => softmax(values, ins, out),
            }
        }
    }

    unsafe fn backward(&self, values: &[f64], grads: &mut [f64]) {
        for Op { kind, ins, out } in self.ops().rev() {
            let grad = grads[out];
            match kind {
                SOFTPLUS => grads[ins[0] as usize] += grad * sigmoid(values[ins[0] as usize]),
                SUM => ins.iter().for_each(|&i| grads[i as usize] += grad),
                PRODUCT => {
                    let (left, right) = (ins[0] as usize, ins[1] as usize);
                    grads[left] += grad * values[right];
                    grads[right] += grad * values[left];
                }
                _ => {
                    let outs = out..out + ins.len();
                    let mean: f64 = outs.clone().map(|j| values[j] * grads[j]).sum();
                    for (&i, j) in ins.iter().zip(outs) {
                        grads[i as usize] += values[j] * (grads[j] - mean);
                    }
                }
            }
        }
    }

    unsafe fn evaluate(&self, values: &mut [f64], grads: &mut [f64]) -> f64 {
        self.forward(values);
        let target = if self.target < 0 {
            grads.fill(1.0);
            values.iter().sum()
        } else {
            grads.fill(0.0);
            grads[self.target as usize] = 1.0;
            values[self.target as usize]
        };
        self.backward(values, grads);
        target
    }
}

fn softmax(values: &mut [f64], ins: &[i32], out: usize) {
    let mut powers = [0.0; MOST_OPERANDS];
    let largest = ins.iter().map(|&i| values[i as usize]).fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for (power, &i) in powers.iter_mut().zip(ins) {
        *power = (values[i as usize] - largest).exp();
        sum += *power;
    }
    for (value, power) in values[out..out + ins.len()].iter_mut().zip(powers) {
        *value = power / sum;
    }
}

/// Targets and gradients of `rows` points.
///
/// # Safety
/// All pointers must lead to arrays of the sizes that `graph` and `rows` tell.
#[no_mangle]
pub unsafe extern "C" fn run_rows(
    graph: &Graph,
    rows: usize,
    points: *const f64,
    targets: *mut f64,
    grads: *mut f64,
) {
    let n = graph.n_inputs;
    let points = from_raw_parts(points, rows * n).chunks_exact(n);
    let grads = from_raw_parts_mut(grads, rows * n).chunks_exact_mut(n);
    let targets = from_raw_parts_mut(targets, rows);
    let (mut node_values, mut node_grads) = (vec![0.0; graph.n_nodes], vec![0.0; graph.n_nodes]);
    for ((point, grad), target) in points.zip(grads).zip(targets) {
        node_values[..n].copy_from_slice(point);
        *target = graph.evaluate(&mut node_values, &mut node_grads);
        grad.copy_from_slice(&node_grads[..n]);
    }
}
