#include "wings/xla/device/compiler.h"

#include <chrono>
#include <fstream>

#include "base/fail.h"
#include "base/log.h"

namespace cohort {

namespace {

// Returns the instruction sets of this machine's CPU, for which XLA's plugin for CPUs compiles.
std::string cpu_flags() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

std::string describe_platform(const XlaClient& client) {
  std::string text = c10::str(client.platform(), "|", client.platform_version(), "|", client.plugin().version(), "|");
  for (const auto& [name, value] : client.plugin().attributes()) text += name + "=" + to_text(value) + "|";
  for (const XlaDevice& device : client.devices()) {
    text += c10::str(device.id, " ", device.process, " ", device.kind, " ", to_text(device.coordinates), " ",
                     device.core_on_chip, "|");
  }
  return client.platform() == "cpu" ? text + cpu_flags() : text;
}

}  // namespace

XlaCompiler::XlaCompiler(XlaClientPtr client, const XlaCompilerOptions& options)
    : client_(std::move(client)), directory_(options.directory), platform_(describe_platform(*client_)) {
  if (!directory_.empty()) prepare_program_folder(directory_);
}

XlaExecutablePtr XlaCompiler::compile(const std::string& text, const XlaCompileOptions& options) {
  const std::string key = program_key(text, options, platform_);
  std::promise<XlaExecutablePtr> promise;
  std::shared_future<XlaExecutablePtr> program;
  bool own = false;
  {
    const std::lock_guard lock(mutex_);
    auto [found, added] = programs_.try_emplace(key);
    if (added) found->second = promise.get_future().share();
    own = added;
    program = found->second;
    if (!own) ++figures_.in_memory;
  }
  if (!own) {
    // The thread that compiles it has the same limit, and one of those for loading before.
    if (program.wait_for(2 * options.limit) == std::future_status::ready) return program.get();
    fail<DeadlineExceeded>("[xla] this thread waited for the program that another one compiles");
  }
  try {
    promise.set_value(make(key, text, options));
  } catch (...) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    programs_.erase(key);
  }
  return program.get();
}

XlaExecutablePtr XlaCompiler::make(const std::string& key, const std::string& text, const XlaCompileOptions& options) {
  const std::filesystem::path file = directory_ / (key + ".xla");
  if (!directory_.empty()) {
    if (XlaExecutablePtr program = load(file, options)) {
      const std::lock_guard lock(mutex_);
      ++figures_.on_disk;
      return program;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  XlaExecutablePtr program = client_->compile(text, options);
  {
    const std::lock_guard lock(mutex_);
    ++figures_.compiled;
    figures_.compile_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (!directory_.empty()) save(file, program->program());
  return program;
}

XlaExecutablePtr XlaCompiler::load(const std::filesystem::path& file, const XlaCompileOptions& options) const {
  try {
    return client_->load(read_program_file(file), options);
  } catch (const NotFound&) {
    return nullptr;
  } catch (const Error& error) {
    log().warn("[xla] a kept program is compiled anew: {}", error.what());
    return nullptr;
  }
}

void XlaCompiler::save(const std::filesystem::path& file, const XlaProgram& program) const {
  try {
    write_program_file(file, program.serialize());
  } catch (const Error& error) {  // the program runs all the same
    log().warn("[xla] a program cannot be kept: {}", error.what());
  }
}

XlaCompilerFigures XlaCompiler::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

}  // namespace cohort
