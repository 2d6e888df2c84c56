#include "step/exchange/buckets.h"

#include <algorithm>
#include <utility>

#include "base/slices.h"

namespace cohort {

namespace {

// Returns where a parameter lies, with the padding behind it.
BucketRun place_of(const FlatParameters& flat, std::size_t parameter) {
  const FlatParameter& where = flat.parameters()[parameter];
  return {.group = where.group, .begin = where.offset, .end = where.offset + aligned_slice(where.size)};
}

int64_t padded_bytes(const FlatParameters& flat, std::size_t parameter) {
  const BucketRun place = place_of(flat, parameter);
  return (place.end - place.begin) * static_cast<int64_t>(c10::elementSize(flat.groups()[place.group].dtype));
}

void sort_as_they_lie(const FlatParameters& flat, std::vector<std::size_t>& parameters) {
  std::sort(parameters.begin(), parameters.end(), [&](std::size_t a, std::size_t b) {
    const FlatParameter& first = flat.parameters()[a];
    const FlatParameter& second = flat.parameters()[b];
    return std::pair(first.group, first.offset) < std::pair(second.group, second.offset);
  });
}

Bucket bucket_of(const FlatParameters& flat, std::span<const std::size_t> parameters) {
  Bucket bucket;
  bucket.parameters.assign(parameters.begin(), parameters.end());
  sort_as_they_lie(flat, bucket.parameters);
  bucket.completed = bucket.parameters;
  for (const std::size_t p : bucket.parameters) {
    const BucketRun place = place_of(flat, p);
    if (!bucket.runs.empty() && bucket.runs.back().group == place.group && bucket.runs.back().end == place.begin) {
      bucket.runs.back().end = place.end;
    } else {
      bucket.runs.push_back(place);
    }
  }
  return bucket;
}

}  // namespace

std::vector<Bucket> plan_buckets(const FlatParameters& flat, std::span<const std::size_t> order,
                                 const BucketSizes& sizes) {
  std::size_t last = order.size() - 1;  // where the last bucket begins
  int64_t bytes = padded_bytes(flat, order[last]);
  while (last > 0 && bytes + padded_bytes(flat, order[last - 1]) <= sizes.most_last)
    bytes += padded_bytes(flat, order[--last]);
  std::vector<Bucket> buckets;
  std::size_t begin = 0;
  bytes = 0;
  for (std::size_t i = 0; i < last; ++i) {
    bytes += padded_bytes(flat, order[i]);
    if (bytes < sizes.full && i + 1 < last) continue;
    buckets.push_back(bucket_of(flat, order.subspan(begin, i + 1 - begin)));
    begin = i + 1;
    bytes = 0;
  }
  buckets.push_back(bucket_of(flat, order.subspan(last)));
  return buckets;
}

std::vector<Bucket> buckets_of_packs(const FlatParameters& flat, std::span<const std::size_t> order,
                                     const std::vector<std::vector<Pack>>& packs) {
  std::vector<std::size_t> comes(order.size());  // [parameter]: its place in the order
  for (std::size_t i = 0; i < order.size(); ++i) comes[order[i]] = i;
  std::vector<Bucket> buckets;
  for (std::size_t g = 0; g < packs.size(); ++g) {
    for (const Pack& pack : packs[g]) {
      Bucket bucket{.runs = {{.group = g, .begin = pack.begin, .end = pack.end}}};
      for (const std::size_t p : flat.groups()[g].members) {
        const FlatParameter& where = flat.parameters()[p];
        if (where.offset < pack.end && where.offset + where.size > pack.begin) bucket.parameters.push_back(p);
      }
      if (!bucket.parameters.empty()) buckets.push_back(std::move(bucket));  // else it has padding, which stays zero
    }
  }
  const auto last_comes = [&](const Bucket& bucket) {
    std::size_t last = 0;
    for (const std::size_t p : bucket.parameters) last = std::max(last, comes[p]);
    return last;
  };
  std::stable_sort(buckets.begin(), buckets.end(),
                   [&](const Bucket& a, const Bucket& b) { return last_comes(a) < last_comes(b); });
  std::vector<std::size_t> last_bucket(order.size());  // [parameter]
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const std::size_t p : buckets[b].parameters) last_bucket[p] = b;
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const std::size_t p : buckets[b].parameters) {
      if (last_bucket[p] == b) buckets[b].completed.push_back(p);
    }
  }
  return buckets;
}

}  // namespace cohort
