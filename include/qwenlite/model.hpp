// SPDX-License-Identifier: Apache-2.0
//
// Everything to open a checkpoint and generate text with it. Start at examples/hello.cpp; the forward pass
// is in models/decoder.hpp, a layer in layers/block.hpp.
#pragma once

#include <qwenlite/cache/kv_cache.hpp>
#include <qwenlite/checkpoint/checkpoint.hpp>
#include <qwenlite/generate/generate.hpp>
#include <qwenlite/generate/sampler.hpp>
#include <qwenlite/kernels/dispatch.hpp>
#include <qwenlite/models/any_model.hpp>
#include <qwenlite/models/decoder.hpp>
#include <qwenlite/models/qwen3.hpp>
#include <qwenlite/text/chat_template.hpp>
#include <qwenlite/text/text_stream.hpp>
#include <qwenlite/text/tokenizer.hpp>
