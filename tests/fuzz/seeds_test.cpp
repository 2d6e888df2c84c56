// The fuzzers that hold conversations or make what they read of numbers, on random bytes from fixed seeds: what they
// want (see each of them) holds. COHORT_SEEDS and COHORT_FIRST_SEED as for the simulation.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <random>
#include <vector>

#include "tests/simulation/seeds.h"

// The entry of each fuzzer (entry.h).
extern "C" {
int fuzz_coordination(const uint8_t* data, std::size_t size);
int fuzz_dispatcher(const uint8_t* data, std::size_t size);
int fuzz_elastic(const uint8_t* data, std::size_t size);
int fuzz_parameter_server(const uint8_t* data, std::size_t size);
int fuzz_replies(const uint8_t* data, std::size_t size);
int fuzz_tfds(const uint8_t* data, std::size_t size);
}

namespace cohort::fuzz::seeds_test {
namespace {

using Fuzzer = int (*)(const uint8_t* data, std::size_t size);

void run(Fuzzer fuzzer, uint64_t seeds) {
  const uint64_t first = simulation::number_in("COHORT_FIRST_SEED", 1);
  const uint64_t count = simulation::number_in("COHORT_SEEDS", seeds);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 draw(seed);
    constexpr uint64_t kLongest = 512;
    std::vector<uint8_t> bytes(1 + draw() % kLongest);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw());
    try {
      fuzzer(bytes.data(), bytes.size());
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  }
}

TEST(Fuzzers, Coordination) {
  run(fuzz_coordination, 2000);
}
TEST(Fuzzers, Dispatcher) {
  run(fuzz_dispatcher, 100);
}
TEST(Fuzzers, Elastic) {
  run(fuzz_elastic, 2000);
}
TEST(Fuzzers, ParameterServer) {
  run(fuzz_parameter_server, 300);
}
TEST(Fuzzers, Replies) {
  run(fuzz_replies, 60);
}
TEST(Fuzzers, TFDS) {
  run(fuzz_tfds, 1000);
}

}  // namespace
}  // namespace cohort::fuzz::seeds_test
