// One call of the rule for each run of parameters that are treated alike. Where kernels reach a device's memory they
// take pointers into the flat tensors of values, sums and slots, and to the numbers that the device has of clipping and
// of the loss scale. A tensor that ends before its kernel runs has given its memory to later work of the same stream.
#include "step/update/tensors.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "base/slices.h"
#include "device/backend.h"
#include "ops/flush_denormals.h"
#include "ops/kernels/kernels.h"
#include "step/update/halves.h"
#include "step/update/slots.h"

namespace cohort {

namespace {

// Returns the norm of all sums, of which it may be known already.
torch::Tensor norm_of_all(const std::vector<torch::Tensor>& sums, const TensorUpdate::Norms& known) {
  if (known.all.defined()) return known.all.sqrt();
  if (known.squares.defined()) return known.squares.sum().sqrt();
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& flat : sums) norms.push_back(flat.norm(2, torch::kDouble));
  return norms.size() == 1 ? norms.front() : at::stack(norms).norm();
}

// Returns those of which an update has numbers: each of the parameters' once. Kernels of layers take both.
std::vector<Treatment> treatments_of(const FlatParameters& flat, const UpdateRule& rule) {
  if (rule.needs_norms()) return {{.decay = false}, {.decay = true}};
  std::vector<Treatment> all;
  for (const FlatParameter& parameter : flat.parameters()) {
    if (std::find(all.begin(), all.end(), parameter.treatment) == all.end()) all.push_back(parameter.treatment);
  }
  return all;
}

}  // namespace

TensorUpdate::TensorUpdate(const FlatParameters& flat, const Optimizer& rule, std::vector<torch::Tensor> values)
    : flat_(flat), rule_(rule), values_(std::move(values)), slots_(make_slots(flat, rule, 0)) {
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (torch::Tensor& slot : slots_[g]) slot = slot.to(values_[g].device());
    std::unique_ptr<LayerTables>& layers = layers_.emplace_back();
    if (!LayerTables::serve(rule.rule(), values_[g].scalar_type(), values_[g].device())) continue;
    std::vector<LayerTables::Place> places;
    for (const std::size_t p : flat.groups()[g].members) {
      const FlatParameter& parameter = flat.parameters()[p];
      places.push_back({.begin = parameter.offset,
                        .size = parameter.size,
                        .treatment = parameter.treatment,
                        .shape = parameter.shape,
                        .is_taken = rule.rule().takes_layer(parameter.shape, parameter.strides)});
    }
    layers = std::make_unique<LayerTables>(rule.rule(), std::move(places), values_[g].device());
  }
  treatments_ = treatments_of(flat, rule.rule());
  find_layers();
}

void TensorUpdate::set_parts(CutOf cut_of) {
  cut_of_ = std::move(cut_of);
  find_layers();
}

// The means of a parameter that is cut are not made by kernels.
void TensorUpdate::find_layers() {
  is_layer_.clear();
  for (std::size_t p = 0; p < flat_.parameters().size(); ++p) {
    const FlatParameter& place = flat_.parameters()[p];
    const LayerTables* const layers = layers_[place.group].get();
    const bool is_taken = layers != nullptr && place.size > 0 && layers->takes(place.offset);
    is_layer_.push_back(is_taken && (!rule_.rule().takes_whole() || !cut_of_ || cut_of_(p).add_up == nullptr));
  }
}

void TensorUpdate::copy_slots(const TensorUpdate& other) {
  const torch::NoGradGuard no_grad;
  for (std::size_t g = 0; g < slots_.size(); ++g) {
    for (std::size_t s = 0; s < slots_[g].size(); ++s) slots_[g][s].copy_(other.slots_[g][s]);
  }
}

Verdict TensorUpdate::update(const std::vector<torch::Tensor>& sums, StepContext context, const SquaredNorms& norms,
                             const torch::Tensor& numbers) {
  const FlushDenormals flush;
  const GradientOptions& gradient = rule_.gradient();
  Norms known;
  if (norms && needs_norm(gradient)) known = norms(sums);
  DeviceScaling scaling{.numbers = numbers};
  if (gradient.global_clipnorm > 0.0 || gradient.loss_scale) {
    scaling = scaling_by_norm(norm_of_all(sums, known), gradient, context, numbers);
    if (scaling.verdict.is_left_out()) return scaling.verdict;
  }
  for (std::size_t g = 0; g < sums.size(); ++g) {
    update_runs(flat_.groups()[g].members, sums[g], context, scaling, known.squares);
  }
  return scaling.verdict;
}

std::vector<double> TensorUpdate::numbers(const StepContext& context) const {
  std::vector<double> all;
  for (const Treatment treatment : treatments_) {
    const std::vector<double> own = rule_.rule().numbers(treatment, context);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

torch::Tensor TensorUpdate::numbers_of(const torch::Tensor& numbers, std::size_t parameter) const {
  const auto count = static_cast<int64_t>(treatments_.size());
  const auto found = std::find(treatments_.begin(), treatments_.end(), flat_.parameters()[parameter].treatment);
  const int64_t size = numbers.numel() / count;
  return numbers.narrow(0, (found - treatments_.begin()) * size, size);
}

bool TensorUpdate::needs_all() const {
  return rule_.gradient().global_clipnorm > 0.0 || rule_.gradient().loss_scale.has_value();
}

void TensorUpdate::update_some(const std::vector<torch::Tensor>& sums, std::span<const std::size_t> parameters,
                               const StepContext& context) {
  const FlushDenormals flush;
  for (std::size_t first = 0; first < parameters.size();) {
    const std::size_t group = flat_.parameters()[parameters[first]].group;
    std::size_t last = first;
    while (last < parameters.size() && flat_.parameters()[parameters[last]].group == group) ++last;
    update_runs(parameters.subspan(first, last - first), sums[group], context, {}, {});
    first = last;
  }
}

// Runs of neighbouring parameters that are treated alike go in one call; those of which kernels make norms may be
// treated differently.
void TensorUpdate::update_runs(std::span<const std::size_t> parameters, const torch::Tensor& sums,
                               const StepContext& context, const DeviceScaling& scaling, const torch::Tensor& squares) {
  const bool one_by_one = rule_.rule().one_by_one();
  const bool alone = rule_.gradient().clipnorm > 0.0;
  const auto joins = [&](std::size_t before, std::size_t next) {
    const FlatParameter& a = flat_.parameters()[before];
    const FlatParameter& b = flat_.parameters()[next];
    const bool alike = one_by_one ? is_layer_[before] && is_layer_[next] : a.treatment == b.treatment;
    return !alone && alike && a.offset + aligned_slice(a.size) == b.offset;
  };
  for (std::size_t first = 0; first < parameters.size();) {
    std::size_t last = first + 1;
    while (last < parameters.size() && joins(parameters[last - 1], parameters[last])) ++last;
    const std::size_t group = flat_.parameters()[parameters[first]].group;
    update_members(group, parameters[first], parameters[last - 1], sums, context, scaling, squares);
    first = last;
  }
}

void TensorUpdate::update_members(std::size_t group, std::size_t first, std::size_t last, const torch::Tensor& sums,
                                  StepContext context, DeviceScaling scaling, const torch::Tensor& squares) {
  const LayerTables* const layers = is_layer_[first] ? layers_[group].get() : nullptr;
  if (cut_of_ && rule_.rule().one_by_one() && layers == nullptr) {
    const Cut cut = cut_of_(first);
    context.add_up = cut.add_up;
    context.cut_dim = cut.dim;
    context.parts = cut.parts;
  }
  const int64_t begin = flat_.parameters()[first].offset;
  const int64_t end = flat_.parameters()[last].offset + flat_.parameters()[last].size;
  // A rule that takes whole parameters gets them in their shapes, others get runs of elements.
  const auto part = [&](const torch::Tensor& flat) {
    return rule_.rule().takes_whole() && layers == nullptr ? flat_.part_of(flat, first) : flat.slice(0, begin, end);
  };
  UpdateRun run{.values = part(values_[group]),
                .gradient = part(sums),
                .slots = {},
                .treatment = flat_.parameters()[first].treatment};
  for (const torch::Tensor& slot : slots_[group]) run.slots.push_back(part(slot));
  if (layers != nullptr) {
    run.layers = layers->layers(begin, end);
    run.tables = layers->memory();
    run.own = layers->own();
    if (cut_of_) run.join = [this, group, range = layers->between(begin, end)] { join_norms(group, range); };
  }
  if (rule_.gradient().clipnorm > 0.0) {
    const torch::Tensor norm = squares.defined() ? squares.select(0, static_cast<int64_t>(first)).sqrt()
                                                 : run.gradient.norm(2, torch::kDouble);
    scaling.factor = clip_factor(norm, rule_.gradient().clipnorm, context, scaling.numbers);
  }
  if (scaling.numbers.defined() && !rule_.rule().needs_norms()) scaling.numbers = numbers_of(scaling.numbers, first);
  update_run(rule_.rule(), run, scaling, context);
}

// Adds up the norms of parameters of which others have parts, in one message for those that are cut along an axis.
void TensorUpdate::join_norms(std::size_t group, LayerTables::Range range) const {
  using AddUp = std::function<void(torch::Tensor & numbers)>;
  std::vector<std::pair<const AddUp*, std::vector<torch::Tensor>>> lines;  // in an order that all replicas have
  for (std::size_t layer = range.first; layer < range.end; ++layer) {
    const AddUp* add_up = cut_of_(flat_.groups()[group].members[layer]).add_up;
    if (add_up == nullptr) continue;
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& known) { return known.first == add_up; });
    if (line == lines.end()) line = lines.insert(lines.end(), {add_up, {}});
    line->second.push_back(layers_[group]->norms(layer));
  }
  for (auto& [add_up, norms] : lines) {
    torch::Tensor joined = at::stack(norms);
    (*add_up)(joined);
    for (std::size_t i = 0; i < norms.size(); ++i) norms[i].copy_(joined.select(0, static_cast<int64_t>(i)));
  }
}

bool kernels_reach(torch::ScalarType dtype, torch::Device device) {
  const DeviceBackend& backend = backend_of(device);
  return !backend.is_host() && backend.kernels() != kernels::Reach::kNone &&
         (is_half(dtype) || kernels::has_kernels(dtype));
}

namespace {

bool kernels_take(const UpdateRule& rule, const torch::Tensor& values, bool by_layers) {
  return (by_layers || !rule.one_by_one()) && kernels_reach(values.scalar_type(), values.device());
}

void update_by_kernels(const UpdateRule& rule, const UpdateRun& run, const DeviceScaling& scaling, StepContext context,
                       kernels::Reach reach) {
  const c10::DeviceGuard guard(run.values.device());
  std::vector<void*> slots;
  for (const torch::Tensor& slot : run.slots) slots.push_back(slot.data_ptr());
  if (scaling.factor.defined()) context.factor = scaling.factor.data_ptr<double>();
  if (scaling.finite.defined()) context.only_if = scaling.finite.data_ptr<bool>();
  if (scaling.numbers.defined()) context.numbers = static_cast<const kernels::StepNumbers*>(scaling.numbers.data_ptr());
  std::vector<torch::Tensor> used{run.values, run.gradient, scaling.factor, scaling.finite, scaling.numbers};
  used.insert(used.end(), run.slots.begin(), run.slots.end());
  used.insert(used.end(), run.tables.begin(), run.tables.end());
  std::erase_if(used, [](const torch::Tensor& each) { return !each.defined(); });
  const Segment segment{.reach = reach,
                        .dtype = run.values.scalar_type(),
                        .parameter = run.values.data_ptr(),
                        .gradient = run.gradient.data_ptr(),
                        .master = run.slots.size() > rule.slots().size() ? run.slots.back().data_ptr<float>() : nullptr,
                        .size = run.values.numel(),
                        .treatment = run.treatment};
  begin_kernel(
      used, [&rule, slots = std::move(slots), segment, layers = run.layers, own = run.own, join = run.join, context] {
        Segment here = segment;
        here.slots = slots.data();
        layers ? rule.update_layers(here, *layers, context, join) : rule.update(here, context);
      });
}

}  // namespace

bool TensorUpdate::reads_numbers() const {
  if (numbers({}).empty()) return false;
  for (std::size_t g = 0; g < values_.size(); ++g) {
    if (!kernels_take(rule_.rule(), values_[g], layers_[g] != nullptr)) return false;
  }
  return true;
}

void update_run(const UpdateRule& rule, const UpdateRun& run, const DeviceScaling& scaling, StepContext context) {
  if (kernels_take(rule, run.values, run.layers.has_value())) {
    return update_by_kernels(rule, run, scaling, context, backend_of(run.values.device()).kernels());
  }
  // The rule adds up over replicas by tensor operations alone.
  if (is_half(run.values.scalar_type()) && backend_of(run.values.device()).is_host() && context.add_up == nullptr) {
    return update_halves(rule, run, scaling, context);
  }
  torch::Tensor gradient = run.gradient.to(slot_dtype(run.values.scalar_type()));
  if (scaling.factor.defined()) gradient.mul_(scaling.factor);
  std::vector<torch::Tensor> slots = run.slots;
  if (!scaling.finite.defined()) return rule.update(run.values, gradient, slots, run.treatment, context);
  const torch::Tensor values = run.values.clone();
  for (torch::Tensor& slot : slots) slot = slot.clone();
  rule.update(values, gradient, slots, run.treatment, context);
  const auto take = [&](torch::Tensor to, const torch::Tensor& made) { to.copy_(at::where(scaling.finite, made, to)); };
  take(run.values, values);
  for (std::size_t s = 0; s < slots.size(); ++s) take(run.slots[s], slots[s]);
}

}  // namespace cohort
