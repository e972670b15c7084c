// The interpreter of "Fastest Autograd in the West" with its errors repaired: softmax reads values
// and not indices, every gradient is set anew in each pass, and there is a target: where it is the sum
// of all nodes, the adjoint of every node starts at one. What it does per operation is as published,
// the copy of the operation included; by_pointer.c is the same without that copy.
#include "interpreter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef FETCH
#define FETCH(op, graph, index) const Operation copy = (graph)->ops[index], *op = &copy
#endif

static inline double softplus(double x) {
    if (x > 0.) { return x + log1p(exp(-x)); }
    else        { return log1p(exp(x)); }
}

static inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static void forward(const Graph *graph, double *values) {
    for (int operation = 0; operation < graph->n_operations; operation++) {
        FETCH(op, graph, operation);
        switch (op->opcode) {
            case SOFTPLUS:
                values[op->out] = softplus(values[op->ins[0]]);
                break;
            case SUM: {
                double out = 0.;
                for (size_t i = 0; i < op->n_arguments; i++) { out += values[op->ins[i]]; }
                values[op->out] = out;
                break;
            }
            case PRODUCT:
                values[op->out] = values[op->ins[0]] * values[op->ins[1]];
                break;
            case SOFTMAX: {
                size_t n_arg = op->n_arguments;
                double maximal = -1e20;
                for (size_t i = 0; i < n_arg; i++) { maximal = fmax(maximal, values[op->ins[i]]); }
                double exps[8];
                double sum = 0.;
                for (size_t i = 0; i < n_arg; i++) {
                    exps[i] = exp(values[op->ins[i]] - maximal);
                    sum += exps[i];
                }
                for (size_t i = 0; i < n_arg; i++) { values[op->out + i] = exps[i] / sum; }
                break;
            }
        }
    }
}

static void backward(const Graph *graph, const double *values, double *grads) {
    for (int operation = graph->n_operations - 1; operation >= 0; operation--) {
        FETCH(op, graph, operation);
        switch (op->opcode) {
            case SOFTPLUS:
                grads[op->ins[0]] += grads[op->out] * sigmoid(values[op->ins[0]]);
                break;
            case SUM: {
                double grad = grads[op->out];
                for (size_t i = 0; i < op->n_arguments; i++) { grads[op->ins[i]] += grad; }
                break;
            }
            case PRODUCT: {
                double grad = grads[op->out];
                grads[op->ins[0]] += grad * values[op->ins[1]];
                grads[op->ins[1]] += grad * values[op->ins[0]];
                break;
            }
            case SOFTMAX: {
                size_t n_arg = op->n_arguments;
                const double *y = &values[op->out];
                const double *dy = &grads[op->out];
                double avg_grad = 0.;
                for (size_t i = 0; i < n_arg; i++) { avg_grad += y[i] * dy[i]; }
                for (size_t i = 0; i < n_arg; i++) {
                    grads[op->ins[i]] += y[i] * (dy[i] - avg_grad);
                }
                break;
            }
        }
    }
}

static double evaluate(const Graph *graph, double *values, double *grads) {
    forward(graph, values);
    double target = 0.;
    if (graph->target < 0) {
        for (int node = 0; node < graph->n_nodes; node++) {
            target += values[node];
            grads[node] = 1.;
        }
    } else {
        target = values[graph->target];
        memset(grads, 0, sizeof(double) * graph->n_nodes);
        grads[graph->target] = 1.;
    }
    backward(graph, values, grads);
    return target;
}

void run_rows(const Graph *graph, int rows, const double *points, double *targets, double *grads) {
    size_t n_inputs = graph->n_inputs;
    double *node_values = malloc(sizeof(double) * graph->n_nodes);
    double *node_grads = malloc(sizeof(double) * graph->n_nodes);
    for (int row = 0; row < rows; row++) {
        memcpy(node_values, points + row * n_inputs, sizeof(double) * n_inputs);
        targets[row] = evaluate(graph, node_values, node_grads);
        memcpy(grads + row * n_inputs, node_grads, sizeof(double) * n_inputs);
    }
    free(node_values);
    free(node_grads);
}

double run_steps(const Graph *graph, int steps, double rate, double *x) {
    double *node_values = malloc(sizeof(double) * graph->n_nodes);
    double *node_grads = malloc(sizeof(double) * graph->n_nodes);
    double target = 0.;
    for (int step = 0; step < steps; step++) {
        memcpy(node_values, x, sizeof(double) * graph->n_inputs);
        target = evaluate(graph, node_values, node_grads);
        for (int i = 0; i < graph->n_inputs; i++) { x[i] -= rate * node_grads[i]; }
    }
    free(node_values);
    free(node_grads);
    return target;
}
