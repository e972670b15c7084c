// core/scalar/sparsity.cpp -- patterns by propagation, and greedy colourings.
#include "sparsity.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "loops.h"
#include "program.h"

namespace tapegrad {
namespace {

using Set = std::vector<std::uint32_t>;
using SharedSet = std::shared_ptr<const Set>;

/// Whether a result's derivative by its first or second operand is 0 everywhere, as of a
/// comparison.
bool is_flat(const char* derivative) { return std::strcmp(derivative, "0.0") == 0; }

/// Which results of a program depend on which of its inputs.
Pattern pattern_of(const Program& program) {
    const Expanded source = program.expanded();
    const auto inputs = source.graph.inputs();
    Pattern found = dependence(source.graph, source.targets, inputs);
    for (std::uint32_t& column : found.columns) column = source.positions[column];
    return found;
}

/// Follows the variables through the graph, from the first of them to the last output. A node has
/// the set of those it depends on, shared with an operand where it is the same, and let go after
/// its last use.
class Propagation {
   public:
    Propagation(const Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> wrt)
        : graph_(graph),
          first_(*std::min_element(wrt.begin(), wrt.end())),
          end_(std::max(first_, *std::max_element(outputs.begin(), outputs.end()) + 1)),
          uses_(end_ - first_, 0),
          sets_(end_ - first_),
          seen_(wrt.size(), 0) {
        for (NodeId id : outputs)
            if (within(id)) ++uses_[id - first_];
        for (NodeId id = end_; id-- > first_;)
            if (uses_[id - first_])
                for (NodeId operand : graph.operands(id))
                    if (within(operand)) ++uses_[operand - first_];
    }

    /// Says that a node is a variable, besides what it may depend on.
    void start(NodeId id, std::uint32_t variable) {
        if (!within(id)) return;
        Set set = of(id);
        set.push_back(variable);
        sets_[id - first_] = std::make_shared<const Set>(std::move(set));
    }

    void run() {
        for (NodeId id = first_; id < end_; ++id) {
            if (!uses_[id - first_]) continue;
            if (graph_.op(id) == Op::loop)
                follow_rounds(id);
            else if (graph_.op(id) != Op::projection || graph_.op(graph_.node(id).a) != Op::loop)
                sets_[id - first_] = united(id);
            for (NodeId operand : graph_.operands(id))
                if (within(operand) && --uses_[operand - first_] == 0)
                    sets_[operand - first_].reset();
        }
    }

    const Set& of(NodeId id) const {
        static const Set empty;
        return within(id) && sets_[id - first_] ? *sets_[id - first_] : empty;
    }

   private:
    bool within(NodeId id) const { return id >= first_ && id < end_; }

    SharedSet united(NodeId id) {
        const OpInfo& op = info(graph_.op(id));
        const auto operands = graph_.operands(id);
        parts_.clear();
        if (sets_[id - first_]) parts_.push_back(sets_[id - first_]);
        for (std::size_t i = 0; i < operands.size(); ++i) {
            const bool chooses = graph_.op(id) == Op::where && i == 0;
            const bool flat = chooses || (i == 0 && is_flat(op.da)) || (i == 1 && is_flat(op.db));
            if (flat || !within(operands[i])) continue;
            take(sets_[operands[i] - first_]);
        }
        return joined();
    }

    /// Adds a part to those that joined() unites.
    void take(const SharedSet& part) {
        if (part && (parts_.empty() || parts_.back() != part)) parts_.push_back(part);
    }

    /// Gives every result of a loop its set, round by round.
    void follow_rounds(NodeId id) {
        const Loop& loop = graph_.loop_of(id);
        const Pattern& body = body_pattern(loop.body);
        const LoopOperands in = split(loop, graph_.operands(id));
        const auto sets_of = [&](std::span<const NodeId> nodes) {
            std::vector<SharedSet> sets;
            for (NodeId node : nodes) sets.push_back(within(node) ? sets_[node - first_] : nullptr);
            return sets;
        };
        std::vector<SharedSet> carried = sets_of(in.carried), results;
        const std::vector<SharedSet> shared = sets_of(in.shared), stepped = sets_of(in.stepped);
        std::vector<SharedSet> given;
        for (std::uint32_t round = 0; round < loop.count; ++round) {
            given = carried;
            given.insert(given.end(), shared.begin(), shared.end());
            const auto own = stepped.begin() + std::ptrdiff_t{round} * loop.stepped;
            given.insert(given.end(), own, own + loop.stepped);
            for (std::uint32_t row = 0; row < body.rows(); ++row) {
                parts_.clear();
                for (std::uint32_t place : body.row(row))
                    if (place < given.size()) take(given[place]);  // numbers of a table are behind
                (row < loop.carried ? carried[row] : results.emplace_back()) = joined();
            }
            const bool same = std::equal(carried.begin(), carried.end(), given.begin());
            if (same && !loop.stepped && !loop.outputs) break;  // so it will be in all rounds
        }
        carried.insert(carried.end(), results.begin(), results.end());
        for (NodeId k = 0; k < carried.size() && within(id + 1 + k); ++k) {
            parts_.clear();
            take(sets_[id + 1 + k - first_]);
            take(carried[k]);
            sets_[id + 1 + k - first_] = joined();
        }
    }

    const Pattern& body_pattern(const std::shared_ptr<const Program>& body) {
        const auto [found, is_new] = bodies_.try_emplace(body.get());
        if (is_new) found->second = pattern_of(*body);
        return found->second;
    }

    /// The union of the parts.
    SharedSet joined() {
        if (parts_.empty()) return nullptr;
        const auto largest = std::max_element(
            parts_.begin(), parts_.end(),
            [](const SharedSet& a, const SharedSet& b) { return a->size() < b->size(); });
        std::swap(*parts_.begin(), *largest);
        return merged();
    }

    /// The union of the parts, which is the first of them if the others add nothing.
    SharedSet merged() {
        ++stamp_;
        for (std::uint32_t variable : *parts_[0]) seen_[variable] = stamp_;
        Set added;
        for (std::size_t i = 1; i < parts_.size(); ++i)
            for (std::uint32_t variable : *parts_[i])
                if (seen_[variable] != stamp_) {
                    seen_[variable] = stamp_;
                    added.push_back(variable);
                }
        if (added.empty()) return parts_[0];
        added.insert(added.end(), parts_[0]->begin(), parts_[0]->end());
        std::sort(added.begin(), added.end());
        return std::make_shared<const Set>(std::move(added));
    }

    const Graph& graph_;
    const NodeId first_, end_;
    std::vector<std::uint32_t> uses_;
    std::vector<SharedSet> sets_;
    std::vector<SharedSet> parts_;
    std::unordered_map<const Program*, Pattern> bodies_;
    std::vector<std::uint32_t> seen_;
    std::uint32_t stamp_ = 0;
};

constexpr std::uint32_t uncoloured = 0xffffffff;

/// Columns with many neighbours first: they are the hardest to place.
std::vector<std::uint32_t> by_degree(const Pattern& columns) {
    std::vector<std::uint32_t> order(columns.rows());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return columns.row(a).size() > columns.row(b).size();
    });
    return order;
}

/// The smallest colour that is not forbidden for `column`.
class Palette {
   public:
    explicit Palette(std::size_t columns) : forbidden_for_(columns + 1, uncoloured) {}
    void forbid(std::uint32_t colour, std::uint32_t column) {
        if (colour != uncoloured) forbidden_for_[colour] = column;
    }
    std::uint32_t smallest(std::uint32_t column) const {
        std::uint32_t colour = 0;
        while (forbidden_for_[colour] == column) ++colour;
        return colour;
    }

   private:
    std::vector<std::uint32_t> forbidden_for_;
};

/// The colours of a symmetric matrix so far, of which no path of four columns may have two only.
/// What follows for a column is kept with its neighbours, so that a neighbour of many is not
/// walked around again for each.
class Stars {
   public:
    explicit Stars(const Pattern& pattern)
        : pattern_(pattern),
          colours_(pattern.width, uncoloured),
          around_(pattern.columns.size()),
          barred_(pattern.columns.size()),
          sizes_(pattern.width) {}

    /// Calls forbid(colour) for what a neighbour of `near` must not be.
    template <class Forbid>
    void each_forbidden(std::uint32_t near, Forbid forbid) const {
        const std::uint32_t start = pattern_.starts[near];
        forbid(colours_[near]);
        if (colours_[near] == uncoloured)
            for (std::uint32_t i = 0; i < sizes_[near].around; ++i)
                forbid(around_[start + i].colour);
        else
            for (std::uint32_t i = 0; i < sizes_[near].barred; ++i) forbid(barred_[start + i]);
    }

    void colour(std::uint32_t column, std::uint32_t colour) {
        colours_[column] = colour;
        for (std::uint32_t near : pattern_.row(column)) {
            if (near == column) continue;
            Around& alike = around(near, colour);
            if (++alike.count == 1) alike.first = column;
            if (alike.count == 1 || colours_[near] == uncoloured) continue;
            bar(column, colours_[near]);
            bar(alike.first, colours_[near]);
        }
        for (std::uint32_t near : pattern_.row(column))
            if (near != column && colours_[near] != uncoloured &&
                around(column, colours_[near]).count > 1)
                bar(near, colour);
    }

    std::vector<std::uint32_t> take() { return std::move(colours_); }

   private:
    /// Neighbours of one colour: how many, and the first of them.
    struct Around {
        std::uint32_t colour, count, first;
    };
    struct Sizes {
        std::uint32_t around = 0, barred = 0;
    };

    Around& around(std::uint32_t column, std::uint32_t colour) {
        Around* const begin = around_.data() + pattern_.starts[column];
        Around* const end = begin + sizes_[column].around;
        Around* const found =
            std::find_if(begin, end, [&](const Around& each) { return each.colour == colour; });
        if (found != end) return *found;
        ++sizes_[column].around;
        return *end = {colour, 0, 0};
    }

    /// Says that a path of three begins at a column and ends in its colour: through `colour`.
    void bar(std::uint32_t column, std::uint32_t colour) {
        std::uint32_t* const begin = barred_.data() + pattern_.starts[column];
        std::uint32_t* const end = begin + sizes_[column].barred;
        if (std::find(begin, end, colour) != end) return;
        *end = colour;
        ++sizes_[column].barred;
    }

    const Pattern& pattern_;
    std::vector<std::uint32_t> colours_;
    // Lists of each column, which are no longer than its row of the pattern.
    std::vector<Around> around_;
    std::vector<std::uint32_t> barred_;
    std::vector<Sizes> sizes_;
};

}  // namespace

Pattern Pattern::transposed() const {
    Pattern out;
    out.width = static_cast<std::uint32_t>(rows());
    out.starts.assign(width + 1, 0);
    for (std::uint32_t column : columns) ++out.starts[column + 1];
    std::partial_sum(out.starts.begin(), out.starts.end(), out.starts.begin());
    out.columns.resize(columns.size());
    std::vector<std::uint32_t> next(out.starts.begin(), out.starts.end() - 1);
    for (std::uint32_t i = 0; i < rows(); ++i)
        for (std::uint32_t column : row(i)) out.columns[next[column]++] = i;
    return out;
}

std::size_t Pattern::longest_row() const {
    std::size_t longest = 0;
    for (std::size_t i = 0; i < rows(); ++i) longest = std::max(longest, row(i).size());
    return longest;
}

Pattern Pattern::symmetric() const {
    const Pattern across = transposed();
    Pattern out;
    out.width = width;
    for (std::size_t i = 0; i < rows(); ++i) {
        const auto a = row(i), b = across.row(i);
        std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out.columns));
        out.starts.push_back(static_cast<std::uint32_t>(out.columns.size()));
    }
    return out;
}

Pattern dependence(const Graph& graph, std::span<const NodeId> outputs,
                   std::span<const NodeId> wrt) {
    if (outputs.empty() || wrt.empty()) {
        Pattern none;
        none.width = static_cast<std::uint32_t>(wrt.size());
        none.starts.assign(outputs.size() + 1, 0);
        return none;
    }
    Propagation propagation(graph, outputs, wrt);
    for (std::uint32_t i = 0; i < wrt.size(); ++i) propagation.start(wrt[i], i);
    propagation.run();
    Pattern pattern;
    pattern.width = static_cast<std::uint32_t>(wrt.size());
    for (NodeId id : outputs) {
        const Set& set = propagation.of(id);
        pattern.columns.insert(pattern.columns.end(), set.begin(), set.end());
        pattern.starts.push_back(static_cast<std::uint32_t>(pattern.columns.size()));
    }
    return pattern;
}

std::vector<std::uint32_t> colour_columns(const Pattern& pattern) {
    const Pattern columns = pattern.transposed();
    std::vector<std::uint32_t> colours(pattern.width, uncoloured);
    Palette palette(pattern.width);
    for (std::uint32_t column : by_degree(columns)) {
        for (std::uint32_t row : columns.row(column))
            for (std::uint32_t other : pattern.row(row)) palette.forbid(colours[other], column);
        colours[column] = palette.smallest(column);
    }
    return colours;
}

std::vector<std::uint32_t> colour_symmetric(const Pattern& pattern) {
    Stars stars(pattern);
    Palette palette(pattern.width);
    for (std::uint32_t column : by_degree(pattern)) {
        for (std::uint32_t near : pattern.row(column))
            if (near != column)
                stars.each_forbidden(near,
                                     [&](std::uint32_t colour) { palette.forbid(colour, column); });
        stars.colour(column, palette.smallest(column));
    }
    return stars.take();
}

}  // namespace tapegrad
