// SPDX-License-Identifier: Apache-2.0
//
// perplexity: how well a model predicts a text, and what a format of weights, keys and values or a precision
// costs against a reference: the same model run otherwise, or another one with the same tokenizer.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qwenlite/score.hpp>

#include "perplexity/report.hpp"
#include "perplexity/texts.hpp"
#include "programs/chat_family.hpp"
#include "programs/demo_models.hpp"
#include "programs/open_model.hpp"
#include "programs/out_of_memory.hpp"
#include "programs/progress_bar.hpp"
#include "programs/text_file.hpp"

namespace ql = qwenlite;
namespace fs = std::filesystem;
using ql::Index;

namespace {

constexpr Index many = Index{1} << 40;
constexpr Index default_window = 2048;

/// A model as asked for.
struct Side {
  std::string directory;
  programs::RunOptions run;
};

struct Options {
  Side model;
  Side reference;
  std::string text;
  bool conversations = false;
  std::optional<Index> window;
  std::optional<Index> stride;
  std::optional<Index> max_tokens;
  bool json = false;
};

constexpr const char* reference_options[] = {"--reference", "--reference-weights",
                                             "--reference-embedding-weights", "--reference-kv",
                                             "--reference-precision"};

void add_reference_options(CLI::App& app, Side& reference) {
  app.add_option("--reference", reference.directory,
                 "compare with this checkpoint (default: the same, when another --reference-... is given)")
      ->check(programs::a_name_of("a checkpoint directory or a demo model"));
  app.add_option("--reference-weights", reference.run.weights, "its --weights (default: as stored)")
      ->check(programs::a_weight_format());
  app.add_option("--reference-embedding-weights", reference.run.embedding_weights,
                 "its --embedding-weights (default: int8 if its weights are quantised)")
      ->check(programs::a_weight_format());
  app.add_option("--reference-kv", reference.run.kv, "its --kv (default: bf16)")
      ->check(programs::a_kv_format());
  app.add_option("--reference-precision", reference.run.precision,
                 "its --precision (default: as the instruction set's)")
      ->check(programs::one_of({"bf16", "exact", "int8"}));
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("DIRECTORY", o.model.directory, programs::checkpoint_help)->required();
  app.add_option("--text", o.text, "the text to predict")
      ->required()
      ->option_text("FILE REQUIRED")
      ->check(programs::a_name_of("a file"));
  app.add_flag("--conversations", o.conversations,
               "the text is conversations in the chat layout: each is read on its own, and only answers are "
               "scored");
  programs::add_run_options(app, o.model.run);
  add_reference_options(app, o.reference);
  app.add_option("--window", o.window,
                 "tokens that are read together (default: 2048, or the model's context if that is less)")
      ->check(programs::number_in<Index>(2, many));
  app.add_option("--stride", o.stride,
                 "from one window to the next; each token is scored once, with at least window - stride "
                 "tokens before it but in the first window (default: half the window)")
      ->check(programs::number_in<Index>(1, many));
  app.add_option("--max-tokens", o.max_tokens, "read no more than this many tokens of the text")
      ->check(programs::number_in<Index>(2, many));
  app.add_flag("--json", o.json, "print one JSON object");
  app.footer(
      "Perplexity is exp of the mean of -ln p(token) over all tokens but the first of the text. The KL\n"
      "divergence is that of the model's distributions from the reference's, KL(reference || model); top-1\n"
      "agreement is the share of tokens for which both find the same one likeliest.\n"
      "With --conversations, <|endoftext|> ends a conversation, and the answers scored are those that begin\n"
      "with a think block, as the model is asked for them.");
}

perplexity::Ran description(const programs::ProgramModel& model, const Side& side) {
  const programs::Storage storage = programs::storage_of(model, side.run);
  return {.name = fs::absolute(side.directory / fs::path()).parent_path().filename().string(),
          .weights = storage.weights,
          .kv = storage.kv,
          .precision = storage.precision};
}

std::vector<perplexity::Text> texts_of(const Options& o, const ql::Tokenizer& tokenizer) {
  const std::string content = programs::read_text(o.text);
  if (content.empty()) {
    throw ql::Error(ql::ErrorCode::bad_text, ql::in_quotes(o.text), "an empty file",
                    "a text of at least 2 tokens");
  }
  std::vector<perplexity::Text> texts;
  if (o.conversations) {
    texts = perplexity::conversations(tokenizer, content);
    if (texts.empty()) {
      throw ql::Error(ql::ErrorCode::bad_text, ql::in_quotes(o.text),
                      "no answer that begins with a think block", "conversations in the chat layout");
    }
  } else {
    texts.push_back(perplexity::whole_text(tokenizer, content));
  }
  if (o.max_tokens) perplexity::shorten(texts, *o.max_tokens);
  if (texts.front().ids.size() < 2) {
    throw ql::Error(ql::ErrorCode::bad_text, ql::in_quotes(o.text), {texts.front().ids.size(), " token"},
                    "at least 2");
  }
  const auto is_scored = [](const perplexity::Text& t) {
    return std::find(t.scored.begin() + 1, t.scored.end(), 1) != t.scored.end();
  };
  if (o.max_tokens && std::none_of(texts.begin(), texts.end(), is_scored)) {
    throw ql::Error(ql::ErrorCode::bad_argument, "--max-tokens",
                    {*o.max_tokens, " tokens without any of an answer"}, "more");
  }
  return texts;
}

/// Logits can be compared only where an id is the same token to both models. A reference without a tokenizer
/// is taken to have the model's.
void check_same_tokens(const Options& o, const ql::Tokenizer& tokenizer,
                       const std::vector<perplexity::Text>& texts) {
  if (o.reference.directory == o.model.directory || !programs::has_tokenizer(o.reference.directory)) return;
  const ql::Tokenizer other = programs::open_tokenizer(o.reference.directory, "");
  const auto reject = [&](const std::string& found) {
    throw ql::Error(ql::ErrorCode::bad_argument, "tokenizer of " + ql::in_quotes(o.reference.directory),
                    found, "that of " + ql::in_quotes(o.model.directory));
  };
  if (other.vocab_size() != tokenizer.vocab_size()) {
    reject(std::to_string(other.vocab_size()) + " tokens, not " + std::to_string(tokenizer.vocab_size()));
  }
  for (int id = 0; id < tokenizer.vocab_size(); ++id) {
    if (other.token_bytes(id) != tokenizer.token_bytes(id)) reject("another token " + std::to_string(id));
  }
  const std::vector<perplexity::Text> again = texts_of(o, other);
  const auto same = [](const perplexity::Text& a, const perplexity::Text& b) { return a.ids == b.ids; };
  if (!std::equal(texts.begin(), texts.end(), again.begin(), again.end(), same)) {
    reject("other ids for " + ql::in_quotes(o.text));
  }
}

/// The window, checked against the models, and the stride.
ql::ScoreOptions windows_of(const Options& o, Index context) {
  if (o.window && *o.window > context) {
    throw CLI::ValidationError("--window", "found " + std::to_string(*o.window) +
                                               ", expected at most the model's " + std::to_string(context));
  }
  ql::ScoreOptions windows;
  windows.window = o.window.value_or(std::min(default_window, context));
  windows.stride = o.stride.value_or(windows.window / 2);
  if (windows.stride >= windows.window) {
    throw CLI::ValidationError("--stride", "found " + std::to_string(windows.stride) +
                                               ", expected less than the window's " +
                                               std::to_string(windows.window));
  }
  // Without a cache every piece computes all before it again.
  const bool cached = o.model.run.cached() && o.reference.run.cached();
  windows.piece = cached ? 64 : 512;
  return windows;
}

/// Scores the texts one by one, with one bar for all of them.
class Run {
 public:
  Run(const programs::ProgramModel& model, const programs::ProgramModel* reference,
      const ql::ScoreOptions& windows)
      : model_(model),
        reference_(reference),
        options_(windows),
        session_(programs::new_session(model, windows.window)) {
    if (reference != nullptr) other_.emplace(programs::new_session(*reference, windows.window));
  }

  ql::Score over(const std::vector<perplexity::Text>& texts) {
    for (const perplexity::Text& text : texts) total_ += steps(text);
    ql::Score sum;
    for (const perplexity::Text& text : texts) {
      options_.scored = [&](Index i) { return text.scored[static_cast<std::size_t>(i)] != 0; };
      options_.progress = [&](Index done, Index) {
        bar_.update(done_ + done, total_);
        return true;
      };
      sum += reference_ == nullptr
                 ? ql::score(model_, session_, text.ids, options_)
                 : ql::compare(model_, session_, ql::Reference(*reference_, *other_), text.ids, options_);
      done_ += steps(text);
    }
    bar_.erase();
    return sum;
  }

 private:
  [[nodiscard]] Index steps(const perplexity::Text& text) const {
    Index count = 0;
    for (const ql::ScoreWindow& w :
         ql::score_windows(static_cast<Index>(text.ids.size()), options_.window, options_)) {
      count += w.end - 1 - w.first;
    }
    return count;
  }

  const programs::ProgramModel& model_;
  const programs::ProgramModel* reference_;
  ql::ScoreOptions options_;
  programs::ProgramModel::Session session_;
  std::optional<programs::ProgramModel::Session> other_;
  programs::ProgressBar bar_{std::cerr};
  Index done_ = 0;
  Index total_ = 0;
};

void run(Options& o, bool with_reference) {
  o.model.directory = programs::model_directory(o.model.directory, "DIRECTORY");
  o.reference.directory = o.reference.directory.empty()
                              ? o.model.directory
                              : programs::model_directory(o.reference.directory, "--reference");
  o.reference.run.prefix = "--reference-";
  o.reference.run.threads = o.model.run.threads;
  o.reference.run.chunk = o.model.run.chunk;

  const ql::Checkpoint files(o.model.directory);
  const programs::ProgramModel model = programs::open_model(files, o.model.run);
  Index context = files.config().context_limit();
  std::optional<programs::ProgramModel> reference;
  if (with_reference) {
    const ql::Checkpoint other =
        o.reference.directory == o.model.directory ? files : ql::Checkpoint(o.reference.directory);
    reference.emplace(programs::open_model(other, o.reference.run));
    context = std::min(context, other.config().context_limit());
  }
  const ql::ScoreOptions windows = windows_of(o, context);
  const ql::Tokenizer tokenizer = programs::open_tokenizer(o.model.directory, "");
  const std::vector<perplexity::Text> texts = texts_of(o, tokenizer);
  if (reference) check_same_tokens(o, tokenizer, texts);

  const ql::Score score = Run(model, reference ? &*reference : nullptr, windows).over(texts);
  const perplexity::Ran ran = description(model, o.model);
  std::optional<perplexity::Ran> compared;
  if (reference) compared = description(*reference, o.reference);
  const perplexity::Ran* const other = compared ? &*compared : nullptr;
  if (o.json) return perplexity::write_json(std::cout, score, ran, other);
  perplexity::Read read{.texts = texts.size()};
  for (const perplexity::Text& text : texts) read.tokens += static_cast<Index>(text.ids.size());
  perplexity::write_table(std::cout, score, read, ran, other);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tells how well a Qwen3 or Qwen3.5 model predicts a text.", "perplexity");
  Options options;
  add_options(app, options);
  const auto usage = [](const CLI::App&) { return "DIRECTORY --text FILE [OPTIONS]"; };
  return programs::run_program(app, argc, argv, usage, [&] {
    const bool with_reference = std::any_of(std::begin(reference_options), std::end(reference_options),
                                            [&](const char* name) { return app.count(name) > 0; });
    run(options, with_reference);
  });
}
