// SPDX-License-Identifier: Apache-2.0
//
// The networks of AnyModel for programs that link the target qwenlite_instances.
#include <qwenlite/models/any_model.hpp>
#include <qwenlite/models/explanation-inl.hpp>
#include <qwenlite/models/open_options-inl.hpp>
#include <qwenlite/models/quantised_store-inl.hpp>
#include <qwenlite/quantize/round_to_nearest-inl.hpp>

namespace qwenlite {
inline namespace QWENLITE_ABI {

template struct Decoder<Qwen3>;
template class Model<Qwen3>;
template class Session<Model<Qwen3>>;
template class Batch<Model<Qwen3>>;
template struct Decoder<Qwen3_5>;
template class Model<Qwen3_5>;
template class Session<Model<Qwen3_5>>;
template class Batch<Model<Qwen3_5>>;
template class AnyOf<Model<Qwen3>, Model<Qwen3_5>>;

}  // namespace QWENLITE_ABI
}  // namespace qwenlite
