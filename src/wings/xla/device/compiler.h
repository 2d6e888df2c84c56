// Programs compiled once: in memory, and in a folder that later runs read.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "wings/xla/device/client.h"

namespace cohort {

struct XlaCompilerOptions {
  // The folder in which compiled programs are kept for later runs; it is made if it is not there. Who can write to it
  // can run code in this process: FailedPrecondition, if it belongs to somebody else or all may write to it. Empty:
  // they are not kept.
  std::filesystem::path directory = {};
};

// The numbers of programs that were asked for.
struct XlaCompilerFigures {
  int64_t in_memory = 0;  // found among those of this object
  int64_t on_disk = 0;    // found in the folder
  int64_t compiled = 0;
  double compile_seconds = 0;
};

// Compiles each program once: a program is its text, its options, and the plugin with its version and devices.
// Thread-safe; of threads that want the same program one compiles it and the others wait for that.
class XlaCompiler {
 public:
  explicit XlaCompiler(XlaClientPtr client, const XlaCompilerOptions& options = {});
  XlaCompiler(const XlaCompiler&) = delete;
  XlaCompiler& operator=(const XlaCompiler&) = delete;

  // Returns the program, compiled now or before. A file that is damaged, or that the plugin refuses, is replaced, with
  // a warning. Errors are those of XlaClient::compile(); a program that could not be compiled is tried again next time.
  XlaExecutablePtr compile(const std::string& text, const XlaCompileOptions& options = {});

  XlaCompilerFigures figures() const;

 private:
  XlaExecutablePtr make(const std::string& key, const std::string& text, const XlaCompileOptions& options);
  XlaExecutablePtr load(const std::filesystem::path& file, const XlaCompileOptions& options) const;
  void save(const std::filesystem::path& file, const XlaProgram& program) const;

  const XlaClientPtr client_;
  const std::filesystem::path directory_;
  const std::string platform_;  // what the keys have of the plugin and its devices
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_future<XlaExecutablePtr>> programs_;
  XlaCompilerFigures figures_;
};

// Returns a key that two programs share only if they are the same: of the text, the options and `platform`, which
// describes plugin and devices.
std::string program_key(const std::string& text, const XlaCompileOptions& options, const std::string& platform);

// Prepares a folder of programs; see XlaCompilerOptions::directory. NotFound, Unavailable: it cannot be made.
void prepare_program_folder(const std::filesystem::path& directory);
// Writes a file of a program, whole or not at all, and reads it. DataLoss: the file is damaged.
void write_program_file(const std::filesystem::path& file, const std::string& bytes);
std::string read_program_file(const std::filesystem::path& file);

}  // namespace cohort
