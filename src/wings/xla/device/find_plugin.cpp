#include "wings/xla/device/find_plugin.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/fail.h"

namespace cohort {

namespace {

namespace fs = std::filesystem;

// The plugins of the packages of PyPI, below a folder of packages. The folder of the build has the same places.
struct PackagedPlugin {
  const char* name;
  const char* path;
};
constexpr std::array kPackaged = {
    PackagedPlugin{"tpu", "libtpu/libtpu.so"},
    PackagedPlugin{"cuda", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"},
    PackagedPlugin{"cuda", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
    PackagedPlugin{"cpu", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"},
};
constexpr const char* kNamesVariable = "PJRT_NAMES_AND_LIBRARY_PATHS";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

// Returns the name for a plugin of which only the path is known.
std::string name_of_file(const fs::path& path) {
  for (const PackagedPlugin& each : kPackaged) {
    if (path.filename() == fs::path(each.path).filename()) return each.name;
  }
  return path.stem().string();
}

void require_file(const XlaPluginPlace& place) {
  if (!is_file(place.path)) fail<NotFound>("[xla] ", place.source, " names ", place.path, ", which is no file");
}

// Appends the plugins of "name:path,name:path".
void add_named(const std::string& text, std::vector<XlaPluginPlace>& places) {
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const std::size_t mark = pair.find(':');
    if (mark == std::string_view::npos || mark == 0 || mark + 1 == pair.size()) {
      fail<InvalidArgument>("[xla] ", kNamesVariable, " has \"", pair, "\", wanted name:path,name:path");
    }
    places.push_back({std::string(pair.substr(0, mark)), fs::path(pair.substr(mark + 1)), kNamesVariable});
    require_file(places.back());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

void add_packaged(const fs::path& folder, const std::string& source, std::vector<XlaPluginPlace>& places) {
  for (const PackagedPlugin& each : kPackaged) {
    if (is_file(folder / each.path)) places.push_back({each.name, folder / each.path, source});
  }
}

// Returns the folder "plugins" beside or above the folder of the running program. It has to belong to a build: somebody
// else's folder of that name is no place from which to load code.
fs::path plugins_of_build() {
  std::error_code none;
  fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  bool in_build = false;
  for (int level = 0; level < 5 && folder.has_relative_path(); ++level) {
    in_build = in_build || is_file(folder / "CMakeCache.txt");
    if (in_build && fs::is_directory(folder / "plugins", none)) return folder / "plugins";
    folder = folder.parent_path();
  }
  return {};
}

// Returns the folders of the packages of all Pythons below lib.
std::vector<fs::path> package_folders(const fs::path& lib) {
  std::vector<fs::path> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(lib, none)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* const packages : {"site-packages", "dist-packages"}) folders.push_back(entry.path() / packages);
  }
  std::sort(folders.begin(), folders.end(), std::greater<>());  // the newest Python first
  return folders;
}

}  // namespace

std::vector<XlaPluginPlace> list_xla_plugins() {
  std::vector<XlaPluginPlace> places;
  add_named(variable(kNamesVariable), places);
  if (const std::string path = variable("TPU_LIBRARY_PATH"); !path.empty()) {
    places.push_back({"tpu", path, "TPU_LIBRARY_PATH"});
    require_file(places.back());
  }
  if (const fs::path folder = plugins_of_build(); !folder.empty()) add_packaged(folder, "the build folder", places);
  for (const char* const path : {"/usr/local/lib/libtpu.so", "/usr/lib/libtpu.so", "/lib/libtpu.so"}) {
    if (is_file(path)) places.push_back({"tpu", path, "the system's libraries"});
  }
  std::vector<fs::path> roots = {"/usr/local/lib", "/usr/lib"};
  if (const std::string home = variable("HOME"); !home.empty())
    roots.insert(roots.begin(), fs::path(home) / ".local/lib");
  if (const std::string own = variable("VIRTUAL_ENV"); !own.empty()) roots.insert(roots.begin(), fs::path(own) / "lib");
  for (const fs::path& root : roots) {
    for (const fs::path& folder : package_folders(root)) add_packaged(folder, "a Python package", places);
  }
  std::vector<XlaPluginPlace> firsts;
  for (const XlaPluginPlace& place : places) {
    const auto same = [&](const XlaPluginPlace& other) { return other.name == place.name; };
    if (std::none_of(firsts.begin(), firsts.end(), same)) firsts.push_back(place);
  }
  return firsts;
}

XlaPluginPlace find_xla_plugin(std::string_view wanted, std::string_view source) {
  if (wanted.find('/') != std::string_view::npos || wanted.ends_with(".so")) {
    XlaPluginPlace place{name_of_file(wanted), fs::path(wanted), std::string(source)};
    require_file(place);
    return place;
  }
  const std::vector<XlaPluginPlace> places = list_xla_plugins();
  std::string known;
  for (const XlaPluginPlace& place : places) {
    if (wanted.empty() || place.name == wanted) return place;
    known.append(known.empty() ? "" : ", ").append(place.name).append(" (").append(place.path.string()).append(")");
  }
  if (!known.empty()) {
    fail<NotFound>("[xla] ", source, "=", wanted, ": there is no plugin of that name, only ", known,
                   "; the path of a file is taken, too");
  }
  fail<NotFound>(
      "[xla] ", source, wanted.empty() ? "" : "=", wanted,
      ": no plugin was found: PJRT_NAMES_AND_LIBRARY_PATHS and TPU_LIBRARY_PATH are not set, and neither the "
      "build folder nor the system nor Python's packages have one; give the path of a plugin, or let "
      "scripts/install-deps.sh xla bring XLA's plugin for CPUs");
}

}  // namespace cohort
