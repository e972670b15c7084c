// core/scalar/serial.cpp -- writes and reads the records that serial.h describes.
#include "serial.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "../errors.h"

namespace tapegrad {
namespace {

constexpr std::uint64_t flag_float = 1, flag_scalar = 2, flag_gradient = 4, all_flags = 7;

/// Loops in loops: reading a body and running it recurse.
constexpr int max_depth = 16;

std::uint32_t results_of(const Graph& graph, NodeId id) {
    const auto n = static_cast<std::uint32_t>(graph.operands(id).size());
    switch (graph.op(id)) {
        case Op::softmax:
            return n;
        case Op::softmax_vjp:
            return n / 2;
        case Op::loop:
            return graph.loop_of(id).carried;
        default:
            return 0;
    }
}

// ---- writing ----------------------------------------------------------------------------------

class Writer {
   public:
    void number(std::uint64_t value) {
        for (; value >= 128; value >>= 7) out_.push_back(static_cast<char>(value | 128));
        out_.push_back(static_cast<char>(value));
    }
    void text(std::string_view value) {
        number(value.size());
        out_.append(value);
    }
    void real(double value) {
        auto bits = std::bit_cast<std::uint64_t>(value);
        for (int i = 0; i < 8; ++i, bits >>= 8) out_.push_back(static_cast<char>(bits));
    }
    void program(const Program& program, int depth);
    std::string take() { return std::move(out_); }

   private:
    void operations(const Graph& graph);
    void bodies(const Graph& graph, int depth);
    void node(const Expanded& nodes, NodeId id);

    std::string out_;
    std::uint32_t op_number_[op_count] = {};
    std::unordered_map<const Program*, std::uint32_t> body_number_;
};

void Writer::operations(const Graph& graph) {
    bool used[op_count] = {};
    for (NodeId id = 0; id < graph.size(); ++id) used[static_cast<int>(graph.op(id))] = true;
    used[static_cast<int>(Op::projection)] = false;
    number(static_cast<std::uint64_t>(std::count(used, used + op_count, true)));
    std::uint32_t next = 0;
    for (int op = 0; op < op_count; ++op) {
        if (!used[op]) continue;
        op_number_[op] = next++;
        text(info(static_cast<Op>(op)).name);
    }
}

void Writer::bodies(const Graph& graph, int depth) {
    std::vector<const Program*> found;
    for (NodeId id = 0; id < graph.size(); ++id) {
        if (graph.op(id) != Op::loop) continue;
        const Program* body = graph.loop_of(id).body.get();
        const auto next = static_cast<std::uint32_t>(found.size());
        if (body_number_.try_emplace(body, next).second) found.push_back(body);
    }
    if (!found.empty() && depth == max_depth)
        throw FileError("save: loops are nested deeper than 16; unroll some of them");
    number(found.size());
    for (const Program* body : found) {
        Writer inner;
        inner.program(*body, depth + 1);
        out_ += inner.take();
    }
}

void Writer::node(const Expanded& nodes, NodeId id) {
    const Graph& graph = nodes.graph;
    const Op op = graph.op(id);
    if (op == Op::projection) return;
    number(op_number_[static_cast<int>(op)]);
    if (op == Op::input) return number(nodes.positions[graph.node(id).a]);
    if (op == Op::constant) return real(graph.constant_value(id));
    if (op == Op::loop) {
        const Loop& loop = graph.loop_of(id);
        number(body_number_.at(loop.body.get()));
        number(loop.count);
    }
    if (op == Op::sumdot) number(graph.node(id).b);
    if (is_pooled(op)) number(graph.operands(id).size());
    for (NodeId operand : graph.operands(id)) number(id - operand);
}

void Writer::program(const Program& program, int depth) {
    const Expanded nodes = program.expanded();
    const Graph& graph = nodes.graph;
    number(program.input_names().size());
    for (const std::string& name : program.input_names()) text(name);
    operations(graph);
    bodies(graph, depth);
    std::uint64_t count = 0;
    for (NodeId id = 0; id < graph.size(); ++id) count += graph.op(id) != Op::projection;
    number(count);
    for (NodeId id = 0; id < graph.size(); ++id) node(nodes, id);
    number(program.values());
    number(program.derivatives());
    for (NodeId target : nodes.targets) number(target);
}

// ---- reading ----------------------------------------------------------------------------------

[[noreturn]] void damaged(const std::string& what) {
    throw FileError("load: the program is damaged: " + what + "; save it again");
}

class Reader {
   public:
    explicit Reader(std::string_view record) : left_(record) {}

    /// A number below `limit`.
    std::uint64_t number(std::uint64_t limit, const char* what) {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const std::uint8_t byte = take(1)[0];
            value |= std::uint64_t{byte & 127u} << shift;
            if (byte < 128) {
                if (value < limit) return value;
                break;
            }
        }
        damaged(std::string("expected ") + what + " below " + std::to_string(limit));
    }
    std::uint32_t index(std::size_t limit, const char* what) {
        return static_cast<std::uint32_t>(number(std::min<std::uint64_t>(limit, no_node), what));
    }
    /// How many items follow: each takes a byte or more.
    std::uint32_t count(const char* what) { return index(left_.size() + 1, what); }

    std::string text() {
        const std::uint32_t size = count("a length of text");
        const std::uint8_t* bytes = take(size);
        return {reinterpret_cast<const char*>(bytes), size};
    }
    double real() {
        const std::uint8_t* bytes = take(8);
        std::uint64_t bits = 0;
        for (int i = 8; i-- > 0;) bits = bits << 8 | bytes[i];
        return std::bit_cast<double>(bits);
    }
    std::size_t left() const { return left_.size(); }

   private:
    const std::uint8_t* take(std::size_t size) {
        if (size > left_.size()) damaged("it ends too early");
        const char* from = left_.data();
        left_.remove_prefix(size);
        return reinterpret_cast<const std::uint8_t*>(from);
    }

    std::string_view left_;
};

/// Text of unknown origin for a message.
std::string shown(std::string_view text) {
    std::string out(text.substr(0, 40));
    std::replace_if(out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return out;
}

Op op_named(const std::string& name) {
    for (int op = 0; op < op_count; ++op)
        if (info(static_cast<Op>(op)).name == name && static_cast<Op>(op) != Op::projection)
            return static_cast<Op>(op);
    throw FileError("load: no operation '" + shown(name) +
                    "' here; the program was saved by a newer tapegrad, install that");
}

/// Reads one program and, through others of its kind, the bodies of its loops.
class ProgramReader {
   public:
    ProgramReader(Reader& in, int depth) : in_(in), depth_(depth) {}

    std::shared_ptr<const Program> read() {
        names_.resize(in_.count("inputs"));
        for (std::string& name : names_) name = in_.text();
        inputs_.assign(names_.size(), no_node);
        ops_.resize(in_.count("operations"));
        for (Op& op : ops_) op = op_named(in_.text());
        bodies_.resize(in_.count("loop bodies"));
        if (!bodies_.empty() && depth_ == max_depth) damaged("loops are nested deeper than 16");
        for (auto& body : bodies_) body = ProgramReader(in_, depth_ + 1).read();
        for (std::uint32_t count = in_.count("nodes"); count; --count) node();
        for (std::size_t i = 0; i < names_.size(); ++i)  // those that nothing depends on
            if (inputs_[i] == no_node) inputs_[i] = graph_.input(names_[i]);
        return targets();
    }

   private:
    void node() {
        const Op op = ops_[in_.index(ops_.size(), "an operation's number")];
        switch (op) {
            case Op::input:
                return push(input());
            case Op::constant:
                return push(graph_.constant(in_.real()));
            default:
                break;
        }
        if (is_pooled(op)) return pooled(op);
        operands(static_cast<std::uint32_t>(info(op).arity));
        const auto& x = operands_;
        if (op == Op::where)
            push(graph_.where(x[0], x[1], x[2]));
        else
            push(x.size() == 1 ? graph_.unary(op, x[0]) : graph_.binary(op, x[0], x[1]));
    }

    NodeId input() {
        const std::uint32_t place = in_.index(names_.size(), "an input's place");
        if (inputs_[place] != no_node) damaged("an input stands for two nodes");
        return inputs_[place] = graph_.input(names_[place]);
    }

    void pooled(Op op) {
        std::uint32_t body = 0, rounds = 0, plain = 0;
        if (op == Op::loop) {
            body = in_.index(bodies_.size(), "a loop's body");
            rounds = in_.index(no_node, "a loop's rounds");
        }
        if (op == Op::sumdot) plain = in_.index(Graph::max_arity, "plain terms");
        const std::uint32_t n = in_.count("operands");
        if (n == 0 || n > Graph::max_arity) damaged("an operation has no or too many operands");
        if (op == Op::sumdot && plain > n) damaged("a sum has fewer operands than terms");
        const bool paired = op == Op::dot || op == Op::sumdot || op == Op::softmax_vjp;
        if (paired && (n - plain) % 2) damaged("a pair has one operand");
        operands(n);
        switch (op) {
            case Op::softmax:
                return push_all(graph_.multi(op, operands_, n));
            case Op::softmax_vjp:
                check_softmax(n / 2);
                return push_all(graph_.multi(op, operands_, n / 2));
            case Op::loop:
                return loop(bodies_[body], rounds);
            default:
                return push(graph_.nary(op, operands_, plain));
        }
    }

    void loop(const std::shared_ptr<const Program>& body, std::uint32_t rounds) {
        const Code& code = body->code();
        if (code.input_count != operands_.size() || code.output_count > operands_.size() ||
            body->derivatives())
            damaged("a loop and its body do not fit");
        push_all(graph_.loop({rounds, code.output_count, body}, operands_));
    }

    /// The executors take the first half of softmax_vjp's operands for all results of one softmax.
    void check_softmax(std::uint32_t n) {
        const Node& first = graph_.node(operands_[0]);
        bool right = first.op() == Op::projection && graph_.op(first.a) == Op::softmax &&
                     graph_.operands(first.a).size() == n;
        for (std::uint32_t i = 0; i < n; ++i) right = right && operands_[i] == first.a + 1 + i;
        if (!right) damaged("a softmax_vjp does not start with the results of a softmax");
    }

    void operands(std::uint32_t n) {
        operands_.clear();
        for (; n; --n) {
            const std::uint32_t back = in_.index(now_.size() + 1, "a distance to an operand");
            if (back == 0) damaged("a node is its own operand");
            operands_.push_back(value(static_cast<std::uint32_t>(now_.size()) - back));
        }
    }

    /// The graph's node for one of the record; a node with several results is no value itself.
    NodeId value(std::uint32_t id) const {
        if (has_projections(graph_.op(now_[id]))) damaged("several results are taken for one");
        return now_[id];
    }

    void push(NodeId id) { now_.push_back(id); }
    void push_all(NodeId header) {
        for (std::uint32_t i = 0, n = results_of(graph_, header); i <= n; ++i) push(header + i);
    }

    std::shared_ptr<const Program> targets() {
        const std::uint64_t values = in_.count("values"), each = in_.count("derivatives");
        if (values == 0) damaged("it has no outputs");
        if (each + 1 > in_.left() / values) damaged("it ends too early");
        std::vector<NodeId> ids(values * (each + 1));
        for (NodeId& id : ids) id = value(in_.index(now_.size(), "an output's node"));
        return Program::restore(graph_, ids, static_cast<std::uint32_t>(values),
                                static_cast<std::uint32_t>(each), inputs_);
    }

    Reader& in_;
    int depth_;
    Graph graph_;
    std::vector<NodeId> now_;  ///< per node of the record, results of their own included
    std::vector<NodeId> inputs_, operands_;
    std::vector<std::string> names_;
    std::vector<Op> ops_;
    std::vector<std::shared_ptr<const Program>> bodies_;
};

}  // namespace

std::string write_record(const Saved& saved) {
    Writer out;
    out.number((saved.is_float ? flag_float : 0) | (saved.scalar ? flag_scalar : 0) |
               (saved.with_gradient ? flag_gradient : 0));
    out.program(*saved.program, 0);
    for (std::int64_t input : saved.wrt_input) out.number(static_cast<std::uint64_t>(input + 1));
    return out.take();
}

Saved read_record(std::string_view record) {
    Reader in(record);
    const std::uint64_t flags = in.number(all_flags + 1, "flags");
    Saved saved{ProgramReader(in, 0).read(),
                (flags & flag_float) != 0,
                (flags & flag_scalar) != 0,
                (flags & flag_gradient) != 0,
                {}};
    const Program& program = *saved.program;
    if (saved.scalar && program.values() != 1) damaged("several outputs are given as one number");
    if (!saved.with_gradient && program.derivatives()) damaged("derivatives are not announced");
    for (std::uint32_t i = 0; i < program.derivatives(); ++i)
        saved.wrt_input.push_back(
            std::int64_t{in.index(program.input_names().size() + 1, "an input's number")} - 1);
    if (in.left()) damaged("something follows its end");
    return saved;
}

}  // namespace tapegrad
