#include "checkpoint/series.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/regular_file.h"

namespace cohort {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDigits = 18;  // the most digits of a step

}  // namespace

std::vector<int64_t> checkpoint_steps(const fs::path& directory, const std::string& name) {
  std::vector<int64_t> found;
  const std::string prefix = name + "-";
  std::error_code error;
  // A folder that cannot be listed has none: it may be removed at the same time.
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename();
    if (!file.starts_with(prefix)) continue;
    const std::string number = file.substr(prefix.size());
    if (number.empty() || number.size() > kMaxDigits ||
        !std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    found.push_back(std::stoll(number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

CheckpointPointer read_pointer(const fs::path& directory) {
  CheckpointPointer pointer;
  const auto text = read_regular_file(directory / kPointerFile, "checkpoint");
  if (!text) return pointer;
  const nlohmann::json tree = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object()) return pointer;
  if (const auto kept = tree.find("kept"); kept != tree.end() && kept->is_array()) {
    for (const auto& step : *kept) {
      if (step.is_number_integer()) pointer.kept.insert(step.get<int64_t>());
    }
  }
  if (const auto last = tree.find("last_kept"); last != tree.end() && last->is_number_integer()) {
    pointer.last_kept = last->get<int64_t>();
  }
  if (const auto finished = tree.find("finished"); finished != tree.end() && finished->is_boolean()) {
    pointer.finished = finished->get<bool>();
  }
  if (const auto run = tree.find("run"); run != tree.end() && run->is_string()) pointer.run = run->get<std::string>();
  return pointer;
}

void write_pointer(const fs::path& file, const fs::path& draft, const std::string& name,
                   const std::vector<int64_t>& steps, const CheckpointPointer& pointer) {
  std::vector<std::string> all;
  for (const int64_t step : steps) all.push_back(name + "-" + std::to_string(step));
  const nlohmann::json tree{{"latest", all.empty() ? "" : all.back()},
                            {"all", all},
                            {"kept", pointer.kept},
                            {"last_kept", pointer.last_kept},
                            {"finished", pointer.finished},
                            {"run", pointer.run}};
  AtomicFile out(draft);
  out.write(tree.dump(2) + "\n");
  out.commit();
  if (std::error_code error; fs::rename(draft, file, error), error) {
    fail<Unavailable>("[checkpoint] ", file.string(), ": cannot be renamed: ", error.message());
  }
  flush_folder(file.parent_path());
}

}  // namespace cohort
