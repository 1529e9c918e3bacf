// SPDX-License-Identifier: Apache-2.0
//
// A text file as token ids to be scored: one text, or conversations that are read apart.
#pragma once

#include <string_view>
#include <vector>

#include <qwenlite/tensor.hpp>
#include <qwenlite/text/tokenizer.hpp>

namespace perplexity {

/// Tokens that are read from an empty context on, and whether each is to be scored.
struct Text {
  std::vector<int> ids;
  std::vector<char> scored;  // one for each id: 0 or 1
};

/// The whole text; control tokens written in it become their ids, as in Hugging Face's tokenizers.
[[nodiscard]] Text whole_text(const qwenlite::Tokenizer& tokenizer, std::string_view content);

/// Conversations in the chat layout, each ended by <|endoftext|> or the end of the file. What is scored of
/// one are the answers that begin with a think block: all that the model writes of them, that is, without an
/// empty block, and without the opening of others where the chat template gives it. The rest, and so every
/// bare answer of an earlier turn, is context.
[[nodiscard]] std::vector<Text> conversations(const qwenlite::Tokenizer& tokenizer, std::string_view content);

/// Leaves out all after the first `most` tokens.
void shorten(std::vector<Text>& texts, qwenlite::Index most);

}  // namespace perplexity
