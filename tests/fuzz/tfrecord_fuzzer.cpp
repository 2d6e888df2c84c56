// Any file, plain or compressed, gives records or is refused with an error of ours; and so does any record as a
// tf.train.Example.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cohort/data/tf_example.h"
#include "cohort/data/tfrecord.h"
#include "cohort/error.h"

namespace {

void parse(std::string_view bytes) {
  try {
    const cohort::TFExample example = cohort::TFExample::parse(bytes, "fuzz");
    for (const std::string& name : example.names()) (void)example.kind(name);
    (void)cohort::TFExample::parse(example.serialize());
  } catch (const cohort::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static const int file = ::memfd_create("fuzz", 0);
  static const std::string name = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data + 1, size - 1, 0) != static_cast<ssize_t>(size - 1))
    std::abort();
  parse({reinterpret_cast<const char*>(data) + 1, size - 1});
  try {
    cohort::TFRecordReader reader(name, {.skip_damaged = data[0] % 2 == 0});
    int64_t before = 0;
    while (const auto record = reader.next()) {
      parse(*record);
      if (reader.offset() < before + 16 + static_cast<int64_t>(record->size())) std::abort();
      before = reader.offset();
    }
    reader.seek(0);
    (void)reader.next();
  } catch (const cohort::Error&) {
  }
  return 0;
}
