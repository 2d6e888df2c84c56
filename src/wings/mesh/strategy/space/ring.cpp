// A block is the keys and values of one part. At step s the replica at position i has the block of position i - s. It
// hands it on to position i + 1 while it computes, and the next block comes from position i - 1. Where a query sees
// nothing behind itself a block goes no further than to the last position. In backward the gradients of a block go the
// same way, a step behind it, and the last one that has the block sends them home.
#include "wings/mesh/strategy/space/ring.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/first_derivative.h"

namespace cohort::space {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::array<Tensor, 2>;  // of keys and of values

constexpr int kBlock = 1011;  // tags
constexpr int kGradient = 1012;
constexpr int64_t kTileRows = 256;  // queries that attend at a time

struct RingBox final : torch::CustomClassHolder {
  explicit RingBox(Ring ring) : ring(std::move(ring)) {}
  Ring ring;
};

// The sizes of all tensors of a part but their steps.
struct Sizes {
  int64_t examples, heads, key, value;
};

// A block's way around the line.
class Way {
 public:
  explicit Way(const Ring& ring)
      : ring_(ring), parts_(ring.keys.size()), ends_early_(ring.causal && ring.queries == ring.keys) {}

  // Returns the number of blocks that come here, the own one included.
  std::size_t steps() const { return ends_early_ ? ring_.position + 1 : parts_; }
  // Returns the block that is here at a step.
  std::size_t block(std::size_t step) const { return (ring_.position + parts_ - step) % parts_; }
  bool goes_on(std::size_t step) const { return ends_early_ ? ring_.position + 1 < parts_ : step + 1 < parts_; }
  // Returns the last position that has the own block.
  std::size_t end() const { return ends_early_ ? parts_ - 1 : (ring_.position + parts_ - 1) % parts_; }
  int next() const { return ring_.ranks[(ring_.position + 1) % parts_]; }
  int previous() const { return ring_.ranks[(ring_.position + parts_ - 1) % parts_]; }
  int rank(std::size_t position) const { return ring_.ranks[position]; }

 private:
  const Ring& ring_;
  std::size_t parts_;
  bool ends_early_;
};

Pair empty_pair(const Ring& ring, std::size_t block, const Sizes& sizes, const at::TensorOptions& options) {
  const int64_t steps = ring.keys[block].size();
  return {at::empty({sizes.examples, sizes.heads, steps, sizes.key}, options),
          at::empty({sizes.examples, sizes.heads, steps, sizes.value}, options)};
}

// Messages that are under way. Tensors without elements are none.
class Messages {
 public:
  explicit Messages(Communicator* line) : line_(line) {}
  void send(const Pair& pair, Peer to) {
    for (const Tensor& each : pair) {
      if (each.numel() > 0) works_.push_back(line_->send_async(kept_.emplace_back(each), to));
    }
  }
  void receive(const Pair& pair, Peer from) {
    for (const Tensor& each : pair) {
      if (each.numel() > 0) works_.push_back(line_->recv_async(each, from));
    }
  }
  void wait() {
    for (const Work<>& each : works_) each.wait();
    works_.clear();
    kept_.clear();
  }

 private:
  Communicator* line_;
  std::vector<Work<>> works_;
  std::vector<Tensor> kept_;
};

torch::ScalarType type_of_sums(const Tensor& x) {
  return x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

// Returns a product in the type of sums. CPUs do not multiply half numbers everywhere.
Tensor product(const Tensor& a, const Tensor& b) {
  const torch::ScalarType type = type_of_sums(a);
  if (a.device().is_cpu()) return at::matmul(a.to(type), b.to(type));
  return at::matmul(a, b.to(a.scalar_type())).to(type);
}

// Some of the own queries, and the keys of a block that they see. Positions are those of the whole.
struct AttentionTile {
  Range queries, keys;

  Tensor rows(const Tensor& own, const Ring& ring) const {
    return own.narrow(2, queries.begin - ring.queries[ring.position].begin, queries.size());
  }
  Tensor columns(const Tensor& block, const Range& all) const {
    return block.narrow(2, keys.begin - all.begin, keys.size());
  }
  // Returns what belongs to the tile of a tensor of the own queries and all keys.
  Tensor of(const Tensor& x, const Ring& ring) const {
    const Tensor own = x.size(2) == 1 ? x : rows(x, ring);
    return own.size(3) == 1 ? own : own.narrow(3, keys.begin, keys.size());
  }
};

std::vector<AttentionTile> tiles_of(const Ring& ring, std::size_t block) {
  const Range own = ring.queries[ring.position];
  std::vector<AttentionTile> tiles;
  for (int64_t begin = own.begin; begin < own.end; begin += kTileRows) {
    AttentionTile tile{.queries = {begin, std::min(begin + kTileRows, own.end)}, .keys = ring.keys[block]};
    if (ring.causal) tile.keys.end = std::min(tile.keys.end, tile.queries.end);
    if (!tile.keys.empty()) tiles.push_back(tile);
  }
  return tiles;
}

// Returns the scores of a tile; the query has been scaled.
Tensor scores_of(const AttentionTile& tile, const Tensor& query, const Tensor& key, const Ring& ring) {
  Tensor scores = product(query, key.transpose(2, 3));
  Tensor hidden;
  const auto hide = [&](const Tensor& more) { hidden = hidden.defined() ? hidden.logical_or(more) : more; };
  for (const Tensor& mask : ring.masks) hide(tile.of(mask, ring).logical_not());
  if (ring.causal && tile.keys.end > tile.queries.begin + 1) {
    const auto options = at::TensorOptions(torch::kLong).device(query.device());
    hide(at::arange(tile.queries.begin, tile.queries.end, options)
             .unsqueeze(1)
             .lt(at::arange(tile.keys.begin, tile.keys.end, options)));
  }
  return hidden.defined() ? scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity()) : scores;
}

// The softmax of the own queries so far: the largest score, the sum of exponentials of the differences from it, and the
// same sum of the values.
struct Sums {
  Tensor largest, total, mixed;

  Sums(const Tensor& query, int64_t size) {
    const auto options = query.options().dtype(type_of_sums(query));
    std::vector<int64_t> sizes = query.sizes().vec();
    sizes[3] = 1;
    largest = at::full(sizes, -std::numeric_limits<double>::infinity(), options);
    total = at::zeros(sizes, options);
    sizes[3] = size;
    mixed = at::zeros(sizes, options);
  }

  void add(const AttentionTile& tile, const Tensor& query, const Pair& block, const Range& keys, const Ring& ring) {
    Tensor scores = scores_of(tile, tile.rows(query, ring), tile.columns(block[0], keys), ring);
    const Tensor before = tile.rows(largest, ring);
    const Tensor now = at::maximum(before, scores.amax({-1}, /*keepdim=*/true));
    const Tensor base = finite(now);
    const Tensor shrinks = before.sub(base).exp_();
    before.copy_(now);
    const Tensor weights = scores.sub_(base).exp_();
    tile.rows(total, ring).mul_(shrinks).add_(weights.sum({-1}, /*keepdim=*/true));
    const Tensor kept = ring.factors.defined() ? weights * tile.of(ring.factors, ring) : weights;
    const Tensor value = tile.columns(block[1], keys);
    tile.rows(mixed, ring).mul_(shrinks).add_(product(kept.to(value.scalar_type()), value));
  }

  // Returns the softmax's mean of the values; zeros for a query that sees no key.
  Tensor result() const { return mixed / total.masked_fill(total.eq(0.0), 1.0); }

  // Returns the logarithms of the sums of exponentials; infinity for a query that sees no key, so that all its weights
  // are zeros in backward.
  Tensor logarithms() const {
    return (finite(largest) + total.log()).masked_fill_(total.eq(0.0), std::numeric_limits<double>::infinity());
  }

 private:
  // A query that has seen nothing yet has a largest score of minus infinity, of which differences would be no numbers.
  static Tensor finite(const Tensor& x) { return x.masked_fill(x.isinf(), 0.0); }
};

// Backward for the own queries; those of the keys and values are added up in `sums`.
struct Gradients {
  const Ring& ring;
  Tensor query;       // scaled
  Tensor logarithms;  // of the softmax
  Tensor gradient;    // of the result
  Tensor products;    // of the gradient and the result
  Tensor of_query;

  void add(const AttentionTile& tile, const Pair& block, const Range& keys, const Pair& sums) const {
    const Tensor own = tile.rows(query, ring);
    const Tensor key = tile.columns(block[0], keys);
    const Tensor value = tile.columns(block[1], keys);
    const Tensor incoming = tile.rows(gradient, ring);
    const Tensor weights = scores_of(tile, own, key, ring).sub_(tile.rows(logarithms, ring)).exp_();
    Tensor of_weights = product(incoming, value.transpose(2, 3));
    Tensor kept = weights;
    if (ring.factors.defined()) {
      const Tensor factors = tile.of(ring.factors, ring);
      kept = weights * factors;
      of_weights = of_weights * factors;
    }
    tile.columns(sums[1], keys).add_(product(kept.to(own.scalar_type()).transpose(2, 3), incoming));
    const Tensor of_scores = of_weights.sub_(tile.rows(products, ring)).mul_(weights).to(own.scalar_type());
    tile.rows(of_query, ring).add_(product(of_scores, key));
    tile.columns(sums[0], keys).add_(product(of_scores.transpose(2, 3), own));
  }
};

class Attend : public torch::autograd::Function<Attend> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& key, const Tensor& value,
                        const c10::intrusive_ptr<RingBox>& box) {
    const Ring& ring = box->ring;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor scaled = query.detach() * ring.scale;
    Sums sums(scaled, value.size(3));
    const Sizes sizes{key.size(0), key.size(1), key.size(3), value.size(3)};
    const Way way(ring);
    Messages messages(ring.line);
    Pair block{key.detach().contiguous(), value.detach().contiguous()};
    for (std::size_t step = 0; step < way.steps(); ++step) {
      Pair coming;
      if (way.goes_on(step)) messages.send(block, {way.next(), kBlock});
      if (step + 1 < way.steps()) {
        coming = empty_pair(ring, way.block(step + 1), sizes, block[0].options());
        messages.receive(coming, {way.previous(), kBlock});
      }
      const std::size_t from = way.block(step);
      for (const AttentionTile& tile : tiles_of(ring, from)) sums.add(tile, scaled, block, ring.keys[from], ring);
      messages.wait();
      block = std::move(coming);
    }
    Tensor mixed = sums.result().to(query.scalar_type());
    context->saved_data["box"] = c10::IValue::make_capsule(box);
    context->save_for_backward({query, key, value, mixed, sums.logarithms()});
    return mixed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_first_derivative("[space] ", "attention in parts");
    const auto box = c10::static_intrusive_pointer_cast<RingBox>(context->saved_data["box"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const Tensor scaled = saved[0] * box->ring.scale;
    const torch::ScalarType type = type_of_sums(scaled);
    const Gradients own{.ring = box->ring,
                        .query = scaled,
                        .logarithms = saved[4],
                        .gradient = gradients[0],
                        .products = (gradients[0].to(type) * saved[3].to(type)).sum({-1}, /*keepdim=*/true),
                        .of_query = at::zeros(scaled.sizes(), scaled.options().dtype(type))};
    const Pair of_block = around(own, {saved[1].contiguous(), saved[2].contiguous()});
    return {own.of_query.mul_(box->ring.scale).to(saved[0].scalar_type()),
            of_block[0].to(saved[1].scalar_type()),
            of_block[1].to(saved[2].scalar_type()),
            {}};
  }

 private:
  // Takes the blocks around, and returns the gradients of the own one.
  static Pair around(const Gradients& own, Pair block) {
    const Ring& ring = own.ring;
    const Sizes sizes{block[0].size(0), block[0].size(1), block[0].size(3), block[1].size(3)};
    const at::TensorOptions options = own.of_query.options();
    const Way way(ring);
    Messages messages(ring.line), homewards(ring.line);
    Pair mine;
    for (std::size_t step = 0; step < way.steps(); ++step) {
      const std::size_t from = way.block(step);
      Pair coming, others;  // the gradients from those who had the block before
      if (step > 0) {
        others = empty_pair(ring, from, sizes, options);
        messages.receive(others, {way.previous(), kGradient});
      }
      if (way.goes_on(step)) messages.send(block, {way.next(), kBlock});
      if (step + 1 < way.steps()) {
        coming = empty_pair(ring, way.block(step + 1), sizes, block[0].options());
        messages.receive(coming, {way.previous(), kBlock});
      }
      Pair sums = empty_pair(ring, from, sizes, options);
      for (Tensor& each : sums) each.zero_();
      for (const AttentionTile& tile : tiles_of(ring, from)) own.add(tile, block, ring.keys[from], sums);
      messages.wait();
      for (std::size_t i = 0; step > 0 && i < sums.size(); ++i) sums[i].add_(others[i]);
      if (way.goes_on(step)) {
        messages.send(sums, {way.next(), kGradient});
      } else if (from == ring.position) {
        mine = sums;
      } else {
        homewards.send(sums, {way.rank(from), kGradient});
      }
      block = std::move(coming);
    }
    if (!mine[0].defined()) {
      mine = empty_pair(ring, ring.position, sizes, options);
      homewards.receive(mine, {way.rank(way.end()), kGradient});
    }
    messages.wait();
    homewards.wait();
    return mine;
  }
};

}  // namespace

torch::Tensor ring_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             const Ring& ring) {
  return Attend::apply(query, key, value, c10::make_intrusive<RingBox>(ring));
}

}  // namespace cohort::space
