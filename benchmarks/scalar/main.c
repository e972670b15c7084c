// Holds one graph and its points, and times contenders on request, one line in and one line out:
//   scalar ROWS | pointer ROWS | lanes ROWS | steps COUNT RATE  ->  seconds
//   dump FILE                                  ->  "ok", results of the last run as doubles
#define _POSIX_C_SOURCE 200809L
#include "interpreter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void read_exactly(FILE *file, void *target, size_t size) {
    if (fread(target, 1, size, file) != size) { fail("a graph or points file ends too early"); }
}

static FILE *open_file(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file == NULL) { fail("cannot open a file"); }
    return file;
}

/// Graph file: int32 n_inputs, n_operations, n_nodes; then per operation opcode, count, ins[8], out.
static Graph read_graph(const char *path) {
    FILE *file = open_file(path, "rb");
    int head[3], record[11];
    read_exactly(file, head, sizeof head);
    Graph graph = {head[0], head[1], head[2], malloc(sizeof(Operation) * head[1])};
    for (int i = 0; i < graph.n_operations; i++) {
        read_exactly(file, record, sizeof record);
        Operation *op = &graph.ops[i];
        op->opcode = record[0];
        op->n_arguments = record[1];
        memcpy(op->ins, record + 2, sizeof op->ins);
        op->out = record[10];
    }
    fclose(file);
    return graph;
}

static double *read_points(const char *path, size_t count) {
    double *points = malloc(sizeof(double) * count);
    FILE *file = open_file(path, "rb");
    read_exactly(file, points, sizeof(double) * count);
    fclose(file);
    return points;
}

static void dump(const char *path, const double *results, size_t count) {
    FILE *file = open_file(path, "wb");
    fwrite(results, sizeof(double), count, file);
    fclose(file);
    puts("ok");
}

/// -ffast-math makes the start-up code flush denormals; undo that, so that both sides keep them.
static void keep_denormals(void) {
#if defined(__SSE2__)
    unsigned flush_bits = 0x8040, before = _mm_getcsr();
    _mm_setcsr(before & ~flush_bits);
    unsigned after = _mm_getcsr();
    printf(
        "FTZ=%u DAZ=%u (start-up code had set FTZ=%u DAZ=%u)\n",
        after >> 15 & 1, after >> 6 & 1, before >> 15 & 1, before >> 6 & 1
    );
#else
    puts("not an x86 machine: flushing left as it was");
#endif
}

int main(int argc, char **argv) {
    if (argc != 4) { fail("usage: interpreter GRAPH POINTS ROWS"); }
    Graph graph = read_graph(argv[1]);
    int rows = atoi(argv[3]);
    size_t n_inputs = graph.n_inputs;
    double *points = read_points(argv[2], rows * n_inputs);
    // results of a run: targets first, then gradients (or the point reached by `steps`)
    double *results = calloc(rows * (n_inputs + 1), sizeof(double));
    size_t n_results = 0;
    keep_denormals();
    fflush(stdout);

    char line[4096], path[4000];
    int count;
    double rate;
    while (fgets(line, sizeof line, stdin) != NULL) {
        double start = now();
        if (sscanf(line, "scalar %d", &count) == 1 && count <= rows) {
            run_rows(&graph, count, points, results, results + count);
            n_results = count * (n_inputs + 1);
            printf("%.9f\n", now() - start);
        } else if (sscanf(line, "pointer %d", &count) == 1 && count <= rows) {
            run_rows_by_pointer(&graph, count, points, results, results + count);
            n_results = count * (n_inputs + 1);
            printf("%.9f\n", now() - start);
        } else if (sscanf(line, "lanes %d", &count) == 1 && count <= rows) {
            run_rows_in_lanes(&graph, count, points, results, results + count);
            n_results = count * (n_inputs + 1);
            printf("%.9f\n", now() - start);
        } else if (sscanf(line, "steps %d %lf", &count, &rate) == 2) {
            memcpy(results + 1, points, sizeof(double) * n_inputs);
            results[0] = run_steps(&graph, count, rate, results + 1);
            n_results = n_inputs + 1;
            printf("%.9f\n", now() - start);
        } else if (sscanf(line, "dump %3999[^\n]", path) == 1) {
            dump(path, results, n_results);
        } else {
            fail("unknown command");
        }
        fflush(stdout);
    }
    return 0;
}
