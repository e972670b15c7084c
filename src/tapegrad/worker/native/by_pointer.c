// The interpreter without the copy of each operation that the published code makes.
#include "interpreter.h"

#define FETCH(op, graph, index) const Operation *op = &(graph)->ops[index]
#define run_rows run_rows_by_pointer
#define run_steps run_steps_by_pointer
#include "interpreter.c"
