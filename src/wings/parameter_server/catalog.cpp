#include "wings/parameter_server/catalog.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "base/fail.h"
#include "base/hash.h"
#include "rpc/frame.h"

namespace cohort {

namespace {

// The size of a block of values that move whole, in bytes. It is small enough that several blocks are on their way at a
// time, and large enough that the cost of a message does not count.
constexpr int64_t kBlockBytes = int64_t{4} << 20;

const Optimizer& no_optimizer() {
  static const Optimizer none = SGD();
  return none;
}

// Returns a number that stands for the options of the rule: what it makes of two elements and their slots in two steps.
uint64_t behaviour(const UpdateRule& rule) {
  constexpr std::size_t kElements = 2;
  static constexpr std::array<int64_t, 2> kShape = {2, 1};
  static constexpr std::array<int64_t, 2> kStrides = {1, 1};
  std::array<double, kElements> parameter = {0.5, -2.0};
  std::array<double, kElements> gradient{};
  std::vector<std::array<double, kElements>> slots;
  for (std::size_t i = 0; i < rule.slots().size(); ++i) {
    slots.emplace_back();
    slots.back().fill(rule.initial_slot_value(i));
  }
  std::vector<void*> pointers;
  for (auto& slot : slots) pointers.push_back(slot.data());
  for (int64_t step = 1; step <= 2; ++step) {
    gradient = {0.25 * static_cast<double>(step), 3.0};
    Segment segment{.dtype = torch::kDouble,
                    .parameter = parameter.data(),
                    .gradient = gradient.data(),
                    .slots = pointers.data(),
                    .size = kElements,
                    .shape = kShape,
                    .strides = kStrides};
    const StepContext context{.learning_rate = 0.1, .step = step};
    if (rule.needs_norms()) segment.trust_ratio = rule.trust_ratio(rule.prepare(segment, context));
    rule.update(segment, context);
  }
  slots.push_back(parameter);
  return hash_of({reinterpret_cast<const char*>(slots.data()), slots.size() * sizeof parameter});
}

std::string text_of(const Optimizer& optimizer) {
  std::ostringstream text;
  text << optimizer.name() << ' ' << std::hex << behaviour(optimizer.rule()) << std::dec << " rate "
       << optimizer.learning_rate().name();
  text.precision(17);
  for (const int64_t step : {0, 1, 10, 100, 1000, 10'000}) text << ' ' << optimizer.learning_rate()(step);
  const GradientOptions& gradient = optimizer.gradient();
  text << " clipvalue " << gradient.clipvalue << " l2 " << gradient.l2 << " of "
       << gradient.gradient_accumulation_steps;
  return text.str();
}

}  // namespace

Catalog::Catalog(int num_servers, Partitioner partitioner)
    : num_servers_(num_servers), partitioner_(std::move(partitioner)) {
  if (num_servers < 1) fail<InvalidArgument>("[parameter server] there are ", num_servers, " servers, wanted some");
}

std::size_t Catalog::declare(ServerVariable variable) {
  for (const ServerVariable& other : variables_) {
    if (other.name != variable.name) continue;
    fail<InvalidArgument>("[parameter server] there are two variables of the name ", variable.name);
  }
  const std::vector<int64_t> parts = shard_rows(variable.shape, variable.dtype, partitioner_);
  const bool uncut = variable.optimizer && variable.optimizer->rule().one_by_one();
  if (uncut && parts.size() > 1) {
    fail<InvalidArgument>("[parameter server] ", variable.name, " would be cut into ", parts.size(), " parts, and ",
                          variable.optimizer->name(), " needs the whole: leave it uncut");
  }
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(variable.dtype)) *
                        c10::multiply_integers(variable.shape.begin(), variable.shape.end());
  if (uncut && bytes > kLongestFrame / 2) {
    fail<InvalidArgument>("[parameter server] ", variable.name, " has ", bytes, " bytes and cannot be cut, because ",
                          variable.optimizer->name(), " needs the whole; at most ", kLongestFrame / 2,
                          " fit a message");
  }
  const bool scalar = variable.shape.empty();
  const int64_t rows = scalar ? 1 : variable.shape.front();
  const int64_t row_bytes =
      std::max<int64_t>(1, static_cast<int64_t>(c10::elementSize(variable.dtype)) *
                               (scalar ? 1 : c10::multiply_integers(variable.shape.begin() + 1, variable.shape.end())));
  first_shard_.push_back(shards_.size());
  int64_t first_row = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const int64_t part_rows = scalar ? 1 : parts[part];
    const int64_t most = variable.by_rows || uncut ? part_rows : std::max<int64_t>(1, kBlockBytes / row_bytes);
    const std::string name = parts.size() == 1 ? variable.name : c10::str(variable.name, "/part_", part);
    int64_t done = 0;
    do {  // a variable without rows has one shard, too
      const int64_t count = std::min(most, part_rows - done);
      std::vector<int64_t> shape = variable.shape;
      if (!scalar) shape.front() = count;
      shards_.push_back({.variable = variables_.size(),
                         .part = static_cast<int64_t>(part),
                         .first_row = first_row + done,
                         .home = static_cast<int>(parts_ % num_servers_),
                         .spec = {.name = name,
                                  .shape = std::move(shape),
                                  .dtype = variable.dtype,
                                  .trainable = variable.optimizer.has_value(),
                                  .has_siblings = count < rows,
                                  .treatment = variable.treatment}});
      done += count;
    } while (done < part_rows);
    first_row += part_rows;
    ++parts_;
  }
  variables_.push_back(std::move(variable));
  return variables_.size() - 1;
}

std::pair<std::size_t, std::size_t> Catalog::shards_of(std::size_t variable) const {
  return {first_shard_.at(variable), variable + 1 < first_shard_.size() ? first_shard_[variable + 1] : shards_.size()};
}

std::vector<std::size_t> Catalog::shards_at(int home) const {
  std::vector<std::size_t> list;
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    if (shards_[shard].home == home) list.push_back(shard);
  }
  return list;
}

const Optimizer& Catalog::optimizer_of(std::size_t shard) const {
  const auto& optimizer = variables_[shards_.at(shard).variable].optimizer;
  return optimizer ? *optimizer : no_optimizer();
}

std::string Catalog::description() const {
  std::ostringstream text;
  text << num_servers_ << " servers\n";
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const ServerVariable& variable = variables_[i];
    const auto [first, last] = shards_of(i);
    text << variable.name << ' ' << variable.dtype << c10::IntArrayRef(variable.shape)
         << (variable.by_rows ? " by rows" : "") << (variable.initializer ? " initialized there" : "") << " in";
    for (std::size_t shard = first; shard < last; ++shard) {
      text << ' ' << shards_[shard].home << ':' << shards_[shard].first_row;
    }
    if (variable.optimizer) {
      text << ", " << text_of(*variable.optimizer) << (variable.treatment.decay ? "" : " without decay")
           << (variable.treatment.adapt ? "" : " without a trust ratio");
    }
    text << '\n';
  }
  return text.str();
}

std::string difference(const std::string& ours, const std::string& theirs) {
  std::istringstream own(ours);
  std::istringstream other(theirs);
  for (;;) {
    std::string a;
    std::string b;
    const bool more = static_cast<bool>(std::getline(own, a));
    const bool more_there = static_cast<bool>(std::getline(other, b));
    if (!more && !more_there) return "nothing";
    if (a != b || more != more_there) {
      return c10::str("\"", more ? a : "nothing more", "\" here, \"", more_there ? b : "nothing more", "\" there");
    }
  }
}

}  // namespace cohort
