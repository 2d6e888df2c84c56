// Event files: TFRecords of tf.Event messages, as TensorFlow writes them.
#include <ATen/Functions.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/data/tfrecord_writer.h"
#include "cohort/train/summary.h"
#include "data/picture_coder.h"
#include "event.pb.h"

namespace cohort {

namespace {

constexpr auto kFlushInterval = std::chrono::seconds(5);
constexpr int kStringType = 7;  // DT_STRING of TensorFlow

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns a name that is unique among the processes that share the folder, and sorted by time.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  static std::atomic<int> made = 0;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail<Unavailable>("[summary] ", folder.string(), " cannot be made: ", error.message());
  return folder /
         c10::str("events.out.tfevents.", static_cast<int64_t>(wall_time()), ".cohort.", ::getpid(), ".", made++);
}

torch::Tensor as_bytes(const torch::Tensor& image) {
  return image.is_floating_point() ? image.detach().cpu().mul(255.0).round().clamp(0.0, 255.0).to(torch::kByte) : image;
}

}  // namespace

class SummaryWriter::Impl {
 public:
  explicit Impl(const std::filesystem::path& folder) : out_(new_file(folder)) {
    events::Event first;
    first.set_wall_time(wall_time());
    first.set_file_version("brain.Event:2");
    out_.write(first.SerializeAsString());
    flush();
  }

  // Writes a new event, whose value fn fills in.
  template <typename Fn>
  void add(std::string_view tag, int64_t step, const Fn& fn) {
    events::Event event;
    event.set_wall_time(wall_time());
    event.set_step(step);
    events::Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(std::string(tag));
    fn(value);
    out_.write(event.SerializeAsString());
    if (std::chrono::steady_clock::now() - flushed_ > kFlushInterval) flush();
  }

  void flush() {
    out_.flush();
    flushed_ = std::chrono::steady_clock::now();
  }

 private:
  TFRecordWriter out_;
  std::chrono::steady_clock::time_point flushed_;
};

SummaryWriter::SummaryWriter(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>(folder)) {}
SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&&) noexcept = default;
SummaryWriter::~SummaryWriter() = default;

void SummaryWriter::scalar(std::string_view tag, double value, int64_t step) {
  impl_->add(tag, step, [&](events::Summary::Value& out) { out.set_simple_value(static_cast<float>(value)); });
}

void SummaryWriter::image(std::string_view tag, const torch::Tensor& image, int64_t step) {
  const std::string png =
      extension_of<PictureCoder>("vision", "[summary] image: the event has a PNG").encode_png(as_bytes(image));
  impl_->add(tag, step, [&](events::Summary::Value& out) {
    out.mutable_image()->set_height(static_cast<int32_t>(image.size(1)));
    out.mutable_image()->set_width(static_cast<int32_t>(image.size(2)));
    out.mutable_image()->set_colorspace(static_cast<int32_t>(image.size(0)));
    out.mutable_image()->set_encoded_image_string(png);
  });
}

void SummaryWriter::histogram(std::string_view tag, const torch::Tensor& values, int64_t step, int buckets) {
  if (values.numel() == 0 || buckets < 1) {
    fail<InvalidArgument>("[summary] histogram: ", values.numel(), " values in ", buckets,
                          " buckets, wanted 1 or more");
  }
  const torch::Tensor all = values.detach().to(torch::kCPU, torch::kDouble).flatten();
  const torch::Tensor finite = all.masked_select(at::isfinite(all));
  impl_->add(tag, step, [&](events::Summary::Value& out) {
    events::HistogramProto& histogram = *out.mutable_histo();
    if (finite.numel() == 0) return;
    const double least = finite.min().item<double>();
    const double most = finite.max().item<double>();
    const double width = (most - least) / buckets;
    const torch::Tensor counts = at::histc(finite, buckets, least, most);
    histogram.set_min(least);
    histogram.set_max(most);
    histogram.set_num(static_cast<double>(finite.numel()));
    histogram.set_sum(finite.sum().item<double>());
    histogram.set_sum_squares(finite.square().sum().item<double>());
    for (int i = 0; i < buckets; ++i) {
      histogram.add_bucket_limit(i + 1 == buckets ? most : least + width * (i + 1));
      histogram.add_bucket(counts[i].item<double>());
    }
  });
}

void SummaryWriter::text(std::string_view tag, std::string_view text, int64_t step) {
  impl_->add(tag, step, [&](events::Summary::Value& out) {
    out.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
    out.mutable_tensor()->set_dtype(kStringType);
    out.mutable_tensor()->mutable_tensor_shape()->add_dim()->set_size(1);
    out.mutable_tensor()->add_string_val(std::string(text));
  });
}

void SummaryWriter::hparams(const std::map<std::string, HParam>& values) {
  events::HParams start;
  for (const auto& [name, value] : values) {
    google::protobuf::Value& to = (*start.mutable_session_start_info()->mutable_hparams())[name];
    if (const bool* flag = std::get_if<bool>(&value)) to.set_bool_value(*flag);
    if (const double* number = std::get_if<double>(&value)) to.set_number_value(*number);
    if (const std::string* text = std::get_if<std::string>(&value)) to.set_string_value(*text);
  }
  start.mutable_session_start_info()->set_start_time_secs(wall_time());
  impl_->add("_hparams_/session_start_info", 0, [&](events::Summary::Value& out) {
    out.mutable_metadata()->mutable_plugin_data()->set_plugin_name("hparams");
    out.mutable_metadata()->mutable_plugin_data()->set_content(start.SerializeAsString());
  });
}

void SummaryWriter::flush() {
  impl_->flush();
}

}  // namespace cohort
