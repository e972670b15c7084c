// A scalar graph as the C contenders read it, and what they do with it.
#pragma once
#include <stddef.h>

enum { SOFTPLUS = 1, SUM = 2, PRODUCT = 3, SOFTMAX = 4 };

/// One operation. Outputs are consecutive, so the first one is enough.
typedef struct {
    int opcode;
    size_t n_arguments; // used by sum and softmax
    int ins[8];         // baked in: no jump to another array
    int out;
} Operation;

/// Nodes 0 .. n_inputs - 1 are the inputs.
typedef struct {
    int n_inputs;
    int n_operations;
    int n_nodes;
    int target; // a node, or -1 for the sum of all nodes
    const Operation *ops;
} Graph;

/// Target and gradient of `rows` points, one point after the other.
void run_rows(const Graph *graph, int rows, const double *points, double *targets, double *grads);

/// The same, reading operations by pointer.
void run_rows_by_pointer(
    const Graph *graph, int rows, const double *points, double *targets, double *grads
);

/// The same, eight points at a time.
void run_rows_in_lanes(
    const Graph *graph, int rows, const double *points, double *targets, double *grads
);

/// `steps` dependent steps x -= rate * gradient; returns the target at the last point evaluated.
double run_steps(const Graph *graph, int steps, double rate, double *x);
double run_steps_by_pointer(const Graph *graph, int steps, double rate, double *x);
