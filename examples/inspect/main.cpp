// SPDX-License-Identifier: Apache-2.0
//
// inspect: looks into a checkpoint directory and at what the library computes with it. Each subcommand
// prints for people, or with --json one object whose shape other programs may rely on.
#include "inspect/commands.hpp"
#include "programs/chat_family.hpp"
#include "programs/command_line.hpp"
#include "programs/demo_models.hpp"

namespace {

using inspect::Options;

/// What every subcommand takes; those that run the network tell it too.
CLI::App& add_command(CLI::App& app, Options& options, const char* name, const char* description,
                      bool runs = false, const char* default_chunk = "512") {
  CLI::App& command = *app.add_subcommand(name, description);
  command.add_option("DIRECTORY", options.directory, programs::checkpoint_help)->required();
  command.add_flag("--json", options.json, "print one JSON object");
  programs::add_run_options(command, options.run, runs, default_chunk);
  return command;
}

void add_ids(CLI::App& command, Options& options) {
  command.add_option("--ids", options.ids, "token ids: 1,2,3 or @FILE.json with a JSON array")->required();
}

void add_text_commands(CLI::App& app, Options& options) {
  CLI::App& tokenize = add_command(app, options, "tokenize", "token ids of a text");
  tokenize.add_option("--text", options.text, "the text (default: standard input, byte for byte)");
  tokenize.add_flag("--special", options.special, "control tokens written in the text become their ids");
  CLI::App& detokenize = add_command(app, options, "detokenize", "text of token ids");
  add_ids(detokenize, options);
  CLI::App& render = add_command(app, options, "template",
                                 "prompt of a conversation; standard input: "
                                 "{\"messages\":[...],\"tools\":[...],\"enable_thinking\":true}");
  programs::add_family_option(render, options.family);
}

void add_network_commands(CLI::App& app, Options& options) {
  constexpr qwenlite::Index many = 1 << 24;
  CLI::App& logits = add_command(app, options, "logits", "logits after given token ids", true, "64");
  add_ids(logits, options);
  CLI::Option* positions =
      logits.add_option("--positions", options.positions, "positions to show: 0,2 (default: the last)");
  logits.add_flag("--all", options.all, "show all positions")->excludes(positions);
  logits.add_option("--top", options.top, "how many of the largest logits to show (5)")
      ->check(programs::number_in<qwenlite::Index>(0, many));
  logits.add_option("--at", options.at, "ids whose logits to show: 7,9");
  logits.add_flag("--mtp", options.mtp, "add those of Qwen3.5's multi-token-prediction head");
  CLI::App& generate =
      add_command(app, options, "generate", "greedy continuation of token ids, with measurements", true);
  add_ids(generate, options);
  generate.add_option("--n", options.n, "tokens to generate (16)")
      ->check(programs::number_in<qwenlite::Index>(1, many));
  generate.add_flag("--ignore-eos", options.ignore_eos, "go on past the end of the reply");
  CLI::App& explain =
      add_command(app, options, "explain", "what the library chooses for this model here, and why", true);
  explain
      .add_option("--tokens", options.tokens,
                  "length of the session whose memory to tell (default: the library's)")
      ->check(programs::number_in<qwenlite::Index>(1, many));
  CLI::App& trace = add_command(app, options, "trace", "intermediate results of every layer", true);
  add_ids(trace, options);
  trace.add_flag("--all", options.all, "of all positions (default: the last)");
  trace.add_option("--out", options.out, "write them to this safetensors file")
      ->check(programs::a_name_of("a file to write"));
}

void run(const CLI::App& command, Options& options) {
  options.directory = programs::model_directory(options.directory, "DIRECTORY");
  const std::string& name = command.get_name();
  if (name == "config") return inspect::show_config(options);
  if (name == "tensors") return inspect::show_tensors(options);
  if (name == "tokenize") return inspect::tokenize(options);
  if (name == "detokenize") return inspect::detokenize(options);
  if (name == "template") return inspect::render_template(options);
  if (name == "logits") return inspect::show_logits(options);
  if (name == "generate") return inspect::generate(options);
  if (name == "explain") return inspect::explain(options);
  return inspect::trace(options);
}

std::string usage(const CLI::App& command) {
  const std::string& name = command.get_name();
  if (name == "inspect")
    return "config|tensors|tokenize|detokenize|template|logits|generate|explain|trace DIRECTORY [OPTIONS]";
  const bool takes_ids = name == "detokenize" || name == "logits" || name == "generate" || name == "trace";
  return takes_ids ? "DIRECTORY --ids 1,2,3 [OPTIONS]" : "DIRECTORY [OPTIONS]";
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  CLI::App app("Looks into a checkpoint directory of Qwen3 or Qwen3.5.", "inspect");
  app.require_subcommand(1);
  Options options;
  add_command(app, options, "config", "what config.json and generation_config.json say");
  add_command(app, options, "tensors", "names, types, shapes and places of the tensors");
  add_text_commands(app, options);
  add_network_commands(app, options);
  return programs::run_program(app, argc, argv, usage, [&] { run(programs::innermost(app), options); });
}
