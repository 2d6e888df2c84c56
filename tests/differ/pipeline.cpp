#include "tests/differ/pipeline.h"

#include <algorithm>
#include <deque>
#include <functional>

namespace cohort::differ {
namespace {

int64_t mapped(int64_t x) {
  return 3 * x + 1;
}
int64_t zipped(int64_t i) {
  return 100 + i;
}
// Returns the number of elements in the dataset that interleave() opens for x.
int64_t opened(int64_t x) {
  return x % 4;
}

int64_t sum_of(const Rows& rows) {
  int64_t sum = 0;
  for (const Row& row : rows) sum += row.x;
  return sum;
}

std::vector<Rows> stacked(const std::vector<Rows>& from, int64_t size, bool drop_remainder) {
  std::vector<Rows> all;
  for (const Rows& one : from) {
    if (all.empty() || static_cast<int64_t>(all.back().size()) == size) all.emplace_back();
    all.back().push_back(one.front());
  }
  if (drop_remainder && !all.empty() && static_cast<int64_t>(all.back().size()) < size) all.pop_back();
  return all;
}

}  // namespace

Dataset Operation::on(const Dataset& input) const {
  switch (kind) {
    case Kind::kMap:
      return input.map(
          [](Example e) {
            e.x = 3 * e.x + 1;
            return e;
          },
          {.num_parallel_calls = static_cast<int>(1 + second % 3)});
    case Kind::kBatch:
      return input.batch(number, {.drop_remainder = flag});
    case Kind::kUnbatch:
      return input.unbatch();
    case Kind::kRepeat:
      return input.repeat(number % 4);
    case Kind::kTake:
      return input.take(number);
    case Kind::kSkip:
      return input.skip(second);
    case Kind::kFilter:
      return input.filter([m = number + 1](const Example& e) { return e.x.sum().item<int64_t>() % m != 0; });
    case Kind::kZip:
      return input.zip(Dataset::range(100, 100 + number));
    case Kind::kConcatenate:
      return input.concatenate(Dataset::range(number));
    case Kind::kInterleave:
      return input.interleave(
          [](const Example& e) {
            const int64_t x = e.x.item<int64_t>();
            return Dataset::range(x, x + opened(x));
          },
          {.cycle_length = number, .block_length = 1 + second % 3});
    case Kind::kCache:
      return input.cache();
    case Kind::kPrefetch:
      return input.prefetch(number);
    case Kind::kShard:
      return input.shard(number, second % number);
    default:
      return input.shuffle(1, {.seed = static_cast<uint64_t>(number)});  // a buffer of one keeps the order
  }
}

// Follows tf.data: the open datasets yield `block` elements each in turn. A slot whose dataset has ended is skipped
// once and opens the next dataset on its next turn.
std::vector<Rows> Operation::interleaved(const std::vector<Rows>& input) const {
  const int64_t block = 1 + second % 3;
  std::vector<std::optional<std::deque<int64_t>>> cycle(static_cast<std::size_t>(number));
  std::vector<Rows> all;
  std::size_t next = 0, place = 0;
  int64_t given = 0;
  const auto advance = [&] {
    given = 0;
    place = (place + 1) % cycle.size();
  };
  const auto is_open = [](const auto& each) { return each.has_value(); };
  while (next < input.size() || std::any_of(cycle.begin(), cycle.end(), is_open)) {
    auto& here = cycle[place];
    if (here && here->empty()) {
      here.reset();
      advance();
    } else if (here) {
      all.push_back({{here->front()}});
      here->pop_front();
      if (++given == block) advance();
    } else if (next < input.size()) {
      const int64_t x = input[next++].front().x;
      here.emplace();
      for (int64_t i = 0; i < opened(x); ++i) here->push_back(x + i);
    } else {
      advance();
    }
  }
  return all;
}

List Operation::on(const List& input) const {
  List out{{}, input.batched, input.paired};
  const auto& from = input.elements;
  const auto count = static_cast<int64_t>(from.size());
  const auto keep = [&](const std::function<bool(int64_t)>& kept) {
    for (int64_t i = 0; i < count; ++i) {
      if (kept(i)) out.elements.push_back(from[i]);
    }
  };
  switch (kind) {
    case Kind::kMap:
      out.elements = from;
      for (Rows& rows : out.elements) {
        for (Row& row : rows) row.x = mapped(row.x);
      }
      break;
    case Kind::kBatch:
      out.batched = true;
      out.elements = stacked(from, number, flag);
      break;
    case Kind::kUnbatch:
      out.batched = false;
      for (const Rows& rows : from) {
        for (const Row& row : rows) out.elements.push_back({row});
      }
      break;
    case Kind::kRepeat:
      for (int64_t i = 0; i < number % 4; ++i) out.elements.insert(out.elements.end(), from.begin(), from.end());
      break;
    case Kind::kTake:
      keep([&](int64_t i) { return i < number; });
      break;
    case Kind::kSkip:
      keep([&](int64_t i) { return i >= second; });
      break;
    case Kind::kFilter:
      keep([&](int64_t i) { return sum_of(from[i]) % (number + 1) != 0; });
      break;
    case Kind::kZip:
      out.paired = true;
      for (int64_t i = 0; i < std::min(count, number); ++i) out.elements.push_back({{from[i].front().x, zipped(i)}});
      break;
    case Kind::kConcatenate:
      out.elements = from;
      for (int64_t i = 0; i < number; ++i) out.elements.push_back({{i}});
      break;
    case Kind::kInterleave:
      out.elements = interleaved(from);
      break;
    case Kind::kShard:
      keep([&](int64_t i) { return i % number == second % number; });
      break;
    default:
      out.elements = from;
  }
  return out;
}

}  // namespace cohort::differ
