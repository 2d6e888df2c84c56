// Each rank adds up a slice of all tensors of its machine where they lie. Messages, which know deadlines, lost peers
// and mismatches, tell how far each rank is; only the data is in common memory, copied by pointers from and to CPU
// tensors.
#include "collective/algorithms/shared_sum.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/slices.h"
#include "collective/algorithms/exchange.h"
#include "collective/algorithms/levels.h"
#include "collective/process/process_communicator.h"
#include "ops/kernels/kernels.h"

namespace cohort {

namespace {

// The first page holds a number by which those who open the memory know that it is the right one.
constexpr std::size_t kPage = 4096;
constexpr int64_t kPiece = 2048;  // elements that are added up and copied before going on: they stay in the cache
constexpr int64_t kPiecesAThread = 16;

// Returns the bytes of each member's tensor, which begins on a page.
std::size_t room_of(int64_t size, torch::ScalarType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(size) * c10::elementSize(dtype);
  return (bytes + kPage - 1) / kPage * kPage;
}

// Returns the memory that "make" makes; null where it cannot be had.
template <typename Make>
std::shared_ptr<SharedMemory> attempt(const Make& make) {
  try {
    return make();
  } catch (const Unavailable& error) {
    log().info("[collective] gradients go by messages within this machine: {}", error_text(error));
    return nullptr;
  }
}

int64_t& token_of(const SharedMemory& memory) {
  return *reinterpret_cast<int64_t*>(memory.bytes().data());
}

}  // namespace

std::string this_machine() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  for (const char* of : {"pid", "net"}) {
    std::error_code none;
    text += " " + std::filesystem::read_symlink(std::string("/proc/self/ns/") + of, none).string();
  }
  return text;
}

std::shared_ptr<SharedSum> SharedSum::make(ProcessCommunicator& group, const std::string& machine,
                                           const std::string& name, int64_t size, Dtypes dtypes) {
  const std::string what = c10::str("share ", dtypes.own, "[", size, "] as ", name, ", sent as ", dtypes.sent);
  const auto places = group.gather_numbers(what, {static_cast<int64_t>(hash_of(machine)), 0});
  const auto place_of = [&](int rank) { return places[static_cast<std::size_t>(rank)][0]; };
  Machines machines;
  std::map<int64_t, std::size_t> index;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto [at, is_new] = index.emplace(place_of(rank), machines.size());
    if (is_new) machines.emplace_back();
    machines[at->second].push_back(rank);
  }
  if (machines.size() == places.size() || (machines.size() > 1 && group.has_engine())) return nullptr;
  const std::vector<int>& members = machines[index.at(place_of(group.rank()))];
  const bool leads = members.front() == group.rank();
  const std::size_t bytes = kPage + members.size() * room_of(size, dtypes.own);

  std::shared_ptr<SharedMemory> memory;
  SharedMemory::Handle mine;
  if (leads) memory = attempt([&] { return SharedMemory::create(bytes); });
  if (memory) {
    mine = memory->handle();
    token_of(*memory) = static_cast<int64_t>(std::random_device()()) + 1;
  }
  const auto handles = group.gather_numbers(what, {mine.process, mine.file});
  const auto tokens = group.gather_numbers(what, {memory ? token_of(*memory) : 0, 0});
  const auto leader = static_cast<std::size_t>(members.front());
  if (!leads && tokens[leader][0] != 0) {
    memory = attempt([&] { return SharedMemory::open({handles[leader][0], handles[leader][1]}, bytes); });
  }
  const bool reached = memory && token_of(*memory) == tokens[leader][0];
  const auto all_reached = group.gather_numbers(what, {reached ? 1 : 0, 0});
  if (memory) memory->close();
  if (std::any_of(all_reached.begin(), all_reached.end(), [](const auto& numbers) { return numbers[0] == 0; })) {
    return nullptr;
  }
  return std::shared_ptr<SharedSum>(new SharedSum(std::move(memory), name, size, dtypes, machines, group.rank()));
}

SharedSum::SharedSum(std::shared_ptr<SharedMemory> memory, std::string name, int64_t size, Dtypes dtypes,
                     const Machines& machines, int rank)
    : memory_(std::move(memory)), name_(std::move(name)), size_(size), dtype_(dtypes.own), sent_(dtypes.sent) {
  for (const std::vector<int>& machine : machines) {
    leaders_.push_back(machine.front());
    const auto found = std::find(machine.begin(), machine.end(), rank);
    if (found == machine.end()) continue;
    members_ = machine;
    self_ = static_cast<std::size_t>(found - machine.begin());
  }
}

std::byte* SharedSum::part(std::size_t member, int64_t offset) const {
  return memory_->bytes().data() + kPage + member * room_of(size_, dtype_) +
         static_cast<std::size_t>(offset) * c10::elementSize(dtype_);
}

torch::Tensor SharedSum::tensor() const {
  return torch::from_blob(
      part(self_, 0), {size_}, [memory = memory_](void*) {}, torch::TensorOptions(dtype_));
}

int64_t SharedSum::offset_of(const torch::Tensor& tensor) const {
  if (!tensor.is_cpu() || tensor.scalar_type() != dtype_ || !tensor.is_contiguous()) return -1;
  const auto* const begin = static_cast<const std::byte*>(tensor.data_ptr());
  if (begin < part(self_, 0) || begin + tensor.nbytes() > part(self_, size_)) return -1;
  return (begin - part(self_, 0)) / static_cast<int64_t>(c10::elementSize(dtype_));
}

void SharedSum::sum(Transport& transport, int64_t offset, int64_t size, std::string_view algorithm) const {
  const Peers machine(transport, members_);
  if (members_.size() > 1) {
    sum_slice(offset, size);
    exchange_meet(machine);
  }
  if (leaders_.size() == 1) return;
  if (self_ == 0) {
    const Peers leaders(transport, leaders_);
    const torch::Tensor sums = tensor().narrow(0, offset, size);
    torch::Tensor sent = sums.to(sent_);
    exchange_sum(leaders, sent, levels_named(algorithm, leaders.size()));
    if (sent_ != dtype_) sums.copy_(sent);
  }
  if (members_.size() == 1) return;
  exchange_meet(machine);
  if (self_ != 0) {
    std::memcpy(part(self_, offset), part(0, offset), static_cast<std::size_t>(size) * c10::elementSize(dtype_));
  }
  exchange_meet(machine);  // before the first one's is written again
}

// Adds up this member's slice of all members' tensors, for all of them, or for the one that sends it on: nobody else
// reads or writes there until they meet.
void SharedSum::sum_slice(int64_t offset, int64_t size) const {
  const auto members = static_cast<int>(members_.size());
  const Slice mine = slice_of(size, static_cast<int>(self_), members);
  parallel_for((mine.size() + kPiece - 1) / kPiece, kPiecesAThread, [&](int64_t from, int64_t to) {
    c10::SmallVector<const void*, 16> sources(members_.size());
    for (int64_t chunk = from; chunk < to; ++chunk) {
      const int64_t at = mine.begin + chunk * kPiece;
      const int64_t count = std::min(kPiece, mine.end - at);
      for (std::size_t member = 0; member < members_.size(); ++member) sources[member] = part(member, offset + at);
      std::byte* const first = part(0, offset + at);
      kernels::sum_into(first, sources.data(), members, count, dtype_);
      for (std::size_t member = 1; member < (leaders_.size() == 1 ? members_.size() : 1); ++member) {
        std::memcpy(part(member, offset + at), first, static_cast<std::size_t>(count) * c10::elementSize(dtype_));
      }
    }
  });
}

}  // namespace cohort
