// Hashes of bytes that TensorFlow divides categories by.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cohort {

// Returns FarmHash's Fingerprint64, which is the same on all machines.
uint64_t farm_fingerprint(std::string_view bytes);

// Returns SipHash-2-4 under a key.
uint64_t sip_hash(std::string_view bytes, const std::array<uint64_t, 2>& key);

// Returns one fingerprint of two, in this order (TensorFlow's FingerprintCat64).
uint64_t joined_fingerprint(uint64_t first, uint64_t second);

// How Keras divides tokens among `bins`: by Fingerprint64, or by SipHash where there is a salt.
class TokenHash {
 public:
  // Takes a salt of one or two numbers, or none. InvalidArgument: it has more; `type` is the layer's.
  TokenHash(std::string_view type, const std::vector<int64_t>& salt);
  int64_t bin(std::string_view token, int64_t bins) const;
  // The same of an integer's decimal digits.
  int64_t bin(int64_t token, int64_t bins) const;

 private:
  std::optional<std::array<uint64_t, 2>> key_;
};

}  // namespace cohort
