#include "strategy/module_pieces.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/access.h"
#include "base/fail.h"
#include "strategy/absent.h"
#include "strategy/holders.h"
#include "strategy/module_tensors.h"
#include "strategy/parameter_layout.h"
#include "strategy/shared_parameters.h"

namespace cohort {

namespace {

int64_t place_on_line(const StrategyCore& core, std::string_view axis, int replica) {
  const std::vector<int> line = core.topology().line(axis, replica);
  return std::find(line.begin(), line.end(), replica) - line.begin();
}

// The same tensor on every copy.
struct OnCopies {
  ModuleTensor first;
  std::vector<torch::Tensor> copies;
};

std::vector<OnCopies> tensors_on(const MirroredModule& module,
                                 std::vector<ModuleTensor> (*list)(const torch::nn::Module&)) {
  std::vector<OnCopies> all;
  for (const auto& copy : module.copies()) {
    const std::vector<ModuleTensor> own = list(*copy);
    if (all.empty()) {
      for (const ModuleTensor& each : own) all.push_back({.first = each, .copies = {}});
    }
    for (std::size_t i = 0; i < own.size(); ++i) all[i].copies.push_back(own[i].tensor);
  }
  return all;
}

// Returns the name under which a tensor is in the source. NotFound: under none of its names.
std::string name_in(const TensorSource& source, const ModuleTensor& own) {
  std::vector<std::string> names = {own.name};
  names.insert(names.end(), own.aliases.begin(), own.aliases.end());
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return source.find(name) != nullptr; });
  if (found != names.end()) return *found;
  fail<NotFound>("[strategy] load_state: there is no \"", own.name, "\" among the ", source.names().size(),
                 " given tensors");
}

void require_fit(const std::string& name, const WholeTensor& given, const torch::Tensor& own,
                 const std::vector<int64_t>& wanted) {
  if (given.shape == wanted && given.dtype == own.scalar_type()) return;
  fail<InvalidArgument>("[strategy] load_state: \"", name, "\" is ", given.dtype, c10::IntArrayRef(given.shape),
                        ", the module wants ", own.scalar_type(), c10::IntArrayRef(wanted));
}

void load_shared(const StrategyCore& core, const TensorSource& source, const std::string& name, const OnCopies& tensor,
                 const ParameterCut* cut) {
  for (std::size_t r = 0; r < tensor.copies.size(); ++r) {
    const torch::Tensor& parameter = tensor.copies[r];
    SharedParameters& shards = *SharedParameters::of(parameter);
    const auto own = shards.own_part(parameter);
    if (!own) continue;
    WholeTensor whole = *source.find(name);
    whole.order = order_of(parameter.sizes(), parameter.strides());
    const SliceOfPart slice{.cut = cut, .local_id = static_cast<int>(r), .elements = own->elements};
    shards.fill_own_part(parameter, read_slice(core, slice, name, whole, source));
  }
}

void load_cut(const StrategyCore& core, const TensorSource& source, const std::string& name, const OnCopies& tensor,
              const ParameterCut& cut) {
  for (std::size_t r = 0; r < tensor.copies.size(); ++r) {
    const torch::Tensor own = tensor.copies[r].detach();
    const Runs runs = runs_of_part(core, cut, source.find(name)->shape, static_cast<int>(r));
    own.copy_(source.read(name, runs, {}).view(own.sizes()));
  }
}

// Returns the parameters of which this worker is the first one that has them, where the stages of a pipeline lie with
// several workers and some worker does not have all.
std::optional<std::set<std::string>> held_first(const StrategyCore& core, const std::vector<OnCopies>& parameters) {
  if (!has_stages(core)) return std::nullopt;
  NamedTensors own;
  for (const OnCopies& parameter : parameters) own.emplace_back(parameter.first.name, parameter.first.tensor);
  std::set<std::string> names;
  bool all = true;
  for (const Held& held : held_by_workers(core, own)) {
    all = all && static_cast<int>(held.workers.size()) == core.num_workers();
    if (held.workers.front() == core.worker_rank()) names.insert(held.name);
  }
  return all ? std::nullopt : std::optional(std::move(names));
}

}  // namespace

bool leads_line(const StrategyCore& core, const std::set<std::string>& axes, int local_id) {
  const Topology& topology = core.topology();
  const Coordinate first = topology.coordinate(core.replica_id(0));
  const Coordinate own = topology.coordinate(core.replica_id(local_id));
  for (std::size_t a = 0; a < topology.axes().size(); ++a) {
    if (!axes.contains(topology.axes()[a].name) && own[a] != first[a]) return false;
  }
  return true;
}

Runs runs_of_part(const StrategyCore& core, const ParameterCut& cut, const std::vector<int64_t>& shape, int local_id,
                  const std::vector<int64_t>& order) {
  return runs_of(shape,
                 {.dim = cut.dim,
                  .part = place_on_line(core, cut.axis, core.replica_id(local_id)),
                  .parts = cut.parts,
                  .runs = cut.runs},
                 order);
}

std::vector<Runs> runs_of_slice(const StrategyCore& core, const SliceOfPart& slice, const WholeTensor& whole) {
  if (slice.cut == nullptr) return {{.offset = slice.elements.begin, .length = slice.elements.size()}};
  return runs_between(runs_of_part(core, *slice.cut, whole.shape, slice.local_id, whole.order), slice.elements.begin,
                      slice.elements.end);
}

std::vector<TensorPiece> pieces_of_slice(const StrategyCore& core, const SliceOfPart& slice, const std::string& name,
                                         const WholeTensor& whole, const torch::Tensor& values) {
  std::vector<TensorPiece> pieces;
  int64_t at = 0;
  for (const Runs& runs : runs_of_slice(core, slice, whole)) {
    pieces.push_back({.name = name, .whole = whole, .runs = runs, .values = values.narrow(0, at, runs.size())});
    at += runs.size();
  }
  return pieces;
}

torch::Tensor read_slice(const StrategyCore& core, const SliceOfPart& slice, const std::string& name,
                         const WholeTensor& whole, const TensorSource& source) {
  std::vector<torch::Tensor> parts;
  for (const Runs& runs : runs_of_slice(core, slice, whole)) parts.push_back(source.read(name, runs, whole.order));
  return at::cat(parts);
}

bool PartWriters::writes(const std::set<std::string>& axes, int local_id, std::size_t parameter) {
  // The number of a replica among those that have the same part.
  const Topology& topology = core_.topology();
  const Coordinate position = topology.coordinate(core_.replica_id(local_id));
  int number = 0;
  int count = 1;
  for (std::size_t a = 0; a < topology.axes().size(); ++a) {
    const Axis& axis = topology.axes()[a];
    if (axes.contains(axis.name)) continue;
    number = number * axis.size + position[a];
    count *= axis.size;
  }
  const auto [writers, is_new] = writers_.try_emplace(axes);
  if (is_new) writers->second = writers_of(sizes_, count);
  return writers->second[parameter] == number;
}

std::vector<TensorPiece> own_share(const StrategyCore& core, const NamedTensors& tensors) {
  std::vector<int64_t> bytes;
  for (const auto& [name, tensor] : tensors) bytes.push_back(static_cast<int64_t>(tensor.nbytes()));
  // Workers that make updates of their own differ: the chief's tensors count.
  const int workers = core.plan().local_sgd.sync_every > 0 ? 1 : core.num_workers();
  const std::vector<int> writers = writers_of(bytes, workers);
  std::vector<TensorPiece> own;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (writers[i] == core.worker_rank()) own.push_back(whole_piece(tensors[i].first, tensors[i].second.detach()));
  }
  return own;
}

bool is_divided(const MirroredModule& module) {
  const std::vector<ModuleTensor> parameters = distinct_parameters(*module.copies().front());
  const auto is_shared = [](const ModuleTensor& each) { return SharedParameters::of(each.tensor) != nullptr; };
  return Access::layout(module)->cuts_any() || has_stages(*Access::core(module)) ||
         std::any_of(parameters.begin(), parameters.end(), is_shared);
}

std::vector<TensorPiece> pieces_of(const MirroredModule& module, Commons commons) {
  const StrategyCore& core = *Access::core(module);
  const ParameterLayout& layout = *Access::layout(module);
  const std::string& axis = core.plan().sharding.axis;
  std::vector<TensorPiece> pieces;
  NamedTensors whole;
  const std::vector<OnCopies> parameters = tensors_on(module, distinct_parameters);
  std::vector<int64_t> sizes;
  for (const OnCopies& parameter : parameters) sizes.push_back(parameter.first.tensor.numel());
  PartWriters writers(core, std::move(sizes));
  const auto mine = held_first(core, parameters);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto& [first, copies] = parameters[p];
    const ParameterCut* cut = layout.find(first.name);
    const bool shared = SharedParameters::of(first.tensor) != nullptr;
    if (shared && first.tensor.numel() == 0) {  // nobody has a part of it
      whole.emplace_back(
          first.name, torch::empty(layout.whole_sizes(first.name, first.tensor.sizes()), first.tensor.scalar_type()));
    } else if (mine) {
      if (!mine->contains(first.name)) continue;
      if (cut == nullptr) pieces.push_back(whole_piece(first.name, first.tensor.detach()));
    } else if (!shared && cut == nullptr) {
      whole.emplace_back(first.name, first.tensor);
    }
    for (std::size_t r = 0; r < copies.size(); ++r) {
      const auto me = static_cast<int>(r);
      std::set<std::string> axes;
      if (shared) axes.insert(axis);
      if (cut != nullptr) axes.insert(cut->axis);
      // One worker writes a parameter of stages, and has all of its parts.
      const bool writes = mine ? leads_line(core, axes, me) : writers.writes(axes, me, p);
      if (axes.empty() || !writes) continue;
      WholeTensor wanted{.dtype = first.tensor.scalar_type(),
                         .shape = layout.whole_sizes(first.name, copies[r].sizes())};
      if (!shared) {
        const Runs runs = runs_of_part(core, *cut, wanted.shape, me);
        pieces.push_back({.name = first.name, .whole = std::move(wanted), .runs = runs, .values = copies[r].detach()});
      } else if (const auto own = SharedParameters::of(copies[r])->own_part(copies[r])) {
        wanted.order = order_of(copies[r].sizes(), copies[r].strides());
        const SliceOfPart slice{.cut = cut, .local_id = me, .elements = own->elements};
        for (TensorPiece& piece : pieces_of_slice(core, slice, first.name, wanted, own->values)) {
          pieces.push_back(std::move(piece));
        }
      }
    }
  }
  for (const auto& [name, buffer] : Access::mean_buffers(module)) whole.emplace_back(name, buffer);
  if (commons == Commons::kShared) {
    for (TensorPiece& piece : own_share(core, whole)) pieces.push_back(std::move(piece));
  } else if (core.worker_rank() == 0) {
    for (const auto& [name, tensor] : whole) pieces.push_back(whole_piece(name, tensor.detach()));
  }
  return pieces;
}

void load_pieces(const MirroredModule& module, const TensorSource& source) {
  const torch::NoGradGuard no_grad;
  const StrategyCore& core = *Access::core(module);
  const ParameterLayout& layout = *Access::layout(module);
  std::vector<OnCopies> tensors = tensors_on(module, distinct_parameters);
  for (OnCopies& buffer : tensors_on(module, distinct_buffers)) tensors.push_back(std::move(buffer));
  std::set<std::string> used;
  for (const OnCopies& tensor : tensors) {
    const ModuleTensor& first = tensor.first;
    const std::string name = name_in(source, first);
    used.insert(first.name);
    used.insert(first.aliases.begin(), first.aliases.end());
    require_fit(name, *source.find(name), first.tensor, layout.whole_sizes(first.name, first.tensor.sizes()));
    if (is_absent(first.tensor)) continue;
    const ParameterCut* cut = layout.find(first.name);
    if (SharedParameters::of(first.tensor) != nullptr) {
      load_shared(core, source, name, tensor, cut);
    } else if (cut != nullptr) {
      load_cut(core, source, name, tensor, *cut);
    } else {
      const torch::Tensor value = source.read_whole(name);
      for (const torch::Tensor& own : tensor.copies) own.detach().copy_(value);
    }
  }
  for (const std::string& name : source.names()) {
    if (!used.contains(name)) fail<NotFound>("[strategy] load_state: the module has no \"", name, "\"");
  }
}

}  // namespace cohort
