// Takes the pointers of gathered memory, which a storage's parameters and views find there.
#include "wings/sharding/strategy/parameter_shards.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>

#include "base/fail.h"
#include "device/backend.h"
#include "strategy/core.h"
#include "strategy/worker_group.h"
#include "wings/sharding/strategy/shared_storage.h"

namespace cohort {

namespace {

// The units whose memory a replica has at once: those of neighbours are the one in use and the one before; those that
// come by messages the one in use, beside which there is its message or the next one's.
constexpr std::size_t kUnitsOfNeighbours = 2;
constexpr std::size_t kUnitsOfMessages = 1;

// Returns a value as the run of elements that the parameter is.
torch::Tensor laid_out(const torch::Tensor& parameter, const torch::Tensor& value) {
  const torch::Tensor dense =
      at::empty_strided(parameter.sizes(), parameter.strides(), value.options().dtype(parameter.scalar_type()));
  return dense.copy_(value).as_strided({parameter.numel()}, {1});
}

int64_t memory_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

ParameterShards::ParameterShards(std::shared_ptr<StrategyCore> core, std::vector<ParameterUnit> units,
                                 UnitOptions options)
    : SharedParameters(std::move(units)),
      core_(std::move(core)),
      options_(std::move(options)),
      members_(static_cast<std::size_t>(core_->num_local_replicas())) {
  install_shared_kernel();
  const std::string& axis = core_->plan().sharding.axis;
  for (int r = 0; r < core_->num_local_replicas(); ++r) {
    Member& member = replica(r);
    const DeviceBackend& backend = core_->backend(r);
    if (core_->offloads_states(r)) member.stream = backend.make_stream(options_of(0, r).device());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const int64_t size = units_[u].slice(owner(r)).size();
      member.shards.push_back(member.stream ? backend.host_memory(size, options_of(u, r).dtype().toScalarType()).zero_()
                                            : torch::zeros({size}, options_of(u, r)));
    }
    member.memory.resize(units_.size());
    member.storages.resize(units_.size(), nullptr);
    member.pins.resize(units_.size(), 0);
    std::vector<int>& near = neighbours_.emplace_back();
    for (const int other : core_->topology().line(axis, core_->replica_id(r))) {
      const int local_id = other - core_->replica_id(0);
      if (local_id >= 0 && local_id < core_->num_local_replicas()) near.push_back(local_id);
    }
    if (static_cast<int>(near.size()) < line(r).size()) near.clear();
  }
  // Replicas that meet in this process gather together, and those that read each other's slices need no messages.
  const bool meet = core_->launch().facts().no_messages == nullptr;
  if (meet || !neighbours_.front().empty() || !core_->workers().overlaps()) return;
  own_end_ = line(0).split(/*color=*/0, /*key=*/line(0).rank());
}

ParameterShards::~ParameterShards() {
  // The others may never come to what was begun, for which the group would wait.
  if (own_end_ && members_[0].coming) own_end_->abort("the parameters were destroyed within a step");
}

Communicator& ParameterShards::line(int local_id) const {
  return core_->group(core_->plan().sharding.axis, local_id);
}

const torch::TensorOptions& ParameterShards::options_of(std::size_t unit, int local_id) const {
  return options_[unit][static_cast<std::size_t>(local_id)];
}

// Waits until no device copies from slices in the host's memory any more, so that they may be written to.
void ParameterShards::wait_for_copies() const {
  for (const Member& member : members_) {
    if (member.stream) member.stream->synchronize();
  }
}

torch::Tensor ParameterShards::make_flat(std::size_t unit, int local_id) {
  const torch::Tensor like = at::empty({0}, options_of(unit, local_id));
  const int64_t bytes = units_[unit].size * static_cast<int64_t>(like.element_size());
  auto place = std::make_unique<Place>(Place{shared_from_this(), unit, local_id});
  at::DataPtr nothing(nullptr, place.release(), &Place::release, like.device());
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(nothing), /*allocator=*/nullptr,
                                                             /*resizable=*/false));
  replica(local_id).storages[unit] = storage.unsafeGetStorageImpl();
  auto flat = c10::make_intrusive<c10::TensorImpl, c10::UndefinedTensorImpl>(
      std::move(storage), like.key_set().add(kSharedKey), like.dtype());
  flat->set_sizes_contiguous({units_[unit].size});
  return torch::Tensor(std::move(flat));
}

torch::Tensor ParameterShards::view(const torch::Tensor& flat, c10::IntArrayRef shape, c10::IntArrayRef strides,
                                    int64_t offset) const {
  const Plainly plainly;
  return flat.as_strided(shape, strides, offset);
}

void ParameterShards::set(int local_id, const std::vector<torch::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    put(u, local_id, 0, values[u]);
    free(replica(local_id), u);
  }
}

// Gives a slice those elements of a run that begins at this place of the unit which are its own.
void ParameterShards::put(std::size_t unit, int local_id, int64_t offset, const torch::Tensor& run) {
  const Slice own = units_[unit].slice(owner(local_id));
  const int64_t begin = std::max(own.begin, offset);
  const int64_t end = std::min(own.end, offset + run.numel());
  if (begin >= end) return;
  wait_for_copies();
  replica(local_id)
      .shards[unit]
      .slice(0, begin - own.begin, end - own.begin)
      .copy_(run.slice(0, begin - offset, end - offset));
}

std::optional<ParameterShards::OwnPart> ParameterShards::own_part(const torch::Tensor& parameter) const {
  const Place& place = *Place::of(parameter);
  const Slice own = units_[place.unit].slice(owner(place.local_id));
  const int64_t offset = parameter.storage_offset();
  const int64_t begin = std::max(own.begin, offset);
  const int64_t end = std::min(own.end, offset + parameter.numel());
  if (begin >= end) return std::nullopt;
  return OwnPart{.elements = {begin - offset, end - offset},
                 .values = shard(place.unit, place.local_id).slice(0, begin - own.begin, end - own.begin)};
}

void ParameterShards::fill_own_part(const torch::Tensor& parameter, const torch::Tensor& values) {
  const torch::NoGradGuard no_grad;
  wait_for_copies();
  if (const auto own = own_part(parameter)) own->values.copy_(values);
  for (Member& member : members_) free(member, Place::of(parameter)->unit);
}

void ParameterShards::fill(const torch::Tensor& parameter, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  const Place& place = *Place::of(parameter);
  put(place.unit, place.local_id, parameter.storage_offset(), laid_out(parameter, value));
  for (int r = 0; r < core_->num_local_replicas(); ++r) free(replica(r), place.unit);
}

void ParameterShards::load(const torch::Tensor& parameter, const torch::Tensor& value) {
  fill(parameter, value);
  loaded_[{Place::of(parameter)->unit, parameter.storage_offset()}] = laid_out(parameter, value);
}

void ParameterShards::load_part(const torch::Tensor& parameter, const torch::Tensor& part) {
  fill(parameter, part);
  const Place& place = *Place::of(parameter);
  loaded_parts_[{place.local_id, place.unit, parameter.storage_offset()}] = part.clone();
}

torch::Tensor ParameterShards::loaded_part(const torch::Tensor& parameter) const {
  const Place& place = *Place::of(parameter);
  const auto found = loaded_parts_.find({place.local_id, place.unit, parameter.storage_offset()});
  return found == loaded_parts_.end() ? torch::Tensor() : found->second;
}

void ParameterShards::spread_from_chief() {
  const torch::NoGradGuard no_grad;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    torch::Tensor given = torch::zeros({static_cast<int64_t>(units_[u].parts.size())}, torch::kLong);
    for (std::size_t p = 0; p < units_[u].parts.size(); ++p) {
      if (loaded_.contains({u, units_[u].parts[p].offset})) given[static_cast<int64_t>(p)] = 1;
    }
    core_->broadcast_from_chief({&given, 1});
    for (std::size_t p = 0; p < units_[u].parts.size(); ++p) {
      if (given[static_cast<int64_t>(p)].item<int64_t>() == 0) continue;
      const ParameterUnit::Part& part = units_[u].parts[p];
      torch::Tensor& run = loaded_[{u, part.offset}];
      if (!run.defined() || core_->worker_rank() > 0) run = torch::empty({part.size}, shard(u, 0).options());
      run = run.to(shard(u, 0).device());
      core_->broadcast_from_chief({&run, 1});
      for (int r = 0; r < core_->num_local_replicas(); ++r) put(u, r, part.offset, run);
      loaded_.erase({u, part.offset});
    }
    for (Member& member : members_) free(member, u);
  }
  loaded_.clear();
}

// Each worker brings the slices of its replicas. Replicas of one line along the axis have one unit, and those of
// different lines may have parts of parameters that are not the same.
std::vector<torch::Tensor> ParameterShards::whole_unit(std::size_t unit) const {
  const std::string& axis = core_->plan().sharding.axis;
  const Topology& topology = core_->topology();
  std::map<int, torch::Tensor> lines;
  std::vector<torch::Tensor> here;
  std::vector<torch::Tensor> wholes;
  for (int r = 0; r < core_->num_local_replicas(); ++r) {
    torch::Tensor& whole = lines[topology.line_number(axis, core_->replica_id(r))];
    if (!whole.defined()) whole = torch::zeros({units_[unit].size}, shard(unit, r).options());
    wholes.push_back(whole);
    here.push_back(shard(unit, r).to(shard(unit, 0).device()));
  }
  const std::vector<torch::Tensor> everywhere = core_->workers().world().all_gather(at::cat(here));
  for (std::size_t process = 0; process < everywhere.size(); ++process) {
    int64_t at = 0;
    for (const int replica : topology.replicas_of(static_cast<int>(process))) {
      const std::vector<int> owners = topology.line(axis, replica);
      const auto owner = static_cast<int>(std::find(owners.begin(), owners.end(), replica) - owners.begin());
      const Slice slice = units_[unit].slice(owner);
      const auto line = lines.find(topology.line_number(axis, replica));
      if (line != lines.end()) {
        line->second.slice(0, slice.begin, slice.end).copy_(everywhere[process].narrow(0, at, slice.size()));
      }
      at += slice.size();
    }
  }
  return wholes;
}

void ParameterShards::require_run(std::size_t unit, int local_id) const {
  if (!neighbours_[static_cast<std::size_t>(local_id)].empty() || core_->in_run(local_id)) return;
  fail<FailedPrecondition>(
      "[sharding] a parameter of the unit of \"", units_[unit].parts.front().name,
      "\" was used outside run(), but its parts are with several workers, which would all have to ",
      "gather it; use it inside run(), or call MirroredModule::state() on all workers");
}

void ParameterShards::pin(std::span<const std::size_t> units, int local_id) {
  Member& member = replica(local_id);
  for (const std::size_t unit : units) ++member.pins[unit];
  try {
    for (const std::size_t unit : units) {
      if (member.memory[unit].defined()) {
        std::erase(member.there, unit);
        member.there.push_back(unit);
        continue;
      }
      require_run(unit, local_id);
      gather(unit, local_id);
    }
  } catch (...) {
    unpin(units, local_id);
    throw;
  }
}

void ParameterShards::unpin(std::span<const std::size_t> units, int local_id) {
  for (const std::size_t unit : units) --replica(local_id).pins[unit];
}

// Returns the slices of all owners.
std::vector<torch::Tensor> ParameterShards::slices(std::size_t unit, int local_id) {
  Member& member = replica(local_id);
  const std::vector<int>& near = neighbours_[static_cast<std::size_t>(local_id)];
  std::vector<torch::Tensor> parts;
  for (const int other : near) parts.push_back(shard(unit, other));
  if (!near.empty()) return parts;
  if (!own_end_) return line(local_id).all_gather(shard_to_send(unit, local_id));
  if (member.coming && member.coming->unit == unit) return std::exchange(member.coming, std::nullopt)->work.wait();
  drop_coming(member);
  return own_end_->all_gather(shard_to_send(unit, local_id));
}

// Returns a replica's slice on its device, from where messages leave.
torch::Tensor ParameterShards::shard_to_send(std::size_t unit, int local_id) const {
  return shard(unit, local_id).to(options_of(unit, local_id).device(), /*non_blocking=*/true);
}

void ParameterShards::gather(std::size_t unit, int local_id) {
  const Plainly plainly;
  Member& member = replica(local_id);
  if (local_id == 0) {
    loaded_.clear();
    loaded_parts_.clear();
  }
  make_room(local_id);
  const c10::DeviceGuard guard(options_of(unit, local_id).device());
  torch::Tensor memory = at::empty({units_[unit].size}, options_of(unit, local_id));
  {
    const std::vector<torch::Tensor> parts = slices(unit, local_id);
    for (std::size_t o = 0; o < parts.size(); ++o) {
      const Slice slice = units_[unit].slice(static_cast<int>(o));
      // Slices of the host are not written to before the copy is done.
      memory.slice(0, slice.begin, slice.end).copy_(parts[o], /*non_blocking=*/!memory.is_cpu());
    }
  }
  point(*member.storages[unit], memory.data_ptr());
  member.bytes += memory_of(memory);
  const bool near = !neighbours_[static_cast<std::size_t>(local_id)].empty();
  const int64_t sent = member.stream ? memory_of(shard(unit, local_id)) : 0;
  member.peak = std::max(member.peak, member.bytes + (near ? 0 : memory_of(memory) + sent));  // the message, too
  member.memory[unit] = std::move(memory);
  member.there.push_back(unit);
  if (member.last.size() == 2) member.next[member.last] = unit;
  member.last.push_back(unit);
  if (member.last.size() > 2) member.last.erase(member.last.begin());
  begin_next(local_id);
}

// Begins to gather the unit that came after the last two before.
void ParameterShards::begin_next(int local_id) {
  Member& member = replica(local_id);
  const auto next = member.next.find(member.last);
  if (!own_end_ || next == member.next.end() || member.memory[next->second].defined()) return;
  make_room(local_id);
  member.peak = std::max(member.peak, member.bytes + memory_of(member.shards[next->second]) *
                                                         (own_end_->size() + (member.stream ? 1 : 0)));
  member.coming =
      Coming{.unit = next->second, .work = own_end_->all_gather_async(shard_to_send(next->second, local_id))};
}

void ParameterShards::drop_coming(Member& member) const {
  if (member.coming) static_cast<void>(std::exchange(member.coming, std::nullopt)->work.wait());
}

// Frees what was used the longest time ago, so that there is room for one more unit.
void ParameterShards::make_room(int local_id) {
  if (!core_->plan().sharding.reshard_after_forward) return;
  Member& member = replica(local_id);
  const bool near = !neighbours_[static_cast<std::size_t>(local_id)].empty();
  const std::size_t most = near ? kUnitsOfNeighbours : kUnitsOfMessages;
  for (std::size_t i = 0; i < member.there.size() && member.there.size() >= most;) {
    const std::size_t unit = member.there[i];
    if (member.pins[unit] > 0) {
      ++i;
    } else {
      free(member, unit);
    }
  }
}

void ParameterShards::free(Member& member, std::size_t unit) const {
  if (!member.memory[unit].defined()) return;
  member.bytes -= memory_of(member.memory[unit]);
  if (member.storages[unit] != nullptr) point(*member.storages[unit], nullptr);
  member.memory[unit] = torch::Tensor();
  std::erase(member.there, unit);
}

void ParameterShards::release(std::size_t unit, int local_id) {
  Member& member = replica(local_id);
  if (member.pins[unit] == 0) free(member, unit);
}

void ParameterShards::forget(std::size_t unit, int local_id) {
  replica(local_id).storages[unit] = nullptr;
  free(replica(local_id), unit);
}

void ParameterShards::begin_update(int local_id) {
  Member& member = replica(local_id);
  drop_coming(member);
  if (member.stream) member.stream->synchronize();
  if (!neighbours_[static_cast<std::size_t>(local_id)].empty()) line(local_id).barrier();
}

void ParameterShards::end_update(int local_id) {
  Member& member = replica(local_id);
  for (std::size_t u = 0; u < units_.size(); ++u) free(member, u);
  member.last.clear();
  member.last_peak = std::exchange(member.peak, 0);
  if (!neighbours_[static_cast<std::size_t>(local_id)].empty()) line(local_id).barrier();
}

int64_t ParameterShards::shard_bytes(int local_id) const {
  int64_t bytes = 0;
  for (const torch::Tensor& shard : replica(local_id).shards) bytes += memory_of(shard);
  return bytes;
}

int64_t ParameterShards::peak_bytes(int local_id) const {
  return replica(local_id).last_peak;
}

}  // namespace cohort
