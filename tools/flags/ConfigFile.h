// Reads options from a YAML file (--config FILE). The names are those of the command line, which
// takes precedence over the file.
//
//     zorse-compile:                # options of one tool; other tools ignore them
//       model: model.onnx
//       batch: 64
//     zorse-run:
//       bundle: model.zorse
//       data: [shard-0.bin, shard-1.bin]
//     seed: 7                       # for every tool that reads the file
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace zorse {

class ConfigFile final : public CLI::Config {
public:
  /// Adds the option --config to `app`. `tool` is the name of the program, such as "zorse-run".
  static std::shared_ptr<ConfigFile> addTo(CLI::App &app, const std::string &tool);

  /// Throws CLI::ConfigError with the line number and how to fix the error.
  std::vector<CLI::ConfigItem> from_config(std::istream &input) const override;
  std::string to_config(const CLI::App *, bool, bool, std::string) const override { return {}; }

  /// Returns " (line 4 of run.yaml)" if the value that a CLI11 message is about ("--max-steps:
  /// ...") was read from the file; otherwise an empty string.
  std::string placeOf(const std::string &message) const;

private:
  ConfigFile(CLI::App &app, std::string tool) : app_(app), tool_(std::move(tool)) {}
  struct Reader;
  std::string path() const { return app_.get_config_ptr()->as<std::string>(); }

  CLI::App &app_;
  const std::string tool_;
  struct Place {
    const CLI::Option *option;
    int line;
  };
  mutable std::vector<Place> places_; ///< options read from the file; mutable because from_config
                                      ///< is const in CLI11
};

} // namespace zorse
