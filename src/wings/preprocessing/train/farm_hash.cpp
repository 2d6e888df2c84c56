// FarmHash's Fingerprint64 and SipHash, whose constants and steps are those of their authors: Geoff Pike's FarmHash
// (farmhashna::Hash64; Google, MIT license), and J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF"
// (2012). Words are read from the bytes by memcpy; they are those of a machine with little-endian words.
#include "wings/preprocessing/train/farm_hash.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "train/layers/support.h"

namespace cohort {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127ULL;
constexpr uint64_t kFarm1 = 0xb492b66fbe98f273ULL;
constexpr uint64_t kFarm2 = 0x9ae16a3b2f90404fULL;

template <typename Word>
uint64_t word_at(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
uint64_t fetch(const char* bytes) {
  return word_at<uint64_t>(bytes);
}
uint64_t shift_mixed(uint64_t word) {
  return word ^ (word >> 47);
}
uint64_t farm_mixed(uint64_t u, uint64_t v, uint64_t factor) {
  const uint64_t a = shift_mixed((u ^ v) * factor);
  return shift_mixed((v ^ a) * factor) * factor;
}

uint64_t farm_to_16(const char* s, std::size_t size) {
  if (size >= 8) {
    const uint64_t factor = kFarm2 + size * 2;
    const uint64_t a = fetch(s) + kFarm2;
    const uint64_t b = fetch(s + size - 8);
    const uint64_t c = std::rotr(b, 37) * factor + a;
    const uint64_t d = (std::rotr(a, 25) + b) * factor;
    return farm_mixed(c, d, factor);
  }
  if (size >= 4) {
    const uint64_t factor = kFarm2 + size * 2;
    return farm_mixed(size + (word_at<uint32_t>(s) << 3), word_at<uint32_t>(s + size - 4), factor);
  }
  if (size == 0) return kFarm2;
  const auto byte = [s](std::size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
  const uint32_t y = byte(0) + (byte(size >> 1) << 8);
  const uint32_t z = static_cast<uint32_t>(size) + (byte(size - 1) << 2);
  return shift_mixed(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

uint64_t farm_to_32(const char* s, std::size_t size) {
  const uint64_t factor = kFarm2 + size * 2;
  const uint64_t a = fetch(s) * kFarm1;
  const uint64_t b = fetch(s + 8);
  const uint64_t c = fetch(s + size - 8) * factor;
  const uint64_t d = fetch(s + size - 16) * kFarm2;
  return farm_mixed(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + kFarm2, 18) + c, factor);
}

uint64_t farm_to_64(const char* s, std::size_t size) {
  const uint64_t factor = kFarm2 + size * 2;
  const uint64_t a = fetch(s) * kFarm2;
  const uint64_t b = fetch(s + 8);
  const uint64_t c = fetch(s + size - 8) * factor;
  const uint64_t d = fetch(s + size - 16) * kFarm2;
  const uint64_t y = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  const uint64_t z = farm_mixed(y, a + std::rotr(b + kFarm2, 18) + c, factor);
  const uint64_t e = fetch(s + 16) * factor;
  const uint64_t f = fetch(s + 24);
  const uint64_t g = (y + fetch(s + size - 32)) * factor;
  const uint64_t h = (z + fetch(s + size - 24)) * factor;
  return farm_mixed(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

using FarmPair = std::pair<uint64_t, uint64_t>;

FarmPair farm_32_more(const char* s, uint64_t a, uint64_t b) {
  const uint64_t w = fetch(s), x = fetch(s + 8), y = fetch(s + 16), z = fetch(s + 24);
  a += w;
  b = std::rotr(b + a + z, 21);
  const uint64_t c = a;
  a += x;
  a += y;
  b += std::rotr(a, 44);
  return {a + z, b + c};
}

}  // namespace

uint64_t farm_fingerprint(std::string_view bytes) {
  const std::size_t size = bytes.size();
  const char* s = bytes.data();
  if (size <= 16) return farm_to_16(s, size);
  if (size <= 32) return farm_to_32(s, size);
  if (size <= 64) return farm_to_64(s, size);
  constexpr uint64_t kSeed = 81;
  uint64_t x = kSeed;
  uint64_t y = kSeed * kFarm1 + 113;
  uint64_t z = shift_mixed(y * kFarm2 + 113) * kFarm2;
  FarmPair v = {0, 0}, w = {0, 0};
  x = x * kFarm2 + fetch(s);
  const char* const end = s + (size - 1) / 64 * 64;
  const char* const last = s + size - 64;
  do {
    x = std::rotr(x + y + v.first + fetch(s + 8), 37) * kFarm1;
    y = std::rotr(y + v.second + fetch(s + 48), 42) * kFarm1;
    x ^= w.second;
    y += v.first + fetch(s + 40);
    z = std::rotr(z + w.first, 33) * kFarm1;
    v = farm_32_more(s, v.second * kFarm1, x + w.first);
    w = farm_32_more(s + 32, z + w.second, y + fetch(s + 16));
    std::swap(z, x);
    s += 64;
  } while (s != end);
  const uint64_t factor = kFarm1 + ((z & 0xff) << 1);
  s = last;
  w.first += (size - 1) & 63;
  v.first += w.first;
  w.first += v.first;
  x = std::rotr(x + y + v.first + fetch(s + 8), 37) * factor;
  y = std::rotr(y + v.second + fetch(s + 48), 42) * factor;
  x ^= w.second * 9;
  y += v.first * 9 + fetch(s + 40);
  z = std::rotr(z + w.first, 33) * factor;
  v = farm_32_more(s, v.second * factor, x + w.first);
  w = farm_32_more(s + 32, z + w.second, y + fetch(s + 16));
  std::swap(z, x);
  return farm_mixed(farm_mixed(v.first, w.first, factor) + shift_mixed(y) * kFarm0 + z,
                    farm_mixed(v.second, w.second, factor) + x, factor);
}

uint64_t sip_hash(std::string_view bytes, const std::array<uint64_t, 2>& key) {
  std::array<uint64_t, 4> v = {key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL,
                               key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
  const auto rounds = [&v](int count) {
    for (int i = 0; i < count; ++i) {
      v[0] += v[1];
      v[2] += v[3];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[1];
      v[0] += v[3];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] = std::rotl(v[2], 32);
    }
  };
  const auto take = [&](uint64_t word) {
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
  };
  std::size_t place = 0;
  for (; place + 8 <= bytes.size(); place += 8) take(fetch(bytes.data() + place));
  uint64_t rest = 0;
  std::memcpy(&rest, bytes.data() + place, bytes.size() - place);
  take(rest | static_cast<uint64_t>(bytes.size()) << 56);
  v[2] ^= 0xff;
  rounds(4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t joined_fingerprint(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995ULL;
  uint64_t result = first ^ kFactor;
  result ^= shift_mixed(second * kFactor) * kFactor;
  result *= kFactor;
  result = shift_mixed(result) * kFactor;
  return shift_mixed(result);
}

TokenHash::TokenHash(std::string_view type, const std::vector<int64_t>& salt) {
  if (salt.size() > 2) fail_option(type, "salt has one or two numbers, got ", salt.size());
  if (!salt.empty()) key_ = {static_cast<uint64_t>(salt.front()), static_cast<uint64_t>(salt.back())};
}

int64_t TokenHash::bin(std::string_view token, int64_t bins) const {
  const uint64_t hash = key_.has_value() ? sip_hash(token, *key_) : farm_fingerprint(token);
  return static_cast<int64_t>(hash % static_cast<uint64_t>(bins));
}

int64_t TokenHash::bin(int64_t token, int64_t bins) const {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), token).ptr;
  return bin(std::string_view(digits.begin(), static_cast<std::size_t>(end - digits.begin())), bins);
}

}  // namespace cohort
