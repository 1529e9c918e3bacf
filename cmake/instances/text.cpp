// SPDX-License-Identifier: Apache-2.0
//
// Definitions of text/ for programs that link the target qwenlite_instances.
#include <qwenlite/text/chat_request-inl.hpp>
#include <qwenlite/text/chat_template-inl.hpp>
#include <qwenlite/text/conversation-inl.hpp>
#include <qwenlite/text/python_json-inl.hpp>
#include <qwenlite/text/reply_stream-inl.hpp>
#include <qwenlite/text/text_stream-inl.hpp>
#include <qwenlite/text/tokenizer-inl.hpp>
#include <qwenlite/text/tokenizer_file-inl.hpp>
#include <qwenlite/text/tool_calls-inl.hpp>
