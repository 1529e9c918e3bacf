// SPDX-License-Identifier: Apache-2.0
//
// Definitions of checkpoint/ for programs that link the target qwenlite_instances.
#include <qwenlite/checkpoint/checkpoint-inl.hpp>
#include <qwenlite/checkpoint/mapped_file-inl.hpp>
#include <qwenlite/checkpoint/model_config-inl.hpp>
#include <qwenlite/checkpoint/packed-inl.hpp>
#include <qwenlite/checkpoint/packed_unpack-inl.hpp>
#include <qwenlite/checkpoint/quantisation_config-inl.hpp>
#include <qwenlite/checkpoint/safetensors-inl.hpp>
#include <qwenlite/checkpoint/safetensors_writer-inl.hpp>
#include <qwenlite/checkpoint/tensor_files-inl.hpp>
