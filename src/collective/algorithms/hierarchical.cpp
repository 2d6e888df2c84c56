// Every operation is one within the process, one between the processes by local rank 0, and one within the process
// again. Where each rank lives is a list, because a group that is split from another may have any of its ranks.
// Lists travel as numbers in CPU tensors, read by a pointer.
#include "collective/algorithms/hierarchical.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/fail.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/checks.h"

namespace cohort {

namespace {

// The place of a rank: the rank of its process, and its rank there.
struct Home {
  int process = 0;
  int local = 0;
};

using Rows = std::vector<int64_t>;

torch::Tensor numbers(const Rows& rows) {
  return torch::tensor(rows, torch::kLong);
}

Rows list(const torch::Tensor& numbers) {
  const torch::Tensor flat = numbers.contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

// Returns a pointer that does not own the object.
template <typename T>
std::shared_ptr<T> borrowed(T& object) {
  return {std::shared_ptr<void>(), &object};
}

class Hierarchical final : public Communicator {
 public:
  // Asynchronous collectives of the rank that speaks for its process are in the queue of `world`, so that those that
  // its process calls there itself come in one order with them.
  Hierarchical(std::shared_ptr<Communicator> local, std::shared_ptr<ProcessCommunicator> world, std::vector<Home> homes,
               int rank)
      : local_(std::move(local)),
        world_(std::move(world)),
        homes_(std::move(homes)),
        rank_(rank),
        queues_((leads() ? world_->queues() : local_->queues()).collectives()) {
    for (const Home& home : homes_) most_local_ = std::max(most_local_, home.local + 1);
  }

  std::string_view name() const override { return world_->name(); }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(homes_.size()); }

  void all_reduce(std::span<torch::Tensor> tensors, ReduceOp op) override {
    settle();
    if (most_local_ == 1) return world_->all_reduce(tensors, op);
    local_->all_reduce(tensors, ReduceOp::kSum);
    if (leads()) world_->all_reduce(tensors, ReduceOp::kSum);
    local_->broadcast(tensors, 0);
    if (op == ReduceOp::kSum) return;
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& tensor : tensors) {
      torch::Tensor sum = tensor.detach();
      divide(sum, size());
    }
  }

  void broadcast(std::span<torch::Tensor> tensors, int root) override {
    require_root(*this, root);
    settle();
    const Home home = home_of(root);
    if (home.process == world_->rank()) local_->broadcast(tensors, home.local);
    if (leads()) world_->broadcast(tensors, home.process);
    local_->broadcast(tensors, 0);
  }

  std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) override;
  torch::Tensor reduce_scatter(const torch::Tensor& tensor, ReduceOp op) override;
  std::vector<torch::Tensor> all_to_all(std::span<const torch::Tensor> parts) override;

  void barrier() override {
    settle();
    local_->barrier();
    if (leads()) world_->barrier();
    local_->barrier();
  }

  void send(const torch::Tensor& tensor, Peer to) override {
    require_peer(*this, "send", tensor, to);
    queues_.messages(to.rank, /*sends=*/true).settle();
    const Home home = home_of(to.rank);
    if (home.process == world_->rank()) return local_->send(tensor, {.rank = home.local, .tag = to.tag});
    world_->send_on(way(rank_, to.rank), tensor, {.rank = home.process, .tag = to.tag});
  }

  void recv(torch::Tensor tensor, Peer from) override {
    require_peer(*this, "recv", tensor, from);
    queues_.messages(from.rank, /*sends=*/false).settle();
    const Home home = home_of(from.rank);
    if (home.process == world_->rank()) return local_->recv(tensor, {.rank = home.local, .tag = from.tag});
    world_->recv_on(way(from.rank, rank_), tensor, {.rank = home.process, .tag = from.tag});
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

  void abort(const std::string& reason) override {
    local_->abort(reason);
    world_->abort(reason);
  }
  WorkQueues& queues() override { return queues_; }

 private:
  // The groups between processes that a split makes, by color.
  using Worlds = std::map<int64_t, std::shared_ptr<ProcessCommunicator>>;
  // The rows that each member of this process gets from all ranks, in rank order, and how many are from each.
  struct Parcels {
    std::vector<torch::Tensor> data;
    std::vector<torch::Tensor> rows;
  };

  void settle() { queues_.collectives().settle(); }
  bool leads() const { return local_->rank() == 0; }
  Home home_of(int rank) const { return homes_[static_cast<std::size_t>(rank)]; }
  uint32_t way(int from, int to) const { return static_cast<uint32_t>(from * size() + to); }
  // Returns the ranks that live in a process, in the order of their local ranks.
  std::vector<int> ranks_in(int process) const;
  // Returns the ranks of all processes, one process after the other.
  std::vector<int> ranks_by_process() const;
  // Returns what the members of this process bring for its speaker, in the order of their local ranks; empty elsewhere.
  std::vector<torch::Tensor> to_speaker(const torch::Tensor& own) const;
  // Returns this rank's part of what the speaker has for each member.
  torch::Tensor from_speaker(const std::vector<torch::Tensor>& parts, const torch::Tensor& like) const;
  Parcels unpack(const std::vector<torch::Tensor>& blocks, const std::vector<torch::Tensor>& block_rows) const;
  Worlds split_worlds(const std::map<int64_t, std::vector<int>>& groups) const;

  std::shared_ptr<Communicator> local_;
  std::shared_ptr<ProcessCommunicator> world_;
  std::vector<Home> homes_;  // [rank]
  int rank_;
  int most_local_ = 1;  // ranks that a process has
  WorkQueues queues_;
};

std::vector<int> Hierarchical::ranks_in(int process) const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (home_of(r).process == process) ranks.push_back(r);
  }
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return home_of(a).local < home_of(b).local; });
  return ranks;
}

std::vector<int> Hierarchical::ranks_by_process() const {
  std::vector<int> ranks;
  for (int process = 0; process < world_->size(); ++process) {
    for (const int rank : ranks_in(process)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<torch::Tensor> Hierarchical::all_gather(const torch::Tensor& tensor) {
  require_dense("all_gather", tensor);
  settle();
  if (most_local_ == 1) return world_->all_gather(tensor);
  const torch::NoGradGuard no_grad;
  const bool scalar = tensor.dim() == 0;
  const torch::Tensor own = scalar ? tensor.detach().unsqueeze(0) : tensor.detach();
  const std::vector<torch::Tensor> parts = local_->all_gather(own);

  torch::Tensor rows = torch::empty({size()}, torch::kLong);  // the rows of every rank, one process after the other
  if (leads()) {
    std::vector<int64_t> counts;
    for (const torch::Tensor& part : parts) counts.push_back(part.size(0));
    rows = at::cat(world_->all_gather(torch::tensor(counts, torch::kLong)));
  }
  local_->broadcast({&rows, 1}, 0);
  // Each says how many it has: processes with other numbers of ranks, or none at all, are found out here.
  if (rows.numel() != size() || rows.lt(0).any().item<bool>()) {
    fail<DataLoss>("[collective] all_gather: ", rows.numel(), " numbers of rows came, ", size(),
                   " of 0 or more are wanted");
  }

  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = rows.sum().item<int64_t>();
  torch::Tensor all = torch::empty(shape, own.options());
  if (leads()) all = at::cat(world_->all_gather(at::cat(parts)));
  local_->broadcast({&all, 1}, 0);

  std::vector<torch::Tensor> result(homes_.size());
  int64_t at = 0;
  int64_t i = 0;
  for (const int rank : ranks_by_process()) {
    const auto count = rows[i++].item<int64_t>();
    result[static_cast<std::size_t>(rank)] = scalar ? all[at].clone() : all.narrow(0, at, count).clone();
    at += count;
  }
  return result;
}

// Processes send each other only the pieces of the other's ranks.
torch::Tensor Hierarchical::reduce_scatter(const torch::Tensor& tensor, ReduceOp op) {
  require_pieces(*this, tensor);
  settle();
  if (most_local_ == 1) return world_->reduce_scatter(tensor, op);
  const torch::NoGradGuard no_grad;
  torch::Tensor whole = tensor.detach().clone(torch::MemoryFormat::Contiguous);
  local_->all_reduce({&whole, 1}, ReduceOp::kSum);
  const std::vector<torch::Tensor> pieces = whole.tensor_split(size(), 0);
  const auto pieces_of = [&](int process) {
    std::vector<torch::Tensor> own;
    for (const int rank : ranks_in(process)) own.push_back(pieces[static_cast<std::size_t>(rank)]);
    return at::cat(own);
  };
  torch::Tensor sums = pieces_of(world_->rank());
  if (leads()) {
    std::vector<torch::Tensor> for_processes;
    for (int process = 0; process < world_->size(); ++process) for_processes.push_back(pieces_of(process));
    sums = world_->reduce_pieces(for_processes);
  }
  local_->broadcast({&sums, 1}, 0);
  torch::Tensor mine = sums.tensor_split(local_->size(), 0)[static_cast<std::size_t>(local_->rank())].clone();
  if (op == ReduceOp::kMean) divide(mine, size());
  return mine;
}

std::vector<torch::Tensor> Hierarchical::to_speaker(const torch::Tensor& own) const {
  std::vector<torch::Tensor> parts(static_cast<std::size_t>(local_->size()), own.narrow(0, 0, 0));
  parts.front() = own;
  return local_->all_to_all(parts);
}

torch::Tensor Hierarchical::from_speaker(const std::vector<torch::Tensor>& parts, const torch::Tensor& like) const {
  const std::vector<torch::Tensor> none(static_cast<std::size_t>(local_->size()), like.narrow(0, 0, 0));
  return local_->all_to_all(leads() ? parts : none).front();
}

// The speaker of a process takes the parts of its members to the other speakers, in blocks: for each rank there, what
// each member here has for it. It cuts what it gets into what each member here gets from each rank.
std::vector<torch::Tensor> Hierarchical::all_to_all(std::span<const torch::Tensor> parts) {
  require_parts(*this, parts);
  settle();
  if (most_local_ == 1) return world_->all_to_all(parts);
  const torch::NoGradGuard no_grad;
  Rows own_rows;
  for (const torch::Tensor& part : parts) own_rows.push_back(part.size(0));
  const torch::Tensor own = at::cat(std::vector<torch::Tensor>(parts.begin(), parts.end())).detach();
  const std::vector<torch::Tensor> rows_here = to_speaker(numbers(own_rows));
  const std::vector<torch::Tensor> data_here = to_speaker(own);

  Parcels for_members;
  if (leads()) {
    std::vector<std::vector<torch::Tensor>> cut;  // [local rank][rank]
    for (std::size_t l = 0; l < data_here.size(); ++l) cut.push_back(data_here[l].split_with_sizes(list(rows_here[l])));
    std::vector<torch::Tensor> blocks;
    std::vector<torch::Tensor> block_rows;
    for (int process = 0; process < world_->size(); ++process) {
      std::vector<torch::Tensor> block;
      Rows rows;
      for (const int to : ranks_in(process)) {
        for (const auto& from : cut) {
          block.push_back(from[static_cast<std::size_t>(to)]);
          rows.push_back(block.back().size(0));
        }
      }
      blocks.push_back(at::cat(block));
      block_rows.push_back(numbers(rows));
    }
    block_rows = world_->all_to_all(block_rows);
    blocks = world_->all_to_all(blocks);
    for_members = unpack(blocks, block_rows);
  }
  const Rows rows = list(from_speaker(for_members.rows, numbers(own_rows)));
  return from_speaker(for_members.data, own).split_with_sizes(rows);
}

Hierarchical::Parcels Hierarchical::unpack(const std::vector<torch::Tensor>& blocks,
                                           const std::vector<torch::Tensor>& block_rows) const {
  const auto members = static_cast<std::size_t>(local_->size());
  std::vector<std::vector<torch::Tensor>> from(members, std::vector<torch::Tensor>(homes_.size()));  // [member][rank]
  for (int process = 0; process < world_->size(); ++process) {
    const torch::Tensor& block = blocks[static_cast<std::size_t>(process)];
    const Rows rows = list(block_rows[static_cast<std::size_t>(process)]);
    const std::vector<int> ranks = ranks_in(process);
    const bool valid = rows.size() == members * ranks.size() &&
                       std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count >= 0; }) &&
                       std::accumulate(rows.begin(), rows.end(), int64_t{0}) == block.size(0);
    if (!valid) {
      fail<DataLoss>("[collective] all_to_all: ", world_->rank_name(process), " says that it sends ", rows,
                     " rows, and sends ", block.size(0));
    }
    const std::vector<torch::Tensor> cut = block.split_with_sizes(rows);
    for (std::size_t i = 0; i < cut.size(); ++i) {
      from[i / ranks.size()][static_cast<std::size_t>(ranks[i % ranks.size()])] = cut[i];
    }
  }
  Parcels parcels;
  for (const std::vector<torch::Tensor>& parts : from) {
    Rows rows;
    for (const torch::Tensor& part : parts) rows.push_back(part.size(0));
    parcels.rows.push_back(numbers(rows));
    parcels.data.push_back(at::cat(parts));
  }
  return parcels;
}

// A color's processes are numbered by their first rank in the new group, so that ranks and sums are in its order.
std::unique_ptr<Communicator> Hierarchical::split(int color, int key) {
  std::vector<std::pair<int64_t, int64_t>> choices;  // [rank]
  for (const torch::Tensor& choice : all_gather(torch::tensor({color, key}, torch::kLong))) {
    choices.emplace_back(choice[0].item<int64_t>(), choice[1].item<int64_t>());
  }
  std::map<int64_t, std::vector<int>> groups;
  for (int r = 0; r < size(); ++r) {
    if (choices[static_cast<std::size_t>(r)].first >= 0)
      groups[choices[static_cast<std::size_t>(r)].first].push_back(r);
  }
  for (auto& [own_color, ranks] : groups) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return choices[static_cast<std::size_t>(a)].second < choices[static_cast<std::size_t>(b)].second;
    });
  }
  static const std::vector<int> kNone;
  const std::vector<int>& mine = color < 0 ? kNone : groups[color];
  const auto own = static_cast<int>(std::find(mine.begin(), mine.end(), rank_) - mine.begin());
  std::shared_ptr<Communicator> local = local_->split(color, own);

  // The speaker makes the groups between the processes; the others take theirs from it.
  Worlds worlds;
  if (leads()) worlds = split_worlds(groups);
  torch::Tensor address = torch::tensor(reinterpret_cast<int64_t>(&worlds), torch::kLong);
  local_->broadcast({&address, 1}, 0);
  const Worlds& all_worlds =
      *reinterpret_cast<const Worlds*>(address.item<int64_t>());  // NOLINT(performance-no-int-to-ptr)
  const auto found = all_worlds.find(color);
  std::shared_ptr<ProcessCommunicator> world = found == all_worlds.end() ? nullptr : found->second;
  local_->barrier();
  if (color < 0) return nullptr;

  std::map<int, Home> processes;  // each process's number in this group: its number in the new one, and its ranks
  std::vector<Home> homes;
  for (const int rank : mine) {
    const auto numbered =
        processes.try_emplace(home_of(rank).process, Home{.process = static_cast<int>(processes.size())});
    Home& process = numbered.first->second;
    homes.push_back({.process = process.process, .local = process.local++});
  }
  return std::make_unique<Hierarchical>(std::move(local), std::move(world), std::move(homes), own);
}

Hierarchical::Worlds Hierarchical::split_worlds(const std::map<int64_t, std::vector<int>>& groups) const {
  Worlds worlds;
  for (const auto& [color, ranks] : groups) {
    const auto here = [&](int rank) { return home_of(rank).process == world_->rank(); };
    const auto first = std::find_if(ranks.begin(), ranks.end(), here);
    const int own_color = first == ranks.end() ? -1 : static_cast<int>(color);
    auto world = world_->split_processes(own_color, static_cast<int>(first - ranks.begin()));
    if (world) worlds.emplace(color, std::move(world));
  }
  return worlds;
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical(Communicator& local, ProcessCommunicator& world) {
  std::vector<Home> homes;
  for (int process = 0; process < world.size(); ++process) {
    for (int member = 0; member < local.size(); ++member) homes.push_back({.process = process, .local = member});
  }
  return std::make_unique<Hierarchical>(borrowed(local), borrowed(world), std::move(homes),
                                        world.rank() * local.size() + local.rank());
}

}  // namespace cohort
