// The worker's side of the variables that servers keep. Row numbers are read by pointers into CPU tensors.
#include "wings/parameter_server/client/server_variables.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/fail.h"
#include "cohort/replica.h"
#include "wings/parameter_server/rows.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

// The bytes of rows that are read in one message.
constexpr int64_t kLookupBytes = int64_t{4} << 20;

// The period in which an asynchronous worker reads all values, although every update returns those that it changed.
constexpr std::chrono::milliseconds kFresh(10);

// Returns the first id for updates that belong to no step; no other process draws the same.
int64_t own_ids() {
  std::random_device device;
  return (int64_t{1} << 62) | (static_cast<int64_t>(device()) << 20);
}

}  // namespace

ServerVariables::ServerVariables(const ServerVariablesOptions& options)
    : options_(options),
      catalog_(std::make_shared<Catalog>(options.num_servers, options.partitioner)),
      closure_(own_ids()) {}

std::size_t ServerVariables::declare(Local local) {
  if (frozen_) {
    fail<FailedPrecondition>("[parameter server] ", local.name,
                             " was made after serve(): all variables have to be there before");
  }
  const std::size_t number = catalog_->declare({.name = local.name,
                                                .shape = local.value.sizes().vec(),
                                                .dtype = local.value.scalar_type(),
                                                .optimizer = local.optimizer,
                                                .treatment = {.decay = local.decay, .adapt = local.adapt},
                                                .by_rows = local.by_rows});
  if (local.by_rows && !options_.keeps_slots) local.value = torch::Tensor();
  locals_.push_back(std::move(local));
  return number;
}

std::size_t ServerVariables::declare_rows(ServerVariable variable) {
  if (frozen_) {
    fail<FailedPrecondition>("[parameter server] ", variable.name,
                             " was made after serve(): all variables have to be there before");
  }
  variable.by_rows = true;
  locals_.push_back({.name = variable.name, .value = {}, .optimizer = variable.optimizer});
  return catalog_->declare(std::move(variable));
}

bool ServerVariables::has(const std::string& name) const {
  return std::any_of(locals_.begin(), locals_.end(), [&](const Local& local) { return local.name == name; });
}

void ServerVariables::on_refresh(std::function<void()> callback) {
  on_refresh_.push_back(std::move(callback));
}

void ServerVariables::on_save(std::function<void()> callback) {
  on_save_.push_back(std::move(callback));
}

void ServerVariables::on_release(std::function<void()> callback) {
  on_release_.push_back(std::move(callback));
}

void ServerVariables::release() const {
  for (const auto& callback : on_release_) callback();
}

void ServerVariables::set_learning_rate(std::span<const std::size_t> variables, double rate) {
  for (const std::size_t variable : variables) rates_[variable] = rate;
  if (on_rates_) on_rates_(rates_);
}

const std::shared_ptr<const Catalog>& ServerVariables::freeze() {
  if (!frozen_) {
    frozen_ = catalog_;
    versions_.assign(catalog_->shards().size(), -1);
  }
  return frozen_;
}

void ServerVariables::connect(ServerClient& client) {
  freeze();
  client_ = &client;
}

ServerClient& ServerVariables::client() const {
  if (client_ != nullptr) return *client_;
  fail<FailedPrecondition>(
      "[parameter server] the variables are not there before serve() and, on the chief, before the "
      "ClusterCoordinator is");
}

// -- The step.

void ServerVariables::begin_step(const Closure& closure) {
  in_step_ = true;
  exact_ = closure.exact;
  closure_ = closure.id;
  ordinal_ = 0;
  share_ = closure.share;
  weight_ = closure.weight;
  // The step sees every change that was known when it was scheduled. Changes of other workers since this worker's last
  // update are as recent as a gradient in progress, so they need no reading of their own.
  const bool together = closure.share.count > 1 || options_.always_refresh;
  const bool stale = closure.after != after_ || view_now() != view_ || std::chrono::steady_clock::now() > fresh_until_;
  if (together || stale) refresh();
  after_ = closure.after;
}

void ServerVariables::end_step() {
  in_step_ = false;
  closure_ = own_ids();
  ordinal_ = 0;
  share_ = {};
  weight_ = 1.0;
  const std::lock_guard lock(mutex_);
  lookups_.clear();
}

UpdateId ServerVariables::next_id() {
  return {.closure = closure_, .ordinal = ordinal_++};
}

// -- Reading.

torch::Tensor ServerVariables::rows_of(const torch::Tensor& whole, const ShardInfo& place) const {
  if (place.spec.shape.empty()) return whole;
  return whole.narrow(0, place.first_row, place.spec.shape.front());
}

// Returns the update that another worker with the same step makes next. Values that contain it are too new for this
// one.
std::optional<UpdateId> ServerVariables::unless() const {
  if (!in_step_ || !exact_) return std::nullopt;
  return UpdateId{.closure = closure_, .ordinal = ordinal_};
}

ServerVariables::ViewId ServerVariables::view_now() const {
  const proto::View view = client().view();
  return {view.run(), view.epoch(), view.number()};
}

// Forgets versions, because another server may count its changes differently.
void ServerVariables::forget_versions_of_other_views() {
  const ViewId view = view_now();
  if (view == view_) return;
  view_ = view;
  std::fill(versions_.begin(), versions_.end(), -1);
}

void ServerVariables::refresh() {
  forget_versions_of_other_views();
  std::vector<Pull> pulls;
  for (std::size_t shard = 0; shard < catalog_->shards().size(); ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    const torch::Tensor& value = locals_[place.variable].value;
    if (!value.defined()) continue;
    pulls.push_back({.shard = static_cast<uint32_t>(shard), .out = rows_of(value, place), .version = versions_[shard]});
  }
  client().pull(pulls, unless());
  for (const Pull& pull : pulls) versions_[pull.shard] = pull.version;
  fresh_until_ = std::chrono::steady_clock::now() + kFresh;
  for (const auto& callback : on_refresh_) callback();
}

void ServerVariables::read(std::size_t variable) {
  forget_versions_of_other_views();
  const auto [first, last] = catalog_->shards_of(variable);
  std::vector<Pull> pulls;
  for (std::size_t shard = first; shard < last; ++shard) {
    pulls.push_back({.shard = static_cast<uint32_t>(shard),
                     .out = rows_of(locals_[variable].value, catalog_->shards()[shard]),
                     .version = versions_[shard]});
  }
  client().pull(pulls, unless());
  for (const Pull& pull : pulls) versions_[pull.shard] = pull.version;
}

torch::Tensor ServerVariables::look_up(std::size_t variable, const torch::Tensor& indices) {
  const ServerVariable& declared = catalog_->variables()[variable];
  if (!at::isIntegralType(indices.scalar_type(), /*includeBool=*/false)) {
    fail<InvalidArgument>("[parameter server] ", declared.name, ": lookup wants whole numbers, got ",
                          indices.scalar_type());
  }
  const torch::Tensor flat = indices.reshape({-1}).to(torch::kCPU, torch::kLong);
  const auto [unique, inverse] = unique_rows(flat.contiguous());
  const torch::Tensor rows = fetch_rows(variable, unique);
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.insert(sizes.end(), declared.shape.begin() + 1, declared.shape.end());
  return look_up_rows(rows, inverse).view(sizes).to(indices.device());
}

torch::Tensor ServerVariables::fetch_rows(std::size_t variable, const torch::Tensor& unique) {
  const ServerVariable& declared = catalog_->variables()[variable];
  const int64_t count = unique.numel();
  const auto* ids = unique.data_ptr<int64_t>();
  if (count > 0 && (ids[0] < 0 || ids[count - 1] >= declared.shape[0])) {
    fail<InvalidArgument>("[parameter server] ", declared.name, " has rows 0 to ", declared.shape[0] - 1,
                          "; there are lookups from ", ids[0], " to ", ids[count - 1]);
  }
  std::vector<int64_t> shape = declared.shape;
  shape[0] = count;
  torch::Tensor rows = at::empty(shape, declared.dtype);
  const int64_t row_bytes = count > 0 ? static_cast<int64_t>(rows.nbytes()) / count : 1;
  const int64_t most = std::max<int64_t>(1, kLookupBytes / std::max<int64_t>(1, row_bytes));
  std::vector<Pull> pulls;
  const auto [first, last] = catalog_->shards_of(variable);
  for (std::size_t shard = first; shard < last; ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    const int64_t begin = std::lower_bound(ids, ids + count, place.first_row) - ids;
    const int64_t end = std::lower_bound(ids, ids + count, place.first_row + place.spec.shape[0]) - ids;
    for (int64_t from = begin; from < end; from += most) {
      const int64_t size = std::min(most, end - from);
      pulls.push_back({.shard = static_cast<uint32_t>(shard),
                       .out = rows.narrow(0, from, size),
                       .indices = unique.narrow(0, from, size) - place.first_row});
    }
  }
  client().pull(pulls, unless());
  if (!at::GradMode::is_enabled() || !in_step_ || !declared.optimizer) return rows;
  rows.requires_grad_(true);
  const std::lock_guard lock(mutex_);
  const Replica* const replica = Replica::current();
  lookups_.push_back(
      {.variable = variable, .replica = replica == nullptr ? 0 : replica->local_id(), .unique = unique, .rows = rows});
  return rows;
}

// -- Writing.

void ServerVariables::note_versions(const std::vector<Push>& pushes) {
  for (const Push& push : pushes) {
    if (push.out.defined()) versions_[push.shard] = push.version;
  }
}

void ServerVariables::add_gradient(std::vector<Push>& pushes, std::size_t variable, const torch::Tensor& gradient,
                                   const UpdateId& id) {
  const auto [first, last] = catalog_->shards_of(variable);
  for (std::size_t shard = first; shard < last; ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    pushes.push_back(
        {.shard = static_cast<uint32_t>(shard), .id = id, .share = share_, .value = rows_of(gradient, place)});
    // An update that waits for other shares returns no new value.
    if (share_.count == 1) pushes.back().out = rows_of(locals_[variable].value, place);
  }
}

// Adds the gradients of looked-up rows. Every shard of such a table gets a push, if only to count the step.
void ServerVariables::add_lookups(std::vector<Push>& pushes, const UpdateId& id, double factor) {
  std::map<std::size_t, std::vector<LookUp>> ready;
  {
    const std::lock_guard lock(mutex_);
    // Gradients of one row are added up in this order, whichever replica came first.
    std::stable_sort(lookups_.begin(), lookups_.end(),
                     [](const LookUp& a, const LookUp& b) { return a.replica < b.replica; });
    for (LookUp& lookup : lookups_) {
      if (lookup.rows.grad().defined()) ready[lookup.variable].push_back(std::move(lookup));
    }
    std::erase_if(lookups_, [](const LookUp& lookup) { return !lookup.rows.defined(); });
  }
  for (const auto& [variable, lookups] : ready) {
    const auto [first, last] = catalog_->shards_of(variable);
    for (std::size_t shard = first; shard < last; ++shard) {
      const ShardInfo& place = catalog_->shards()[shard];
      std::vector<torch::Tensor> indices;
      std::vector<torch::Tensor> rows;
      for (const LookUp& lookup : lookups) {
        const auto* ids = lookup.unique.data_ptr<int64_t>();
        const int64_t count = lookup.unique.numel();
        const int64_t begin = std::lower_bound(ids, ids + count, place.first_row) - ids;
        const int64_t end = std::lower_bound(ids, ids + count, place.first_row + place.spec.shape[0]) - ids;
        indices.push_back(lookup.unique.slice(0, begin, end) - place.first_row);
        const torch::Tensor own = lookup.rows.grad().slice(0, begin, end);
        rows.push_back(factor == 1.0 ? own : own * factor);
      }
      const bool one = lookups.size() == 1;
      pushes.push_back({.shard = static_cast<uint32_t>(shard),
                        .kind = proto::PushRequest::ROWS,
                        .id = id,
                        .share = share_,
                        .value = (one ? rows[0] : at::cat(rows)).contiguous(),
                        .indices = one ? indices[0] : at::cat(indices)});
    }
  }
}

void ServerVariables::apply_gradients(std::span<const std::size_t> variables, std::span<const torch::Tensor> gradients,
                                      std::span<const Change> changes, double row_factor) {
  if (!in_step_) {
    fail<FailedPrecondition>("[parameter server] gradients are applied by steps that a ClusterCoordinator schedules");
  }
  const torch::NoGradGuard no_grad;
  const UpdateId id = next_id();
  std::vector<Push> pushes;
  for (std::size_t i = 0; i < variables.size(); ++i) add_gradient(pushes, variables[i], gradients[i], id);
  add_lookups(pushes, id, row_factor);
  for (const Change& change : changes) add_value(pushes, change.variable, proto::PushRequest::ADD, change.delta, id);
  client().push(pushes);
  note_versions(pushes);
}

void ServerVariables::add_value(std::vector<Push>& pushes, std::size_t variable, proto::PushRequest::Kind kind,
                                const torch::Tensor& value, const UpdateId& id) {
  const auto [first, last] = catalog_->shards_of(variable);
  for (std::size_t shard = first; shard < last; ++shard) {
    const ShardInfo& place = catalog_->shards()[shard];
    pushes.push_back({.shard = static_cast<uint32_t>(shard),
                      .kind = kind,
                      .id = id,
                      .value = rows_of(value, place),
                      .out = rows_of(locals_[variable].value, place)});
  }
}

void ServerVariables::push_one(std::size_t variable, proto::PushRequest::Kind kind, const torch::Tensor& value) {
  std::vector<Push> pushes;
  add_value(pushes, variable, kind, value, next_id());
  client().push(pushes);
  note_versions(pushes);
  if (on_write_) on_write_();
}

void ServerVariables::assign(std::size_t variable, const torch::Tensor& value) {
  push_one(variable, proto::PushRequest::ASSIGN, value);
}

void ServerVariables::add(std::size_t variable, const torch::Tensor& delta) {
  push_one(variable, proto::PushRequest::ADD, delta);
}

// -- As a whole.

std::shared_ptr<SavedVariables> ServerVariables::saved() const {
  for (const auto& callback : on_save_) callback();
  auto saved = std::make_shared<SavedVariables>();
  for (const Local& local : locals_) {
    if (!local.value.defined()) continue;
    SavedVariable& variable = (*saved)[local.name];
    variable.value = local.value.clone();
    for (const torch::Tensor& slot : local.slots) variable.slots.push_back(slot.clone());
    if (local.optimizer) variable.slot_names = slot_names(*local.optimizer);
    variable.iterations = local.iterations;
  }
  return saved;
}

void ServerVariables::load(const SavedVariables& saved) {
  const torch::NoGradGuard no_grad;
  for (Local& local : locals_) {
    const auto found = saved.find(local.name);
    if (found == saved.end() || !local.value.defined()) continue;
    local.value.copy_(found->second.value);
    for (std::size_t i = 0; i < local.slots.size() && i < found->second.slots.size(); ++i) {
      local.slots[i].copy_(found->second.slots[i]);
    }
    local.iterations = found->second.iterations;
  }
  for (const auto& callback : on_refresh_) callback();
}

}  // namespace cohort
