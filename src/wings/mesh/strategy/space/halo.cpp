#include "wings/mesh/strategy/space/halo.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/first_derivative.h"

namespace cohort::space {

namespace {

constexpr int kForward = 1001;  // tags
constexpr int kBackward = 1002;

class Fetch : public torch::autograd::Function<Fetch> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& part,
                               const c10::intrusive_ptr<RowExchange>& exchange) {
    context->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    const Range own = exchange->own();
    const Range kept = common(own, exchange->need());
    exchange->send(part);
    std::vector<torch::Tensor> pieces;
    const auto add = [&](const torch::Tensor& piece) {
      if (piece.defined()) pieces.push_back(piece);
    };
    add(exchange->receive(part, {exchange->need().begin, own.begin}));
    if (!kept.empty()) add(part.narrow(exchange->dim(), kept.begin - own.begin, kept.size()));
    add(exchange->receive(part, {own.end, exchange->need().end}));
    if (pieces.empty()) return part.narrow(exchange->dim(), 0, 0).clone();
    return pieces.size() == 1 ? pieces.front().clone() : at::cat(pieces, exchange->dim());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[space] ", "rows of other parts");
    const auto holder = context->saved_data["exchange"].toCapsule();
    const auto& exchange = static_cast<const RowExchange&>(*holder);
    const torch::Tensor& gradient = gradients[0];
    const Range own = exchange.own();
    const Range need = exchange.need();
    exchange.send_back(gradient, need.begin, need);
    const Range kept = common(own, need);
    torch::Tensor sum;
    if (kept == own && !kept.empty()) {
      sum = gradient.narrow(exchange.dim(), kept.begin - need.begin, kept.size());
      if (exchange.sends()) sum = sum.clone();
    } else {
      std::vector<int64_t> sizes = gradient.sizes().vec();
      sizes[static_cast<std::size_t>(exchange.dim())] = own.size();
      sum = at::zeros(sizes, gradient.options());
      if (!kept.empty()) {
        sum.narrow(exchange.dim(), kept.begin - own.begin, kept.size())
            .copy_(gradient.narrow(exchange.dim(), kept.begin - need.begin, kept.size()));
      }
    }
    exchange.add_returned(sum);
    return {sum, {}};
  }
};

}  // namespace

RowExchange::RowExchange(const Layout& layout, int64_t dim, const std::vector<Range>& needs)
    : line_(layout.grid.line), dim_(dim), own_(layout.own(dim)) {
  const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
  const int64_t position = layout.grid.position(axis);
  need_ = needs[static_cast<std::size_t>(position)];
  const Transfers messages = transfers(layout.sizes[static_cast<std::size_t>(dim)], needs, position);
  for (const Transfer& each : messages.sends) sends_.push_back({layout.grid.rank_at(axis, each.part), each.rows});
  for (const Transfer& each : messages.receives) receives_.push_back({layout.grid.rank_at(axis, each.part), each.rows});
}

// Nobody waits here for the receiver. Threads copy what they send and go on; to other processes it goes from a copy,
// in another thread. A message that does not arrive ends the receiver's wait for it.
void RowExchange::post(const torch::Tensor& rows, Peer to) const {
  if (line_->name() == "local") return line_->send(rows, to);
  (void)line_->send_async(rows.detach().clone(torch::MemoryFormat::Contiguous), to);
}

void RowExchange::send(const torch::Tensor& part) const {
  for (const Message& to : sends_) {
    post(part.narrow(dim_, to.rows.begin - own_.begin, to.rows.size()), {to.rank, kForward});
  }
}

torch::Tensor RowExchange::take(const torch::Tensor& like, const Message& from, int tag) const {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[static_cast<std::size_t>(dim_)] = from.rows.size();
  torch::Tensor rows = at::empty(sizes, like.options().requires_grad(false));
  line_->recv(rows, {from.rank, tag});
  return rows;
}

torch::Tensor RowExchange::receive(const torch::Tensor& like, const Range& rows) const {
  std::vector<torch::Tensor> pieces;
  for (const Message& from : receives_) {
    if (rows.holds(from.rows)) pieces.push_back(take(like, from, kForward));
  }
  if (pieces.empty()) return {};
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces, dim_);
}

void RowExchange::send_back(const torch::Tensor& gradient, int64_t first, const Range& rows) const {
  for (const Message& to : receives_) {
    if (!rows.holds(to.rows)) continue;
    post(gradient.narrow(dim_, to.rows.begin - first, to.rows.size()), {to.rank, kBackward});
  }
}

void RowExchange::add_returned(const torch::Tensor& sum) const {
  for (const Message& from : sends_) {
    sum.narrow(dim_, from.rows.begin - own_.begin, from.rows.size()).add_(take(sum, from, kBackward));
  }
}

torch::Tensor fetch(const torch::Tensor& part, const Layout& layout, int64_t dim, const std::vector<Range>& needs) {
  const auto exchange = c10::make_intrusive<RowExchange>(layout, dim, needs);
  if (exchange->sends() || exchange->receives()) return Fetch::apply(part, exchange);
  const Range kept = common(exchange->own(), exchange->need());
  if (kept.size() == exchange->own().size()) return part;
  return part.narrow(dim, kept.empty() ? 0 : kept.begin - exchange->own().begin, kept.size());
}

}  // namespace cohort::space
