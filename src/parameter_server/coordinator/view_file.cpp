#include "parameter_server/coordinator/view_file.h"

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/fail.h"

namespace cohort {

namespace {

uint32_t checksum_of(const std::string& text) {
  return crc32c(std::as_bytes(std::span(text)));
}

}  // namespace

std::optional<parameter_server::View> ViewFile::read() const {
  if (file_.empty() || !std::filesystem::exists(file_)) return std::nullopt;
  std::ifstream in(file_, std::ios::binary);
  std::array<char, sizeof(uint32_t)> head{};
  in.read(head.data(), head.size());
  uint32_t checksum = 0;
  std::memcpy(&checksum, head.data(), head.size());
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  parameter_server::View view;
  if (in && checksum == checksum_of(text) && view.ParseFromString(text)) return view;
  fail<DataLoss>("[coordinator] ", file_.string(),
                 " is damaged: wanted the last view of the run; remove the folder to begin another one");
}

void ViewFile::write(const parameter_server::View& view) const {
  if (file_.empty()) return;
  const std::string text = view.SerializeAsString();
  const uint32_t checksum = checksum_of(text);
  AtomicFile out(file_);
  out.write(std::as_bytes(std::span(&checksum, 1)));
  out.write(text);
  out.commit();
}

}  // namespace cohort
