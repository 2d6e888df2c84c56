#include "wings/keras/train/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/regular_file.h"

namespace cohort {

namespace {

constexpr int64_t kMaxJson = int64_t{32} << 20;
constexpr int64_t kMaxVocabularies = int64_t{32} << 20;  // of all together
constexpr std::size_t kMaxName = 1000;
// Weights hardly shrink in an archive, and Keras compresses neither them nor vocabularies.
constexpr int64_t kMaxExpansion = 16;

struct FreeReader {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
struct FreeWriter {
  void operator()(archive* writer) const { archive_write_free(writer); }
};
struct FreeEntry {
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};

struct Descriptor {
  int number = -1;
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

std::string error_of(archive* handle) {
  const char* const text = archive_error_string(handle);
  return text != nullptr ? text : "unknown error";
}

// Returns a name that a message can hold.
std::string printable(const char* name) {
  std::string text = name != nullptr ? std::string(name).substr(0, 80) : "";
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return "\"" + text + "\"";
}

// Returns whether an entry is a layer's vocabulary. Names have Keras' words alone, so that they lead nowhere else.
bool is_vocabulary(std::string_view name) {
  constexpr std::string_view kBegin = "assets/layers/", kEnd = "/vocabulary.txt";
  if (name.size() > kMaxName || !name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  return std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::islower(letter) != 0 || std::isdigit(letter) != 0 || letter == '_' || letter == '/';
  });
}

// Returns the part of the archive with the name; null: there is none of that name.
std::string* part_named(KerasArchive& archive, const std::string& name) {
  if (name == "config.json") return &archive.config;
  if (name == "metadata.json") return &archive.metadata;
  if (is_vocabulary(name)) return &archive.vocabularies[name];
  return name == "model.weights.h5" ? &archive.weights : nullptr;
}

void read_entry(archive* reader, archive_entry* entry, int64_t limit, const std::string& where, std::string& bytes) {
  if (!bytes.empty()) fail<DataLoss>(where, ": the archive has it twice");
  if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_size_is_set(entry) == 0) {
    fail<DataLoss>(where, ": is not a file with a size");
  }
  const int64_t size = archive_entry_size(entry);
  if (size <= 0 || size > limit) fail<DataLoss>(where, ": has ", size, " bytes, wanted 1 to ", limit);
  std::array<char, 1 << 16> part{};
  while (true) {
    const la_ssize_t count = archive_read_data(reader, part.data(), part.size());
    if (count < 0) fail<DataLoss>(where, ": cannot be read after ", bytes.size(), " bytes: ", error_of(reader));
    if (count == 0) break;
    bytes.append(part.data(), static_cast<std::size_t>(count));
    if (static_cast<int64_t>(bytes.size()) > size)
      fail<DataLoss>(where, ": has more than the ", size, " bytes it says");
  }
  if (static_cast<int64_t>(bytes.size()) != size) {
    fail<DataLoss>(where, ": ends after ", bytes.size(), " bytes, wanted ", size);
  }
}

la_ssize_t write_part(archive* writer, void* file, const void* bytes, std::size_t size) {
  try {
    static_cast<AtomicFile*>(file)->write(std::span(static_cast<const std::byte*>(bytes), size));
    return static_cast<la_ssize_t>(size);
  } catch (const Error& error) {
    archive_set_error(writer, EIO, "%s", error.what());
    return -1;
  }
}

void add_entry(archive* writer, const char* name, const std::string& bytes, const std::string& file) {
  const std::unique_ptr<archive_entry, FreeEntry> entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), name);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  archive_entry_set_mtime(entry.get(), 315532800, 0);  // 1980, a zip's first year: equal models give equal files
  if (archive_write_header(writer, entry.get()) != ARCHIVE_OK ||
      archive_write_data(writer, bytes.data(), bytes.size()) != static_cast<la_ssize_t>(bytes.size())) {
    fail<Unavailable>("[keras] ", file, ": cannot be written: ", error_of(writer));
  }
}

}  // namespace

KerasArchive read_keras_archive(const std::filesystem::path& file) {
  const std::string where = "[keras] " + file.string();
  const Descriptor descriptor(open_regular_file(file, "keras"));
  struct stat status {};
  if (descriptor.number < 0 && errno == ENOENT) fail<NotFound>(where, ": there is no such file");
  if (descriptor.number < 0 || ::fstat(descriptor.number, &status) != 0) {
    fail<Unavailable>(where, ": cannot be read: ", std::strerror(errno));
  }
  const std::unique_ptr<archive, FreeReader> reader(archive_read_new());
  // Only this reader needs the directory at the end of the archive, which a file that was cut short lacks.
  archive_read_support_format_zip_seekable(reader.get());
  if (archive_read_open_fd(reader.get(), descriptor.number, 1 << 16) != ARCHIVE_OK) {
    fail<DataLoss>(where, ": is not a whole zip archive: ", error_of(reader.get()));
  }
  KerasArchive parts;
  int64_t words_left = std::min<int64_t>(kMaxVocabularies, status.st_size * kMaxExpansion);
  archive_entry* entry = nullptr;
  int code = ARCHIVE_OK;
  while ((code = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char* const name = archive_entry_pathname(entry);
    const std::string place = where + ": entry " + printable(name);
    std::string* const part = name == nullptr ? nullptr : part_named(parts, name);
    if (part == nullptr) {
      fail<NotFound>(place, " is not supported, only config.json, metadata.json, model.weights.h5 and vocabularies");
    }
    const bool has_words = is_vocabulary(name);
    const int64_t limit = part == &parts.weights ? status.st_size * kMaxExpansion : has_words ? words_left : kMaxJson;
    read_entry(reader.get(), entry, limit, place, *part);
    // An entry costs memory beside its text.
    if (has_words) words_left -= static_cast<int64_t>(part->size() + kMaxName);
  }
  if (code != ARCHIVE_EOF) fail<DataLoss>(where, ": is not a whole zip archive: ", error_of(reader.get()));
  for (const char* const name : {"config.json", "metadata.json", "model.weights.h5"}) {
    if (part_named(parts, name)->empty()) fail<DataLoss>(where, ": the archive has no ", name);
  }
  return parts;
}

void write_keras_archive(const std::filesystem::path& file, const KerasArchive& parts) {
  AtomicFile target(file);
  {
    const std::unique_ptr<archive, FreeWriter> writer(archive_write_new());
    archive_write_set_format_zip(writer.get());
    archive_write_set_format_option(writer.get(), "zip", "compression", "store");
    archive_write_set_bytes_in_last_block(writer.get(), 1);
    if (archive_write_open(writer.get(), &target, nullptr, write_part, nullptr) != ARCHIVE_OK) {
      fail<Unavailable>("[keras] ", file.string(), ": cannot be written: ", error_of(writer.get()));
    }
    add_entry(writer.get(), "metadata.json", parts.metadata, file.string());
    add_entry(writer.get(), "config.json", parts.config, file.string());
    add_entry(writer.get(), "model.weights.h5", parts.weights, file.string());
    if (archive_write_close(writer.get()) != ARCHIVE_OK) {
      fail<Unavailable>("[keras] ", file.string(), ": cannot be written: ", error_of(writer.get()));
    }
  }
  target.commit();
}

}  // namespace cohort
