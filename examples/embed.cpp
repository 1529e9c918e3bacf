// SPDX-License-Identifier: Apache-2.0
//
// Texts as vectors, and how alike they are. An embedding checkpoint (Qwen3-Embedding) is trained so that the
// hidden state of a text's last token, <|endoftext|>, says what the text means; other checkpoints give
// vectors too, only less telling ones.
//
//   embed <checkpoint directory> <text> <text> ...
#include <cmath>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <span>
#include <vector>

#include <qwenlite/model.hpp>

namespace ql = qwenlite;

namespace {

using Vector = std::vector<float>;  // [hidden_size], of length 1

/// The vectors of all texts, computed together.
std::vector<Vector> embed(const ql::AnyModel& model, const ql::Tokenizer& text,
                          std::span<char* const> texts) {
  ql::AnyModel::Batch batch(model, {.logits = false, .hidden = true});
  std::vector<ql::AnyModel::Session> sessions;
  sessions.reserve(texts.size());  // the batch remembers where they lie
  const ql::Index most = model.config().context_limit();
  for (const char* words : texts) {
    std::vector<int> ids = text.encode(words);
    if (const auto end = text.token_to_id("<|endoftext|>")) ids.push_back(*end);
    if (std::ssize(ids) > most) {
      throw ql::Error(ql::ErrorCode::context_full, "a text", {ids.size(), " tokens"},
                      {"at most the model's ", most});
    }
    batch.add(
        sessions.emplace_back(model, ql::SessionOptions{.max_tokens = std::ssize(ids), .own_scratch = false}),
        ids);
  }
  model.forward(batch);

  std::vector<Vector> vectors;
  for (ql::Index i = 0; i < batch.size(); ++i) {
    const ql::ConstMatrix<float> last = batch.hidden(i);  // [1, hidden_size]
    Vector& v = vectors.emplace_back(last.data(), last.data() + last.cols());
    const float length = std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0F));
    for (float& x : v) x /= length;
  }
  return vectors;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: embed <checkpoint directory> <text> <text> ...\n";
    return 2;
  }
  const ql::Checkpoint files(argv[1]);
  const ql::AnyModel model = ql::open(files);
  const ql::Tokenizer text(files.directory());
  const std::span texts(argv + 2, argv + argc);

  const std::vector<Vector> vectors = embed(model, text, texts);
  std::cout << std::fixed << std::setprecision(3);
  for (std::size_t i = 0; i < vectors.size(); ++i) {  // cosines with all texts, then the text
    for (const Vector& other : vectors) {
      std::cout << std::setw(6) << std::inner_product(other.begin(), other.end(), vectors[i].begin(), 0.0F)
                << ' ';
    }
    std::cout << ' ' << texts[i] << '\n';
  }
} catch (const ql::Error& e) {
  std::cerr << "embed: " << e.what() << '\n';
  return 1;
}
