// The two ways: keys and values go around (ring.h), or each replica gets all positions of some heads, and gives back
// its own positions of all heads (S. A. Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509).
#include "wings/mesh/strategy/space/attention.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/first_derivative.h"
#include "base/libtorch_compat.h"
#include "base/operation_refused.h"
#include "cohort/parallel/mesh_strategy.h"
#include "cohort/replica.h"
#include "strategy/core.h"
#include "strategy/saved_communicator.h"
#include "wings/mesh/strategy/mesh_plan.h"
#include "wings/mesh/strategy/space/divided.h"
#include "wings/mesh/strategy/space/ring.h"

namespace cohort::space {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kHeads = 1;  // dimensions
constexpr int64_t kSteps = 2;

bool is_cut_along_steps(const Tensor& x) {
  return is_divided(x) && layout_of(x).cut_dims() == std::vector<int64_t>{kSteps};
}

// Fails because attention in parts does not take such arguments.
template <typename... Parts>
[[noreturn]] void refuse(const AttentionArgs& args, const Parts&... parts) {
  fail<OperationRefused>("[space] ", args.who, ": ", parts...);
}

const Grid& require_query(const AttentionArgs& args) {
  const Layout& layout = layout_of(args.query);
  if (is_cut_along_steps(args.query) && layout.grid.parts.size() == 1) return layout.grid;
  refuse(args, "the queries are ", args.query.sizes(), " [examples, heads, steps, size], cut ", "along ",
         layout.cut_dims().size() == 1 ? "dimension " : "dimensions ", c10::Join(", ", layout.cut_dims()),
         "; attention in parts wants them cut along dimension ", kSteps, " alone, on an axis that cuts nothing else");
}

// Exchanges [examples, heads, own steps, size] and [examples, own heads, steps, size].
template <bool kToHeads>
class Swap : public torch::autograd::Function<Swap<kToHeads>> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t line, int64_t steps) {
    context->saved_data["line"] = line;
    context->saved_data["steps"] = steps;
    return swapped(x.detach(), to_communicator(line), steps);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative("[space] ", "attention in parts");
    return {Swap<!kToHeads>::swapped(gradients[0], to_communicator(context->saved_data["line"]),
                                     context->saved_data["steps"].toInt()),
            {},
            {}};
  }

  // Messages may differ in dimension 0 alone, which is that of the steps.
  static Tensor swapped(const Tensor& x, Communicator& line, int64_t steps) {
    const Tensor by_steps = x.permute({kSteps, 0, kHeads, 3});
    constexpr int64_t kHeadsThere = 2;
    const int64_t heads = x.size(kHeads) / line.size();
    std::vector<Tensor> parts;
    for (int rank = 0; rank < line.size(); ++rank) {
      const Range rows = part_of(steps, line.size(), rank);
      parts.push_back(
          (kToHeads ? by_steps.narrow(kHeadsThere, rank * heads, heads) : by_steps.narrow(0, rows.begin, rows.size()))
              .contiguous());
    }
    return at::cat(line.all_to_all(parts), kToHeads ? 0 : kHeadsThere).permute({1, 2, 0, 3}).contiguous();
  }
};

// Returns the factors with which weights are dropped, as one device draws them: for all heads and positions.
Tensor draw_factors(const AttentionArgs& args) {
  const Tensor part = part_of(args.query);
  Replica& replica = *Replica::current();
  const Tensor kept =
      at::empty({args.query.size(0), args.query.size(kHeads), args.query.size(kSteps), args.key.size(kSteps)},
                part.options().requires_grad(false));
  replica.device().type() == kept.device().type() ? kept.bernoulli_(1.0 - args.dropout, replica.generator())
                                                  : kept.bernoulli_(1.0 - args.dropout);
  return kept.mul_(1.0 / (1.0 - args.dropout));
}

Tensor attend_by_heads(const AttentionArgs& args, const Grid& grid) {
  Communicator& line = *grid.line;
  const int64_t heads = args.query.size(kHeads);
  const int64_t parts = line.size();
  if (heads % parts != 0) {
    std::vector<int64_t> fits;
    for (int64_t size = 1; size <= heads; ++size) {
      if (heads % size == 0) fits.push_back(size);
    }
    fail<InvalidArgument>("[space] ", args.who, ": the queries ", args.query.sizes(), " have ", heads,
                          " heads, dimension 1, which ", parts,
                          " replicas do not divide (SequenceAttention::kUlysses); ", c10::Join(", ", fits),
                          " replicas would, or SequenceAttention::kRing");
  }
  const int64_t own = heads / parts;
  const auto own_heads = [&](const Tensor& x) {
    return x.size(kHeads) == 1 ? x : x.narrow(kHeads, line.rank() * own, own);
  };
  const auto swap = [&](const Tensor& x) { return Swap<true>::apply(part_of(x), to_number(line), x.size(kSteps)); };
  Ring ring{.queries = {{0, args.query.size(kSteps)}},
            .keys = {{0, args.key.size(kSteps)}},
            .scale = args.scale,
            .causal = args.causal};
  for (const Tensor& mask : args.masks) ring.masks.push_back(own_heads(whole_of(mask)));
  if (args.dropout > 0.0) ring.factors = own_heads(draw_factors(args));
  const Tensor mixed = ring_attention(swap(args.query), swap(args.key), swap(args.value), ring);
  return Swap<false>::apply(mixed, to_number(line), args.query.size(kSteps));
}

Tensor attend_in_ring(const AttentionArgs& args, const Grid& grid) {
  const Layout& layout = layout_of(args.query);
  const int64_t parts = grid.parts.front();
  if (args.dropout > 0.0) {
    refuse(args, "dropout of weights draws a number for each pair of positions, which no replica ", "of a ring of ",
           parts, " has (SequenceAttention::kRing); a dropout of 0, or ", "SequenceAttention::kUlysses, would fit");
  }
  Ring ring{.line = grid.line,
            .ranks = {},
            .position = static_cast<std::size_t>(grid.position(0)),
            .scale = args.scale,
            .causal = args.causal};
  for (int64_t part = 0; part < parts; ++part) {
    ring.ranks.push_back(grid.rank_at(0, part));
    ring.queries.push_back(part_of(args.query.size(kSteps), parts, part));
    ring.keys.push_back(part_of(args.key.size(kSteps), parts, part));
  }
  const Range own = layout.own(kSteps);
  for (const Tensor& mask : args.masks) {
    if (is_cut_along_steps(mask)) {
      ring.masks.push_back(part_of(mask));
    } else {
      const Tensor whole = whole_of(mask);
      ring.masks.push_back(whole.size(kSteps) == 1 ? whole : whole.narrow(kSteps, own.begin, own.size()));
    }
  }
  return ring_attention(part_of(args.query), part_of(args.key), part_of(args.value), ring);
}

}  // namespace

torch::Tensor attend(const AttentionArgs& given) {
  AttentionArgs args = given;
  const Grid grid = require_query(args);
  for (const Tensor& mask : args.masks) {
    if (mask.scalar_type() == torch::kBool && mask.dim() == 4) continue;
    refuse(args, "a mask is ", mask.scalar_type(), " ", mask.sizes(),
           ", which cannot be cut with the positions; wanted one of bool that says what is seen, ",
           "[examples or 1, heads or 1, queries or 1, keys or 1]");
  }
  if (const auto half = compat::Autocast::in_force(args.query.device().type())) {
    for (Tensor* each : {&args.query, &args.key, &args.value}) *each = each->to(*half);
  }
  for (Tensor* each : {&args.key, &args.value}) {
    if (!is_cut_along_steps(*each)) *each = divide(whole_of(*each), {1, 1, grid.parts.front(), 1}, *grid.line);
  }
  const MeshExtras& extras = Access::core(*Replica::current()).plan().extras.of<MeshExtras>();
  const bool by_heads = extras.attention == SequenceAttention::kUlysses;
  const Tensor mixed = by_heads ? attend_by_heads(args, grid) : attend_in_ring(args, grid);
  Layout layout = layout_of(args.query);
  layout.sizes[3] = args.value.size(3);
  return make_divided(mixed, layout);
}

}  // namespace cohort::space
