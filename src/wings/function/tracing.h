// The signatures that a function has met, and how often it met new ones. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "wings/function/signature.h"

namespace cohort {

// The signatures of a function. One thread at a time.
class SignatureTable {
 public:
  // Returns the place of the narrowest signature that accepts this one, or nothing.
  std::optional<std::size_t> find(const Signature& signature) const;
  // Returns the signature with every size unknown in which it differs from one that is there and like it otherwise.
  Signature relaxed_with_known(const Signature& signature) const;
  // Adds a signature and returns its place.
  std::size_t add(Signature signature);

  std::size_t size() const { return signatures_.size(); }
  const Signature& operator[](std::size_t place) const { return signatures_[place]; }

 private:
  std::deque<Signature> signatures_;
};

// Counts the calls of a function that met a new signature among its last ones, as TensorFlow does: the fifth of the
// last ten calls that does so gives a warning, of which there are two at most. One thread at a time.
class RetracingDetector {
 public:
  void called_without_tracing();
  // Returns the warning that is due, or an empty text. `difference` is what the new signature differs in.
  std::string called_with_tracing(const std::string& function, const std::string& difference);

 private:
  std::deque<int64_t> calls_per_tracing_;  // the calls from one new signature to the next
  int64_t calls_ = 0;                      // their sum
  int warnings_ = 0;
};

}  // namespace cohort
