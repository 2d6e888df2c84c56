// The kind of an IntegerLookup with what it learned.
#pragma once

#include <optional>

#include "cohort/train/layers/preprocessing.h"
#include "wings/preprocessing/train/vocabulary.h"

namespace cohort {

// What it was made with, as its LayerKind::options(), and the vocabulary that it learned.
struct IntegerLookupParts {
  IntegerLookupOptions options;
  std::optional<Vocabulary<int64_t>> learned = std::nullopt;
};

AdaptedLayer integer_lookup_of(const IntegerLookupParts& parts);

}  // namespace cohort
