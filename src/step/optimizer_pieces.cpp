// The pieces of an optimizer's state that a worker writes and reads: of slots that the replicas share the slices that
// its replicas own, of cut parameters' slots the parts that they have, and a share of all else.
#include "base/fail.h"
#include "step/optimizer_state.h"
#include "strategy/holders.h"
#include "strategy/module_pieces.h"

namespace cohort {

namespace {

std::vector<int64_t> order_of_memory(const FlatParameter& parameter) {
  return order_of(parameter.shape, parameter.strides);
}

// Throws unless a saved slot has the shape of its parameter.
void require_slot(const TensorSource& source, const std::string& name, const std::vector<int64_t>& wanted) {
  const WholeTensor* saved = source.find(name);
  if (saved == nullptr) {
    fail<NotFound>("[optimizer] load_state: there is no \"", name, "\" among the ", source.names().size(), " tensors",
                   other_formulation(name, [&](const std::string& other) { return source.find(other) != nullptr; }));
  }
  if (saved->shape == wanted) return;
  fail<InvalidArgument>("[optimizer] load_state: \"", name, "\" has shape ", c10::IntArrayRef(saved->shape),
                        ", wanted ", c10::IntArrayRef(wanted));
}

// The numbers of such a slot do not lie where the elements of its part do, so that it is written as a whole.
void require_parts_here(const std::string& rule, const std::string& name, const ParameterCut& cut) {
  if (!cut.crosses) return;
  fail<Unimplemented>("[optimizer] ", rule, ": \"", name, "\" has means of a parameter that is cut along \"", cut.axis,
                      "\", whose parts several workers have; it has no pieces for a sharded checkpoint, only for one ",
                      "of whole tensors");
}

}  // namespace

SliceOfPart OptimizerState::slice_of(const Exchange::OwnSlots& own) const {
  return {.cut = flat_.layout().find(flat_.parameters()[own.parameter].name),
          .local_id = own.local_id,
          .elements = own.elements};
}

std::vector<TensorPiece> OptimizerState::pieces() const {
  std::vector<TensorPiece> own;
  NamedTensors whole = save_numbers();
  std::vector<int64_t> sizes;
  for (const FlatParameter& parameter : flat_.parameters()) sizes.push_back(parameter.size);
  PartWriters writers(core_, std::move(sizes));
  if (const auto parts = exchange_.own_slots()) {
    for (const Exchange::OwnSlots& part : *parts) {
      const FlatParameter& parameter = flat_.parameters()[part.parameter];
      const SliceOfPart slice = slice_of(part);
      std::set<std::string> axes = {core_.plan().sharding.axis};
      if (slice.cut != nullptr) axes.insert(slice.cut->axis);
      if (!writers.writes(axes, part.local_id, part.parameter)) continue;
      const std::vector<SlotKind> kinds = slots_of(parameter);
      for (std::size_t s = 0; s < kinds.size(); ++s) {
        const WholeTensor whole_slot{.dtype = part.values[s].scalar_type(),
                                     .shape = flat_.layout().whole_sizes(parameter.name, parameter.shape),
                                     .order = order_of_memory(parameter)};
        const std::string name = parameter.name + "/" + kinds[s].name;
        for (TensorPiece& piece : pieces_of_slice(core_, slice, name, whole_slot, part.values[s])) {
          own.push_back(std::move(piece));
        }
      }
    }
    for (const FlatParameter& parameter : flat_.parameters()) {
      if (parameter.size > 0) continue;  // nobody has a part of the others
      const std::vector<int64_t> shape = flat_.layout().whole_sizes(parameter.name, parameter.shape);
      for (const SlotKind& slot : slots_of(parameter)) {
        whole.emplace_back(parameter.name + "/" + slot.name, torch::empty(shape));
      }
    }
  } else {
    const std::vector<Exchange::Slots> slots = exchange_.slots_of_all();
    each_slot(slots.front(), [&](const std::string& name, const torch::Tensor& slot, const Place& place) {
      const std::string& parameter = flat_.parameters()[place.parameter].name;
      const ParameterCut* cut = flat_.layout().find(parameter);
      const bool staged = !flat_.counted().empty();  // the first worker that has the parameter writes it
      if (staged && !(flat_.counted()[place.parameter] && leads_stages(core_))) return;
      if (cut == nullptr && staged) return own.push_back(whole_piece(name, slot));
      if (cut == nullptr) return whole.emplace_back(name, slot), void();
      if (rule_.rule().left_out(place.slot, slot.dim())) {
        require_parts_here(rule_.name(), name, *cut);
        return whole.emplace_back(name, whole_slot(place, slots)), void();
      }
      for (std::size_t r = 0; r < progress_.size(); ++r) {
        const auto me = static_cast<int>(r);
        const bool writes =
            staged ? leads_line(core_, {cut->axis}, me) : writers.writes({cut->axis}, me, place.parameter);
        if (!writes) continue;
        TensorPiece piece = whole_piece(name, part_of_slot(place, slots[r]));
        piece.whole.shape = flat_.layout().whole_sizes(parameter, slot.sizes());
        piece.runs = runs_of_part(core_, *cut, piece.whole.shape, me);
        own.push_back(std::move(piece));
      }
    });
  }
  for (TensorPiece& piece : own_share(core_, whole)) own.push_back(std::move(piece));
  return own;
}

void OptimizerState::load_pieces(const TensorSource& source) {
  const torch::NoGradGuard no_grad;
  Given numbers;
  for (const char* name : {kIterations, kLossScaleEntry, kGoodSteps, kLearningRateEntry}) {
    if (source.find(name) != nullptr) numbers[name] = source.read_whole(name);
  }
  const auto parts = exchange_.own_slots();
  parts ? load_own_slots(source, *parts) : load_slots(source);
  tell_missing([&](const std::string& name) { return source.find(name) != nullptr; });
  require_slot(source, kIterations, {});
  const auto iterations = numbers.at(kIterations).item<int64_t>();
  if (!parts) exchange_.spread_slots(iterations);
  if (!parts) load_cut_slots(source);
  restart(iterations, numbers);
}

void OptimizerState::load_own_slots(const TensorSource& source, const std::vector<Exchange::OwnSlots>& parts) {
  for (const FlatParameter& parameter : flat_.parameters()) {
    const std::vector<SlotKind> kinds = slots_of(parameter);
    for (std::size_t s = 0; s < kinds.size(); ++s) {
      const std::string name = parameter.name + "/" + kinds[s].name;
      if (is_missing(source, name, s)) continue;
      require_slot(source, name, flat_.layout().whole_sizes(parameter.name, parameter.shape));
    }
  }
  for (const Exchange::OwnSlots& part : parts) {
    const FlatParameter& parameter = flat_.parameters()[part.parameter];
    const std::vector<SlotKind> kinds = slots_of(parameter);
    for (std::size_t s = 0; s < kinds.size(); ++s) {
      torch::Tensor own = part.values[s];
      const std::string name = parameter.name + "/" + kinds[s].name;
      if (is_missing(source, name, s)) {
        own.zero_();
        continue;
      }
      WholeTensor whole = *source.find(name);
      whole.order = order_of_memory(parameter);
      own.copy_(read_slice(core_, slice_of(part), name, whole, source));
    }
  }
}

void OptimizerState::load_slots(const TensorSource& source) {
  const ParameterLayout& layout = flat_.layout();
  each_slot(exchange_.slots(), [&](const std::string& name, torch::Tensor slot, const Place& place) {
    const std::string& parameter = flat_.parameters()[place.parameter].name;
    if (is_missing(source, name, place.slot)) return slot.zero_(), void();
    require_slot(source, name, layout.whole_sizes(parameter, slot.sizes()));
    if (layout.find(parameter) == nullptr) slot.copy_(source.read_whole(name));
  });
}

void OptimizerState::load_cut_slots(const TensorSource& source) {
  const ParameterLayout& layout = flat_.layout();
  if (!layout.cuts_any()) return;
  each_slot(exchange_.slots(), [&](const std::string& name, const torch::Tensor& /*slot*/, const Place& place) {
    const ParameterCut* cut = layout.find(flat_.parameters()[place.parameter].name);
    const auto rank = static_cast<int64_t>(flat_.parameters()[place.parameter].shape.size());
    const bool is_absent = is_missing(source, name, place.slot);
    const bool lies_otherwise = cut != nullptr && rule_.rule().left_out(place.slot, rank);
    const torch::Tensor whole = lies_otherwise ? source.read_whole(name) : torch::Tensor();
    for (std::size_t r = 0; cut != nullptr && r < progress_.size(); ++r) {
      if (lies_otherwise) {
        set_part_of_slot(place, static_cast<int>(r), whole);
        continue;
      }
      torch::Tensor own = part_of_slot(place, exchange_.slots_of(static_cast<int>(r)));
      if (is_absent) {
        own.zero_();
        continue;
      }
      const Runs runs = runs_of_part(core_, *cut, source.find(name)->shape, static_cast<int>(r));
      own.copy_(source.read(name, runs, {}).view(own.sizes()));
    }
  });
}

}  // namespace cohort
