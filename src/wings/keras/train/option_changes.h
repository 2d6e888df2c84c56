// The options that Keras calls, or counts, otherwise than we do. Each function changes a layer's options in place, one
// way or the other, for an input of this shape. NotFound: there is no such option on the other side.
#pragma once

#include "cohort/train/layers/layer.h"
#include "wings/keras/train/place.h"

namespace cohort {

void read_norm_initializers(Json& config, const Shape& input, const FilePlace& place);
void write_batch_norm(Json& config, const Shape& input, const FilePlace& place);
void read_layer_norm(Json& config, const Shape& input, const FilePlace& place);
void write_layer_norm(Json& config, const Shape& input, const FilePlace& place);
void read_group_norm(Json& config, const Shape& input, const FilePlace& place);
void write_group_norm(Json& config, const Shape& input, const FilePlace& place);
void read_lengths(Json& config, const Shape& input, const FilePlace& place);
void read_border(Json& config, const Shape& input, const FilePlace& place);
void write_border(Json& config, const Shape& input, const FilePlace& place);
void read_channels_first(Json& config, const Shape& input, const FilePlace& place);
void write_channels_first(Json& config, const Shape& input, const FilePlace& place);
void read_dot(Json& config, const Shape& input, const FilePlace& place);
void read_bidirectional(Json& config, const Shape& input, const FilePlace& place);
void write_bidirectional(Json& config, const Shape& input, const FilePlace& place);
// Options that hold one number or a list here, and the other form there.
void read_axes(Json& config, const Shape& input, const FilePlace& place);
void write_axes(Json& config, const Shape& input, const FilePlace& place);
void write_last_only(Json& config, const Shape& input, const FilePlace& place);
void write_spatial_dropout(Json& config, const Shape& input, const FilePlace& place);
void write_attention(Json& config, const Shape& input, const FilePlace& place);
void read_heads(Json& config, const Shape& input, const FilePlace& place);
void write_heads(Json& config, const Shape& input, const FilePlace& place);
// Layers that are activations here.
void read_softmax(Json& config, const Shape& input, const FilePlace& place);
void read_elu(Json& config, const Shape& input, const FilePlace& place);
void read_identity(Json& config, const Shape& input, const FilePlace& place);
void write_flatten(Json& config, const Shape& input, const FilePlace& place);

}  // namespace cohort
