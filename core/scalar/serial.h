// core/scalar/serial.h -- programs as bytes: the record that files and pickles carry.
//
// 1. A record holds graph nodes, outputs and derivatives alike, and not the compiled code. Reading
//    compiles them again, in milliseconds. So nothing in a record depends on the instruction set or
//    on how code is encoded; old files profit from new passes; and what has to be checked is
//    little: operands come before their users, operations exist and have as many operands as they
//    take. Lowering sees the same nodes in the same order, so a program that is read gives the same
//    bits as the one that was written.
// 2. Derivatives are written as nodes rather than made again: they stay what they were when the
//    rules change, and whatever a reader allocates is in proportion to the record's length. A
//    request to differentiate k outputs by n variables would be a few bytes for k * n results.
// 3. Operations are named in the record: a table at its start gives each a number, so the order of
//    ops.def may change.
//
//   record   flags (1: float32, 2: one value given as a number, 4: with derivatives, 8: with
//   guards,
//            16: loops with steps), program, then per derivative the input it is by + 1, or 0
//   program  count, names of inputs; count, names of operations; count, programs (bodies of loops);
//            count, nodes; values; derivatives per value; targets; with flag 8: count, guards
//   guard    node, whether its value is other than 0, condition in words, place
//   node     operation, then
//              input     place among the inputs
//              constant  eight bytes, little-endian
//              loop      body, count; with flag 16: carried, operands and results of a round,
//                        backward, table; and what follows
//              sumdot    plain terms; and what follows
//              pooled    number of operands; and what follows
//              others    operands, each as the distance back from the node
//            A node with several results is one of the count; the numbers behind its own are those
//            of its results, and targets and distances count them.
//   table    0 for none, or its number + 1; the first time it is named: columns, count, numbers
//
// Numbers are unsigned, seven bits a byte, lowest first; text is its length and its bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

namespace tapegrad {

/// A program with what its callers have to know of it.
struct Saved {
    std::shared_ptr<const Program> program;
    bool is_float;                        ///< float32
    bool scalar;                          ///< one value, given as a number
    bool with_gradient;                   ///< gives values and derivatives
    std::vector<std::int64_t> wrt_input;  ///< per derivative the input it is by, or -1
};

/// The record of a program.
std::string write_record(const Saved& saved);
/// The program of a record; throws FileError at whatever write_record() cannot have written.
Saved read_record(std::string_view record);

}  // namespace tapegrad
