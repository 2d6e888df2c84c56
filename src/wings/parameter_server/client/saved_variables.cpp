#include "wings/parameter_server/client/saved_variables.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/fail.h"
#include "rpc/frame.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Returns how many rows of a shard, with their slots, go in one message.
int64_t rows_a_piece(const ShardInfo& place, std::size_t slots) {
  const std::vector<int64_t>& shape = place.spec.shape;
  const int64_t width = shape.empty() ? 1 : c10::multiply_integers(shape.begin() + 1, shape.end());
  const auto bytes = static_cast<int64_t>(c10::elementSize(place.spec.dtype) * (1 + slots));
  return std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, width * bytes));
}

int64_t rows_of(const ShardInfo& place) {
  return place.spec.shape.empty() ? 1 : place.spec.shape.front();
}

const std::vector<std::string>& slots_of(const Catalog& catalog, std::size_t shard) {
  static const std::vector<std::string> none;
  const ServerVariable& variable = catalog.variables()[catalog.shards()[shard].variable];
  return variable.optimizer ? variable.optimizer->rule().slots() : none;
}

// Refuses slots that mean something else than the optimizer's: momentum in Keras' formulation has the rate in it, in
// LibTorch's, the only one of checkpoints that name no slots, it has not.
void require_same_slots(const ServerVariable& variable, const std::string& saved) {
  const std::vector<std::string>& slots = variable.optimizer->rule().slots();
  const bool keras = std::find(slots.begin(), slots.end(), "momentum") != slots.end();
  if (saved.empty() ? !keras : saved == slot_names(*variable.optimizer)) return;
  fail<InvalidArgument>("[parameter server] ", variable.name, ": the slots ", saved.empty() ? "before 0.1" : saved,
                        " were saved, and ", variable.optimizer->name(), " has ", slot_names(*variable.optimizer),
                        "; formulation = kTorch goes on with what LibTorch's form saved");
}

// Returns the tensor with a row dimension: a scalar is one row.
torch::Tensor as_rows(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.view({1}) : tensor;
}

// Calls fn(first, count) for each piece of a shard, and once for a shard without rows.
template <typename Fn>
void for_each_piece(const ShardInfo& place, std::size_t slots, const Fn& fn) {
  const int64_t rows = rows_of(place);
  const int64_t most = rows_a_piece(place, slots);
  int64_t first = 0;
  do {
    const int64_t count = std::min(most, rows - first);
    fn(first, count);
    first += count;
  } while (first < rows);
}

}  // namespace

std::string slot_names(const Optimizer& optimizer) {
  return c10::Join(",", optimizer.rule().slots());
}

void require_fit(const Catalog& catalog, const SavedVariables& saved) {
  for (const ServerVariable& variable : catalog.variables()) {
    const auto found = saved.find(variable.name);
    if (found == saved.end()) {
      if (variable.initializer) continue;
      fail<NotFound>("[parameter server] there is no value for ", variable.name, " among the ", saved.size());
    }
    const auto check = [&](const torch::Tensor& tensor) {
      if (tensor.sizes() == c10::IntArrayRef(variable.shape) && tensor.scalar_type() == variable.dtype) return;
      fail<InvalidArgument>("[parameter server] ", variable.name, " is ", variable.dtype,
                            c10::IntArrayRef(variable.shape), ", but what was saved is ", tensor.scalar_type(),
                            tensor.sizes());
    };
    check(found->second.value);
    for (const torch::Tensor& slot : found->second.slots) check(slot);
    const std::size_t wanted = variable.optimizer ? variable.optimizer->rule().slots().size() : 0;
    if (found->second.slots.empty()) continue;
    if (found->second.slots.size() != wanted) {
      fail<InvalidArgument>("[parameter server] ", variable.name, " has ", wanted, " slots, but ",
                            found->second.slots.size(), " were saved");
    }
    if (variable.optimizer) require_same_slots(variable, found->second.slot_names);
  }
}

void install_shard(ServerClient& client, const Catalog& catalog, const ShardToInstall& target,
                   const SavedVariables& saved, int64_t next_closure, std::chrono::milliseconds limit) {
  const std::size_t shard = target.shard;
  const ShardInfo& place = catalog.shards()[shard];
  const auto found = saved.find(catalog.variables()[place.variable].name);
  if (found == saved.end()) {
    proto::CreateRequest request;
    request.add_shards(static_cast<uint32_t>(shard));
    request.set_next_closure(next_closure);
    *request.mutable_order() = target.order;
    (void)client.call(target.server, "/ps/Create", make_frame(request), limit);
    return;
  }
  const SavedVariable& variable = found->second;
  const std::vector<std::string>& slots = slots_of(catalog, shard);
  proto::InstallRequest request;
  request.set_shard(static_cast<uint32_t>(shard));
  *request.mutable_order() = target.order;
  for_each_piece(place, slots.size(), [&](int64_t first, int64_t count) {
    const auto piece = [&](const torch::Tensor& whole) {
      return as_rows(whole).narrow(0, place.first_row + first, count).contiguous();
    };
    std::vector<torch::Tensor> tensors = {piece(variable.value)};
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const double initial = catalog.optimizer_of(shard).rule().initial_slot_value(i);
      tensors.push_back(variable.slots.empty() ? at::full_like(tensors[0], initial) : piece(variable.slots[i]));
    }
    request.set_part(first == 0 ? proto::InstallRequest::FIRST : proto::InstallRequest::ROWS);
    request.set_first_row(first);
    (void)client.call(target.server, "/ps/Install", make_frame(request, tensors), limit);
  });
  request.set_part(proto::InstallRequest::PROGRESS);
  UpdateLog log;
  log.forget_below(next_closure);
  const std::vector<torch::Tensor> progress = {torch::tensor({int64_t{0}, variable.iterations}, torch::kLong),
                                               log.state()};
  (void)client.call(target.server, "/ps/Install", make_frame(request, progress), limit);
}

SavedVariables collect(ServerClient& client, const Catalog& catalog, std::chrono::milliseconds limit) {
  const proto::View view = client.view();
  SavedVariables saved;
  for (std::size_t shard = 0; shard < catalog.shards().size(); ++shard) {
    const ShardInfo& place = catalog.shards()[shard];
    const ServerVariable& declared = catalog.variables()[place.variable];
    const std::size_t slots = slots_of(catalog, shard).size();
    SavedVariable& variable = saved[declared.name];
    if (!variable.value.defined()) {
      variable.value = at::empty(declared.shape, declared.dtype);
      for (std::size_t i = 0; i < slots; ++i) variable.slots.push_back(at::empty_like(variable.value));
      if (declared.optimizer) variable.slot_names = slot_names(*declared.optimizer);
    }
    const int server = view.homes(place.home).primary();
    proto::StateRequest request;
    request.set_shard(static_cast<uint32_t>(shard));
    request.mutable_order()->set_epoch(view.epoch());
    request.mutable_order()->set_view(view.number());
    rpc::Empty nothing;
    for_each_piece(place, slots, [&](int64_t first, int64_t count) {
      request.set_first_row(first);
      request.set_rows(count);
      const Frame answer = client.call(server, "/ps/State", make_frame(request), limit);
      FrameReader reader(answer, nothing);
      const auto take = [&](const torch::Tensor& whole) {
        reader.take_into(as_rows(whole).narrow(0, place.first_row + first, count));
      };
      take(variable.value);
      for (const torch::Tensor& slot : variable.slots) take(slot);
      reader.finish();
    });
    request.set_progress(true);
    const Frame answer = client.call(server, "/ps/State", make_frame(request), limit);
    FrameReader reader(answer, nothing);
    const torch::Tensor counts = reader.take();
    if (counts.scalar_type() != torch::kLong || counts.numel() != 2) {
      fail<DataLoss>("[parameter server] what came of ", declared.name,
                     " is no progress of a shard: ", counts.scalar_type(), counts.sizes());
    }
    variable.iterations = std::max(variable.iterations, counts.view({-1})[1].item<int64_t>());
  }
  return saved;
}

}  // namespace cohort
