// core/scalar/loops.cpp -- loops as nodes: how one is recorded, and the bodies of its derivatives.
#include "loops.h"

#include <algorithm>
#include <cmath>

#include "../errors.h"
#include "derive.h"
#include "program.h"
#include "push.h"
#include "terms.h"

namespace tapegrad {
namespace {

using Nodes = std::vector<NodeId>;

void append(Nodes& to, std::span<const NodeId> from) {
    to.insert(to.end(), from.begin(), from.end());
}

/// Those of `nodes` that are marked with anything but `absent`.
Nodes chosen(std::span<const NodeId> nodes, const std::vector<char>& marks) {
    Nodes out;
    for (std::size_t i = 0; i < nodes.size(); ++i)
        if (marks[i] != absent) out.push_back(nodes[i]);
    return out;
}

/// A loop's body as a graph that can grow, its inputs by kind.
struct Body {
    explicit Body(const Loop& loop) {
        const Expanded source = loop.body->expanded();
        const auto take = [&](Nodes& kind, std::uint32_t count) {
            for (; count; --count) kind.push_back(graph.input());
        };
        take(carried, loop.carried);
        take(shared, loop.shared());
        take(stepped, loop.stepped);
        take(tabled, loop.columns());
        const Nodes inputs = in_order({&carried, &shared, &stepped, &tabled});
        Nodes now, operands;
        for (NodeId id = 0; id < source.graph.size(); ++id) {
            operands.clear();
            for (NodeId operand : source.graph.operands(id)) operands.push_back(now[operand]);
            now.push_back(source.graph.op(id) == Op::input
                              ? inputs[source.positions[source.graph.node(id).a]]
                              : graph.copy(source.graph, id, operands));
        }
        for (NodeId id : source.targets) outputs.push_back(now[id]);
    }

    static Nodes in_order(std::initializer_list<const Nodes*> kinds) {
        Nodes out;
        for (const Nodes* kind : kinds) append(out, *kind);
        return out;
    }
    Nodes add_inputs(std::size_t count) {
        Nodes out;
        for (; count; --count) out.push_back(graph.input());
        return out;
    }
    std::shared_ptr<const Program> compile(const Nodes& results, const Nodes& inputs) const {
        return Program::compile(graph, results, {}, false, inputs);
    }

    Graph graph;
    Nodes carried, shared, stepped, tabled, outputs;
};

std::string key_of(const char* kind, const Loop& loop, const LoopPattern& pattern) {
    std::string key = kind;
    for (std::uint32_t number : {loop.carried, loop.stepped, loop.outputs, loop.columns()})
        key += std::to_string(number) + ",";
    for (const auto* marks :
         {&pattern.carried, &pattern.shared, &pattern.stepped, &pattern.outputs}) {
        for (char mark : *marks) key += static_cast<char>('1' + mark);
        key += ';';
    }
    return key;
}

/// The greatest number of rounds whose blocks of equal length make `count`, all levels alike.
std::uint32_t block_length(std::uint32_t count, std::uint32_t limit) {
    double levels = 1;
    while (std::pow(limit, levels) < count) ++levels;
    const double rounds = std::ceil(std::pow(count, 1 / levels) - 1e-9);
    return static_cast<std::uint32_t>(std::ceil(count / std::min<double>(rounds, limit)));
}

/// A block of rounds as a body: position in the table is one more carried value.
std::shared_ptr<const Program> block_body(const Rounds& rounds, std::uint32_t shared,
                                          std::uint32_t steps) {
    Graph graph;
    Nodes inputs;
    const auto take = [&](std::size_t count) {
        Nodes kind;
        for (; count; --count) kind.push_back(graph.input());
        append(inputs, kind);
        return kind;
    };
    LoopOperands operands;
    operands.carried = take(rounds.carried);
    if (rounds.table) operands.start = take(1)[0];
    operands.shared = take(shared);
    operands.stepped = take(std::size_t{steps} * rounds.stepped);
    Nodes results = record_rounds(graph, rounds, steps, operands);
    if (rounds.table)
        results.insert(results.begin() + rounds.carried,
                       graph.binary(Op::add, operands.start, graph.constant(steps)));
    return Program::compile(graph, results, {}, false, inputs);
}

/// Records a loop and returns its results.
Nodes results_of(Graph& graph, const Loop& loop, const LoopOperands& operands) {
    const NodeId header = graph.loop(loop, join(operands));
    Nodes out;
    for (std::uint32_t i = 0; i < loop.results(); ++i) out.push_back(header + 1 + i);
    return out;
}

/// Records blocks of rounds: their carried values, with a table the position in it, their outputs.
Nodes record_blocks(Graph& graph, const Rounds& rounds, std::uint32_t blocks, std::uint32_t steps,
                    LoopOperands operands, std::uint32_t first) {
    const auto shared = static_cast<std::uint32_t>(operands.shared.size());
    if (rounds.table) operands.carried.push_back(operands.start);
    operands.start = no_node;
    Loop loop{blocks,
              static_cast<std::uint32_t>(operands.carried.size()),
              steps * rounds.stepped,
              steps * rounds.outputs,
              block_body(rounds, shared, steps),
              nullptr};
    loop.first_step = first;
    loop.steps = steps;
    return results_of(graph, loop, operands);
}

}  // namespace

LoopOperands split(const Loop& loop, std::span<const NodeId> operands) {
    const auto part = [&](std::size_t from, std::size_t count) {
        const auto piece = operands.subspan(from, count);
        return Nodes(piece.begin(), piece.end());
    };
    const std::uint32_t shared = loop.shared();
    LoopOperands out{part(0, loop.carried), part(loop.carried, shared),
                     part(loop.carried + shared, std::size_t{loop.count} * loop.stepped), no_node};
    if (loop.table) out.start = operands.back();
    return out;
}

std::vector<NodeId> join(const LoopOperands& operands) {
    Nodes out = Body::in_order({&operands.carried, &operands.shared, &operands.stepped});
    if (operands.start != no_node) out.push_back(operands.start);
    return out;
}

std::vector<NodeId> record_rounds(Graph& graph, const Rounds& rounds, std::uint32_t count,
                                  LoopOperands operands, std::uint32_t first) {
    if (count == 0) return operands.carried;
    if (count <= rounds.limit) {
        Loop loop{count, rounds.carried, rounds.stepped, rounds.outputs, rounds.body, rounds.table};
        loop.first_step = first;
        return results_of(graph, loop, operands);
    }
    const std::uint32_t steps = block_length(count, rounds.limit), blocks = count / steps;
    LoopOperands rest = operands;
    const std::ptrdiff_t done = std::ptrdiff_t{blocks} * steps * rounds.stepped;
    operands.stepped.resize(static_cast<std::size_t>(done));
    rest.stepped.erase(rest.stepped.begin(), rest.stepped.begin() + done);
    Nodes outputs = record_blocks(graph, rounds, blocks, steps, operands, first);
    rest.carried.assign(outputs.begin(), outputs.begin() + rounds.carried);
    outputs.erase(outputs.begin(), outputs.begin() + rounds.carried);
    if (rounds.table) {
        rest.start = outputs.front();
        outputs.erase(outputs.begin());
    }
    Nodes results = rest.carried;
    if (const std::uint32_t left = count - blocks * steps) {
        const Nodes last = record_rounds(graph, rounds, left, rest, first + blocks * steps);
        results.assign(last.begin(), last.begin() + rounds.carried);
        append(outputs, std::span(last).subspan(rounds.carried));
    }
    append(results, outputs);
    return results;
}

std::shared_ptr<const Program> close_body(const Graph& graph, std::span<const NodeId> arguments,
                                          std::size_t carried, std::span<const NodeId> outputs,
                                          std::vector<NodeId>& shared) {
    const auto size = static_cast<NodeId>(graph.size());
    const NodeId first =
        arguments.empty() ? size : *std::min_element(arguments.begin(), arguments.end());
    std::vector<char> depends(size, false), live(size, false);
    for (NodeId id : arguments) depends[id] = true;
    for (NodeId id = first; id < size; ++id)
        for (NodeId operand : graph.operands(id))
            if (depends[operand]) depends[id] = true;
    for (NodeId id : outputs) live[id] = true;
    for (NodeId id = size; id-- > first;)
        if (live[id] && depends[id])
            for (NodeId operand : graph.operands(id)) live[operand] = true;
    for (NodeId id = 0; id < size; ++id)
        if (live[id] && !depends[id] && !graph.is_constant(id)) shared.push_back(id);

    Graph body;
    Nodes now(size, no_node), inputs, operands, results;
    const auto take = [&](std::span<const NodeId> nodes, const char* kind) {
        std::size_t place = 0;
        for (NodeId id : nodes) {
            std::string name = std::string(kind) + "[" + std::to_string(place++) + "]";
            if (!*kind) name = graph.op(id) == Op::input ? graph.input_name(graph.node(id).a) : "";
            inputs.push_back(now[id] = body.input(std::move(name)));
        }
    };
    take(arguments.first(carried), "carry");
    take(shared, "");
    take(arguments.subspan(carried), "x");
    for (NodeId id = 0; id < size; ++id) {
        if (!live[id] || now[id] != no_node) continue;
        operands.clear();
        for (NodeId operand : graph.operands(id)) operands.push_back(now[operand]);
        now[id] = body.copy(graph, id, operands);
        body.copy_place(now[id], graph, id);
    }
    for (NodeId id : outputs) results.push_back(now[id]);
    return Program::compile(body, results, {}, false, inputs);
}

NodeId row_of(Graph& graph, const Loop& loop, const LoopOperands& operands, std::uint32_t round) {
    if (!loop.table || round == 0) return operands.start;
    return graph.binary(loop.backward ? Op::sub : Op::add, operands.start, graph.constant(round));
}

Loop storing(const Loop& loop) {
    Loop out = loop;
    out.outputs += loop.carried;
    const auto make = [&]() -> Derived {
        const Body body(loop);
        return {body.compile(
                    Body::in_order({&body.outputs, &body.carried}),
                    Body::in_order({&body.carried, &body.shared, &body.stepped, &body.tabled})),
                {}};
    };
    out.body = loop.body->derived(key_of("store", loop, {}), make).program;
    return out;
}

NodeId twin_of(const Graph& graph, NodeId id) {
    Loop twin = graph.loop_of(id);
    const Derived* stored = twin.body->find_derived(key_of("store", twin, {}));
    if (!stored) return no_node;
    twin.body = stored->program;
    twin.outputs += twin.carried;
    return graph.find_loop(twin, graph.operands(id));
}

namespace {

/// What is left after so many parts is the last one, in which all carried values count: patterns
/// that change with every round would unroll the loop.
constexpr std::size_t most_parts = 8;

/// The mark of rounds that are one loop. Where only some have an adjoint the others have 0 instead,
/// which has to win.
char joined(char a, char b) {
    if (a == b) return a;
    const char most = std::max(a, b);
    return std::min(a, b) == absent ? std::max<char>(most, by_adjoint) : most;
}

void join(std::vector<char>& marks, std::span<const char> others) {
    std::transform(marks.begin(), marks.end(), others.begin(), marks.begin(), joined);
}

/// Cuts the rounds of a derivative where its pattern changes. `marks` are those of `changing` in
/// all rounds; `from_end`: the derivative begins with the last one.
std::vector<LoopPart> parts_of(const Loop& loop, LoopPattern taken,
                               std::vector<char> LoopPattern::* changing,
                               std::span<const char> marks, bool from_end,
                               LoopPart (*make)(const Loop&, const LoopPattern&)) {
    const std::size_t width = loop.count ? marks.size() / loop.count : 0;
    const auto of_round = [&](std::uint32_t k) {
        return marks.subspan((from_end ? loop.count - 1 - k : k) * width, width);
    };
    std::vector<LoopPart> parts;
    for (std::uint32_t done = 0, end = 0; done < loop.count; done = end) {
        const auto now = of_round(end++);
        (taken.*changing).assign(now.begin(), now.end());
        const bool is_last = parts.size() + 1 == most_parts;
        if (is_last) {
            taken.carried.assign(loop.carried, by_adjoint);
            for (; end < loop.count; ++end) join(taken.*changing, of_round(end));
        }
        LoopPart part = make(loop, taken);
        if (!is_last && part.given.carried == taken.carried)
            while (end < loop.count && std::ranges::equal(of_round(end), now)) ++end;
        part.taken = taken;
        part.first = from_end ? loop.count - end : done;
        part.loop.count = end - done;
        part.loop.first_step +=
            loop.steps * (loop.backward ? loop.count - part.first - part.loop.count : part.first);
        taken.carried = part.given.carried;
        parts.push_back(std::move(part));
    }
    return parts;
}

/// How many are marked.
std::uint32_t count(const std::vector<char>& marks) {
    return static_cast<std::uint32_t>(marks.size()) -
           static_cast<std::uint32_t>(std::ranges::count(marks, absent));
}

/// One place for each mark, nodes where it is not `absent`.
Nodes spread(const Nodes& nodes, std::span<const char> marks) {
    Nodes out;
    auto node = nodes.begin();
    for (char mark : marks) out.push_back(mark == absent ? no_node : *node++);
    return out;
}

void give(Derivatives& to, const Nodes& nodes, std::span<const char> marks) {
    append(to.nodes, nodes);
    for (char mark : marks) to.masks.push_back(static_cast<Mask>(mark));
}

/// The next `size` marks.
std::vector<char> next(std::span<const char>& marks, std::size_t size) {
    const auto taken = marks.first(size);
    marks = marks.subspan(size);
    return {taken.begin(), taken.end()};
}

/// The next marks, for those that are marked in `chosen`.
std::vector<char> next_of(std::span<const char>& marks, std::vector<char> chosen) {
    const auto found = next(marks, count(chosen));
    std::size_t k = 0;
    for (char& mark : chosen)
        if (mark != absent) mark = found[k++];
    return chosen;
}

LoopPart pull(const Loop& loop, const LoopPattern& pattern) {
    const auto make = [&]() -> Derived {
        Body body(loop);
        const Nodes by_shared = chosen(body.shared, pattern.shared),
                    by_stepped = chosen(body.stepped, pattern.stepped);
        const Nodes h = body.add_inputs(loop.carried), sums = body.add_inputs(by_shared.size()),
                    g = body.add_inputs(count(pattern.outputs));
        Derivatives given;
        give(given, h, pattern.carried);
        give(given, spread(g, pattern.outputs), pattern.outputs);
        const Nodes wrt = Body::in_order({&body.carried, &by_shared, &by_stepped});
        auto [adjoints, masks] = derive(body.graph, body.outputs, given, wrt);
        for (std::size_t i = 0, k = loop.carried; i < sums.size(); ++i, ++k)
            adjoints[k] =
                masks[k] == absent ? sums[i] : body.graph.binary(Op::add, sums[i], adjoints[k]);
        return {body.compile(adjoints, Body::in_order({&h, &sums, &body.shared, &body.carried,
                                                       &body.stepped, &g, &body.tabled})),
                {masks.begin(), masks.end()}};
    };
    const Derived& body = loop.body->derived(key_of("pull", loop, pattern), make);
    std::span<const char> marks = body.marks;
    LoopPart part;
    part.given.carried = next(marks, loop.carried);
    part.given.shared = next_of(marks, pattern.shared);
    part.given.stepped = next_of(marks, pattern.stepped);
    part.loop = {loop.count,
                 loop.carried + count(pattern.shared),
                 loop.carried + loop.stepped + count(pattern.outputs),
                 count(pattern.stepped),
                 body.program,
                 loop.table,
                 !loop.backward,
                 loop.first_step,
                 loop.steps};
    return part;
}

LoopPart push_round(const Loop& loop, const LoopPattern& pattern) {
    const auto make = [&]() -> Derived {
        Body body(loop);
        const Nodes wrt = Body::in_order({&body.carried, &body.shared, &body.stepped});
        const Nodes t_carried = body.add_inputs(loop.carried),
                    t_shared = body.add_inputs(count(pattern.shared)),
                    t_stepped = body.add_inputs(count(pattern.stepped));
        Derivatives seeds;
        give(seeds, t_carried, pattern.carried);
        give(seeds, spread(t_shared, pattern.shared), pattern.shared);
        give(seeds, spread(t_stepped, pattern.stepped), pattern.stepped);
        const auto [tangents, masks] = push(body.graph, body.outputs, wrt, seeds);
        Nodes results(body.outputs.begin(), body.outputs.begin() + loop.carried);
        append(results, tangents);
        return {body.compile(results,
                             Body::in_order({&body.carried, &t_carried, &body.shared, &t_shared,
                                             &body.stepped, &t_stepped, &body.tabled})),
                {masks.begin(), masks.end()}};
    };
    const Derived& body = loop.body->derived(key_of("push", loop, pattern), make);
    std::span<const char> marks = body.marks;
    LoopPart part;
    part.given.carried = next(marks, loop.carried);
    part.given.outputs = next(marks, loop.outputs);
    part.loop = {loop.count,    2 * loop.carried, loop.stepped + count(pattern.stepped),
                 loop.outputs,  body.program,     loop.table,
                 loop.backward, loop.first_step,  loop.steps};
    return part;
}

}  // namespace

std::vector<LoopPart> pulling(const Loop& loop, const LoopPattern& pattern,
                              std::span<const char> outputs) {
    return parts_of(loop, pattern, &LoopPattern::outputs, outputs, true, &pull);
}

std::vector<LoopPart> pushing(const Loop& loop, const LoopPattern& pattern,
                              std::span<const char> stepped) {
    return parts_of(loop, pattern, &LoopPattern::stepped, stepped, false, &push_round);
}

}  // namespace tapegrad
