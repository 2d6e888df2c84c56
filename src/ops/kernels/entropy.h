// The kernels of kernels.h for cross-entropies, to which the same holds.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace cohort::kernels {

// Rows of logits, one for each class, with the label of each row, which is within the classes.
struct Labelled {
  const void* logits = nullptr;
  const int64_t* labels = nullptr;
  int64_t rows = 0;
  int64_t classes = 0;
};

// Computes each row's cross-entropy: the logarithm of the sum of exp(logits), less the label's logit. `shifts` gets two
// numbers a row, its largest logit and the logarithm of the sum of exp(logit - largest). The logarithm is the C
// library's, and so are its bits.
void entropy(void* losses, void* shifts, const Labelled& of, c10::ScalarType dtype);

// The gradient of entropy() by the logits: the probabilities, less 1 at the label, times the row's factor. The factors
// are `step` elements apart; 0: there is one for all rows.
void entropy_gradient(void* dst, const void* factors, int64_t step, const void* shifts, const Labelled& of,
                      c10::ScalarType dtype);

}  // namespace cohort::kernels
