// Conv1DTranspose and Conv3DTranspose: the module of Conv2DTranspose along another number of dimensions.
#include "cohort/train/layers/more_convolutions.h"
#include "wings/layers/train/conv_transpose.h"

namespace cohort {

namespace {

class ConvTransposeNKind final : public LayerKind {
 public:
  explicit ConvTransposeNKind(TransposedConvolution convolution) : conv_(std::move(convolution)) {
    if (conv_.filters <= 0) fail_option(type(), "filters must be positive, got ", conv_.filters);
    std::vector<int64_t> kernel, strides, dilation;
    for (const Unwindow& window : conv_.windows) {
      kernel.push_back(window.size);
      strides.push_back(window.stride);
      dilation.push_back(window.dilation);
      if (!window.more || (*window.more >= 0 && *window.more < window.stride)) continue;
      fail_option(type(), "output_padding must be 0 or more and below the strides, got ", *window.more);
    }
    check_window(type(), kernel, strides, dilation);
    check_padding(type(), conv_.windows.front().padding);
  }
  std::string_view type() const override { return conv_.type; }
  std::string_view base_name() const override {
    return conv_.windows.size() == 1 ? "conv1d_transpose" : "conv3d_transpose";
  }
  Shape output_shape(const BuildContext& context) const override {
    bool fits = context.input.size() == conv_.windows.size() + 1 && context.input[0] > 0;
    Shape output = {conv_.filters};
    for (std::size_t i = 0; fits && i < conv_.windows.size(); ++i) {
      const int64_t input = context.input[i + 1];
      output.push_back(conv_.windows[i].output(input));
      fits = input < 0 || output.back() > 0;
    }
    if (fits) return output;
    fail_input(context.name, type(), to_text(context.input) + " an example",
               c10::str("a number of channels that is known, ", conv_.windows.size(),
                        " dimension(s), and an output with elements"));
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<ConvTransposeModule>(conv_, context);
  }

 private:
  TransposedConvolution conv_;
};

template <typename Options>
Layer make_transpose(std::string_view type, const Options& options, std::vector<Unwindow> windows) {
  return Layer(made_with<ConvTransposeNKind>(options, transposed_convolution(type, options, std::move(windows))),
               options.name, options.trainable);
}

}  // namespace

Layer Conv1DTranspose(const Conv1DTransposeOptions& options) {
  return make_transpose("Conv1DTranspose", options,
                        {{.size = options.kernel_size,
                          .stride = options.strides,
                          .dilation = options.dilation_rate,
                          .padding = options.padding,
                          .more = options.output_padding}});
}

Layer Conv3DTranspose(const Conv3DTransposeOptions& options) {
  const auto window = [&](int64_t Size3::*part) {
    Unwindow side{.size = options.kernel_size.*part,
                  .stride = options.strides.*part,
                  .dilation = options.dilation_rate.*part,
                  .padding = options.padding};
    if (options.output_padding) side.more = (*options.output_padding).*part;
    return side;
  };
  return make_transpose("Conv3DTranspose", options,
                        {window(&Size3::depth), window(&Size3::height), window(&Size3::width)});
}

}  // namespace cohort
