#include "wings/mesh/strategy/space/divided.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "base/fail.h"
#include "base/first_derivative.h"
#include "base/operation_refused.h"
#include "strategy/along_line.h"
#include "wings/mesh/strategy/space/attention.h"
#include "wings/mesh/strategy/space/rules.h"

namespace cohort::space {

namespace {

[[noreturn]] void refuse_function(c10::IntArrayRef sizes, const char* place) {
  fail<OperationRefused>("[space] a tensor of ", sizes, " of which this replica has a part ", place,
                         " a torch::autograd::Function, such as remat's; functions of one's own take and give parts, ",
                         "which Replica::halo() and Replica::join() have");
}

// A leaf of autograd's graph that no operation of the graph uses: a gradient that arrives here comes from a node that
// was made around a rule, such as a torch::autograd::Function, which has taken the part for the whole.
torch::Tensor refuse_gradient(const torch::Tensor& gradient) {
  refuse_function(gradient.sizes(), "was given to");
}

class Divided final : public DividedTensor {
 public:
  Divided(torch::Tensor part, Layout layout)
      : DividedTensor(c10::DispatchKeySet(kDividedKey), part.dtype(), part.device()),
        part_(std::move(part)),
        layout_(std::move(layout)) {
    set_sizes_contiguous(layout_.sizes);
  }

  static const Divided* of(const torch::Tensor& tensor) {
    return dynamic_cast<const Divided*>(DividedTensor::of(tensor));
  }

  const torch::Tensor& part() const { return part_; }
  const Layout& layout() const { return layout_; }

  const torch::Tensor& part(const torch::Tensor& self) const override { return part_of(self); }
  torch::Tensor whole(const torch::Tensor& self) const override;
  std::function<torch::Tensor(const torch::Tensor& part)> maker() const override {
    return [layout = layout_](const torch::Tensor& part) { return make_divided(part, layout); };
  }
  std::vector<int64_t> cut_dims() const override { return layout_.cut_dims(); }
  Communicator& line() const override { return *layout_.grid.line; }
  torch::Tensor shared(const torch::Tensor& plain) const override { return space::shared(plain, layout_); }
  torch::Tensor entered(const torch::Tensor& self) const override { return enter_whole(self); }
  torch::Tensor sum(const torch::Tensor& term) const override { return sum_into_parts(term, layout_); }
  torch::Tensor attend(const AttentionArgs& args) const override { return space::attend(args); }

  void release_resources() override {
    part_ = torch::Tensor();
    c10::TensorImpl::release_resources();
  }

 private:
  torch::Tensor part_;
  Layout layout_;
};

const Divided& divided(const torch::Tensor& tensor) {
  const Divided* found = Divided::of(tensor);
  if (found == nullptr) fail<Internal>("[space] a tensor of ", tensor.sizes(), " is not divided");
  return *found;
}

struct LayoutBox final : torch::CustomClassHolder {
  explicit LayoutBox(Layout layout) : layout(std::move(layout)) {}
  Layout layout;
};

torch::Tensor own_part(torch::Tensor tensor, const Layout& layout) {
  for (const int64_t dim : layout.cut_dims()) {
    tensor = tensor.narrow(dim, layout.own(dim).begin, layout.own(dim).size());
  }
  return tensor.contiguous();
}

torch::Tensor all_parts(const torch::Tensor& part, const Layout& layout) {
  // Gathered parts may differ in dimension 0 alone, so they travel as rows of numbers.
  const std::vector<torch::Tensor> parts = layout.grid.line->all_gather(part.detach().reshape({-1}));
  torch::Tensor whole = at::empty(layout.sizes, part.options().requires_grad(false));
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    torch::Tensor place = whole;
    for (const int64_t dim : layout.cut_dims()) {
      const auto axis = static_cast<std::size_t>(layout.axes[static_cast<std::size_t>(dim)]);
      const Range rows = part_of(layout.sizes[static_cast<std::size_t>(dim)], layout.grid.parts[axis],
                                 layout.grid.position_of(static_cast<int>(rank), axis));
      place = place.narrow(dim, rows.begin, rows.size());
    }
    place.copy_(parts[rank].view(layout.sizes_of(static_cast<int>(rank))));
  }
  return whole;
}

// Returns this replica's part of the sum of all replicas' tensors. A piece is one part, with zeros behind smaller ones.
torch::Tensor part_of_sum(const torch::Tensor& term, const Layout& layout) {
  const int64_t dim = layout.cut_dims().front();
  const int64_t size = layout.sizes[static_cast<std::size_t>(dim)], parts = layout.grid.parts[0];
  const int64_t most = (size + parts - 1) / parts;
  torch::Tensor pieces = term.detach().movedim(dim, 0);
  if (size % parts != 0) {
    const torch::Tensor rows = pieces;
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = most * parts;
    pieces = at::zeros(sizes, rows.options());
    for (int64_t part = 0; part < parts; ++part) {
      const Range own = part_of(size, parts, part);
      pieces.narrow(0, part * most, own.size()).copy_(rows.narrow(0, own.begin, own.size()));
    }
  }
  const torch::Tensor sum = layout.grid.line->reduce_scatter(pieces.contiguous(), ReduceOp::kSum);
  return sum.narrow(0, 0, layout.own(dim).size()).movedim(0, dim).contiguous();
}

// All parts from each replica's own. The gradient is the own part of what every replica has, or, where each has a term
// of it, of the sum.
template <bool kOfTerms>
class Gather : public torch::autograd::Function<Gather<kOfTerms>> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& part,
                               const c10::intrusive_ptr<LayoutBox>& box) {
    context->saved_data["layout"] = c10::IValue::make_capsule(box);
    return all_parts(part, box->layout);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[space] ", "the gathering of parts");
    const auto holder = context->saved_data["layout"].toCapsule();
    const Layout& layout = static_cast<const LayoutBox&>(*holder).layout;
    return {kOfTerms ? part_of_sum(gradients[0], layout) : own_part(gradients[0], layout), {}};
  }
};

class SumIntoParts : public torch::autograd::Function<SumIntoParts> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& term,
                               const c10::intrusive_ptr<LayoutBox>& box) {
    context->saved_data["layout"] = c10::IValue::make_capsule(box);
    return part_of_sum(term, box->layout);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    require_first_derivative("[space] ", "a sum in parts");
    const auto holder = context->saved_data["layout"].toCapsule();
    return {all_parts(gradients[0], static_cast<const LayoutBox&>(*holder).layout), {}};
  }
};

torch::Tensor Divided::whole(const torch::Tensor& self) const {
  return Gather<false>::apply(part_of(self), c10::make_intrusive<LayoutBox>(layout_));
}

}  // namespace

int64_t Grid::position_of(int rank, std::size_t axis) const {
  int64_t below = 1;  // the ranks between two positions along the axis
  for (std::size_t i = axis + 1; i < parts.size(); ++i) below *= parts[i];
  return rank / below % parts[axis];
}

int Grid::rank_at(std::size_t axis, int64_t position_there) const {
  int64_t below = 1;
  for (std::size_t i = axis + 1; i < parts.size(); ++i) below *= parts[i];
  return line->rank() + static_cast<int>((position_there - position(axis)) * below);
}

Range Layout::own(int64_t dim) const {
  const int64_t size = sizes[static_cast<std::size_t>(dim)];
  if (!is_cut(dim)) return {0, size};
  const auto axis = static_cast<std::size_t>(axes[static_cast<std::size_t>(dim)]);
  return part_of(size, grid.parts[axis], grid.position(axis));
}

std::vector<int64_t> Layout::local_sizes() const {
  return sizes_of(grid.line->rank());
}

std::vector<int64_t> Layout::sizes_of(int rank) const {
  std::vector<int64_t> local = sizes;
  for (const int64_t dim : cut_dims()) {
    const auto i = static_cast<std::size_t>(dim);
    const auto axis = static_cast<std::size_t>(axes[i]);
    local[i] = part_of(sizes[i], grid.parts[axis], grid.position_of(rank, axis)).size();
  }
  return local;
}

std::vector<int64_t> Layout::cut_dims() const {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < dim(); ++i) {
    if (is_cut(i)) list.push_back(i);
  }
  return list;
}

const Layout& layout_of(const torch::Tensor& tensor) {
  return divided(tensor).layout();
}

// A rule's results are leaves. One that is none came out of a function of one's own, which has hidden its part's graph.
const torch::Tensor& part_of(const torch::Tensor& tensor) {
  if (!tensor.is_leaf()) refuse_function(tensor.sizes(), "came out of");
  return divided(tensor).part();
}

torch::Tensor make_divided(const torch::Tensor& part, Layout layout) {
  if (part.sizes() != c10::IntArrayRef(layout.local_sizes())) {
    fail<Internal>("[space] a part is ", part.sizes(), ", wanted ", c10::IntArrayRef(layout.local_sizes()), " of ",
                   c10::IntArrayRef(layout.sizes));
  }
  torch::Tensor made(c10::make_intrusive<Divided>(part, std::move(layout)));
  refresh(made);
  return made;
}

void refresh(const torch::Tensor& tensor) {
  const bool wanted = divided(tensor).part().requires_grad();
  if (tensor.requires_grad() == wanted) return;
  tensor.getIntrusivePtr()->set_requires_grad(wanted);
  if (wanted) tensor.register_hook(refuse_gradient);
}

torch::Tensor divide(const torch::Tensor& whole, const std::vector<int64_t>& parts, Communicator& line) {
  install_rules();
  Layout layout{.grid = {.line = &line}, .sizes = whole.sizes().vec()};
  for (const int64_t each : parts) {
    layout.axes.push_back(each == 1 ? kWhole : static_cast<int>(layout.grid.parts.size()));
    if (each != 1) layout.grid.parts.push_back(each);
  }
  if (layout.grid.parts.empty()) return whole;  // one part
  const bool learns = torch::GradMode::is_enabled() && whole.requires_grad();
  return make_divided(own_part(learns ? enter_line(whole, line) : whole, layout), layout);
}

torch::Tensor join_parts(const torch::Tensor& part, int64_t dim, Communicator& line) {
  install_rules();
  const auto along = static_cast<std::size_t>(dim);
  Layout layout{.grid = {.line = &line, .parts = {line.size()}}, .sizes = part.sizes().vec(), .axes = {}};
  layout.axes.assign(layout.sizes.size(), kWhole);
  layout.sizes[along] *= line.size();
  layout.axes[along] = 0;
  return make_divided(part, std::move(layout));
}

torch::Tensor enter_whole(const torch::Tensor& tensor) {
  return Gather<true>::apply(part_of(tensor), c10::make_intrusive<LayoutBox>(layout_of(tensor)));
}

torch::Tensor sum_into_parts(const torch::Tensor& term, const Layout& layout) {
  Layout own = layout;
  own.sizes = term.sizes().vec();
  return make_divided(SumIntoParts::apply(term, c10::make_intrusive<LayoutBox>(own)), own);
}

}  // namespace cohort::space
