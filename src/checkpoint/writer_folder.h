// WriterFolder: the drafts of the one process that writes to a directory of checkpoints.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace cohort {

// A lock alone does not keep a second writer out. A file server gives the lock of a machine that it has not heard of
// for a while to the next one, and the first machine may only have been stopped. So whatever a writer publishes in the
// directory is renamed from a folder of its own, and whatever it removes is renamed into it. The next writer removes
// that folder. The rename of a writer that was taken over then fails, at whichever moment it is resumed: there is
// nothing between the check and the rename. A removed folder also fails for a client of NFS that still has its handle.
//
// The folder is called ".writer-EPOCH-RANDOM". A writer's epoch is one more than the highest that it finds, and of two
// writers that begin at the same time the one whose folder is the last by name goes on. Not for several threads at
// once.
class WriterFolder {
 public:
  // Makes the folder and takes over from all earlier writers: removes their folders, after a folder of the directory
  // that a killed one had put aside is in its place again. FailedPrecondition: a later writer has begun meanwhile.
  // Unavailable: the folder cannot be made. If that is for lack of room, the first draft() tries again.
  explicit WriterFolder(std::filesystem::path directory);
  WriterFolder(const WriterFolder&) = delete;
  WriterFolder& operator=(const WriterFolder&) = delete;
  ~WriterFolder();

  // Returns where to write what is to be called `name` in the directory. Its ending kBefore is for what is replaced.
  std::filesystem::path draft(const std::string& name);
  // Runs an action that renames a draft. If it fails because another writer has taken over, the error is
  // FailedPrecondition, which names that writer.
  void publish(const std::function<void()>& action) const;
  // Removes a file or a folder of the directory, so that nobody sees half of it. FailedPrecondition as for publish();
  // Unavailable: it cannot be removed.
  void withdraw(const std::string& name);

  // Returns whether the name of a file in a directory is that of such a folder.
  static bool is_name(const std::string& name);
  // The ending of a draft's name under which what it replaces is put aside.
  static constexpr const char* kBefore = ".before";

 private:
  void make();
  void take_over();
  bool is_last() const;
  [[noreturn]] void fail_as_not_the_last() const;

  std::filesystem::path directory_;
  std::filesystem::path own_;  // empty while there is no room for it
};

}  // namespace cohort
