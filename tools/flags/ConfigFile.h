// Options from a YAML file (--config FILE): the same names as on the command line, which goes before the file.
//
//     zorse-compile:                # options of one tool; those of the others are left alone
//       model: model.onnx
//       batch: 64
//     zorse-run:
//       bundle: model.zorse
//       data: [shard-0.bin, shard-1.bin]
//     seed: 7                       # of every tool that reads the file
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace zorse {

class ConfigFile final : public CLI::Config {
public:
  /// Gives `app` the option --config. `tool`: whose options these are, such as "zorse-run".
  static std::shared_ptr<ConfigFile> addTo(CLI::App &app, const std::string &tool);

  /// Throws CLI::ConfigError with the line and the remedy.
  std::vector<CLI::ConfigItem> from_config(std::istream &input) const override;
  std::string to_config(const CLI::App *, bool, bool, std::string) const override { return {}; }

  /// " (line 4 of run.yaml)" for the value that a message of CLI11 is about ("--steps: ..."), if the file gave it; else nothing.
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
  mutable std::vector<Place> places_; ///< of the options that the file gives; from_config is const in CLI11.
};

} // namespace zorse
