// Text of files, joined to one and cut into examples.
#include <algorithm>
#include <fstream>

#include "base/fail.h"
#include "base/log.h"
#include "cohort/data/datasets.h"
#include "data/readers/folder_entries.h"
#include "data/readers/held_out.h"
#include "wings/text/data/text/windows.h"

namespace cohort::datasets {

namespace {

constexpr std::size_t kLookedAt = 8'192;  // bytes at the beginning of a file that say whether it is text, as git does

bool ends_with_one(const std::string& name, const std::vector<std::string>& suffixes) {
  return suffixes.empty() || std::any_of(suffixes.begin(), suffixes.end(),
                                         [&](const std::string& suffix) { return name.ends_with(suffix); });
}

// Appends the files of a folder and its folders, by name.
void collect(const std::filesystem::path& folder, const std::vector<std::string>& suffixes,
             std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& entry : sorted_entries(folder)) {
    const std::string name = entry.filename().string();
    const auto kind = std::filesystem::symlink_status(entry).type();
    if (name.starts_with('.')) continue;
    if (kind == std::filesystem::file_type::directory) collect(entry, suffixes, files);
    if (kind == std::filesystem::file_type::regular && ends_with_one(name, suffixes)) files.push_back(entry);
  }
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open() || in.bad()) fail<Unavailable>("[data] ", file.string(), ": cannot be read");
  return text;
}

// Returns the text of a folder's files, and says how many are no text.
std::string joined(const std::filesystem::path& folder, const TextOptions& options) {
  std::vector<std::filesystem::path> files;
  collect(folder, options.suffixes, files);
  std::string text;
  std::size_t left_out = 0;
  for (const std::filesystem::path& file : files) {
    const std::string own = read_file(file);
    if (options.suffixes.empty() && own.substr(0, kLookedAt).find('\0') != std::string::npos) {
      ++left_out;
      continue;
    }
    text += own;
    text += '\0';
  }
  if (left_out > 0) log().info("[data] {}: {} files are no text and are left out", folder.string(), left_out);
  if (text.empty()) {
    fail<NotFound>(
        "[data] ", folder.string(), ": has no text files",
        options.suffixes.empty() ? "" : ", of those whose names end with " + c10::Join(", ", options.suffixes));
  }
  return text;
}

}  // namespace

TrainTest text(const std::filesystem::path& place, const TextOptions& options) {
  require_held_out("text", options.held_out);
  std::error_code ignored;
  if (!std::filesystem::exists(place, ignored)) {
    fail<NotFound>("[data] ", place.string(), ": there is no such file or folder of text");
  }
  const bool folder = std::filesystem::is_directory(place, ignored);
  const torch::Tensor windows =
      windows_of("text", folder ? joined(place, options) : read_file(place), options.seq_length);
  const auto [train, test] = hold_out(windows.size(0), options.held_out, options.seed);
  return {.train = examples_of(windows.index_select(0, train)), .test = examples_of(windows.index_select(0, test))};
}

}  // namespace cohort::datasets
