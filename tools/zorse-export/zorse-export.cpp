// zorse-export: exports snapshots for other tools.
#include "HubExport.h"
#include "OnnxExport.h"
#include "ParseFlags.h"

#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"
#include "zorse/runtime/StandardStreams.h"

#include <filesystem>
#include <new>

using namespace zorse::exporting;
using namespace zorse::runtime;

namespace {

int report(const Error &error) {
  fprintf(stderr, error.kind == ErrorKind::User ? "error: %s\n" : "internal error: %s\n",
          error.message.c_str());
  return error.kind == ErrorKind::User ? 1 : 2;
}

/// Returns `path` if it is a snapshot, or the newest complete snapshot of the directory `path`.
Result<std::string> findCheckpoint(const std::string &path) {
  std::string directory = path;
  while (directory.size() > 1 && directory.back() == '/')
    directory.pop_back();
  std::error_code ignored;
  if (std::filesystem::exists(directory + "/index.json", ignored))
    return directory;
  if (!std::filesystem::is_directory(directory, ignored))
    return userError(directory + ": is not a directory of checkpoints");
  Result<std::vector<CheckpointDirectory>> found = listCheckpoints(directory);
  if (found.failed())
    return found.error();
  for (const CheckpointDirectory &checkpoint : *found)
    if (checkpoint.complete)
      return directory + "/" + checkpoint.name;
  return userError(
      directory + ": contains no complete checkpoint" +
      (found->empty() ? "" : " (" + std::to_string(found->size()) + " incomplete)") +
      "; expected the directory that zorse-run --checkpoint-dir wrote, or one checkpoint in it");
}

/// Prints one line per snapshot. Reads and verifies every file.
Status list(const std::string &directory) {
  Result<std::vector<CheckpointDirectory>> found = listCheckpoints(directory);
  if (found.failed())
    return found.error();
  if (found->empty())
    return userError(directory + ": contains no checkpoints");
  printf("%-24s %10s %10s %16s  %s\n", "checkpoint", "step", "generation", "bytes", "state");
  for (const CheckpointDirectory &folder : *found) {
    std::string path = directory + "/" + folder.name, state = "incomplete";
    uint64_t bytes = 0;
    if (folder.complete) {
      Result<CheckpointReader> checkpoint = CheckpointReader::open(path);
      Status verdict = checkpoint.failed() ? Status(checkpoint.error()) : checkpoint->verify();
      state = verdict.failed() ? "damaged: " + verdict.message() : "complete";
      if (!checkpoint.failed())
        for (const CheckpointFile &file : checkpoint->index().files)
          bytes += file.bytes;
    }
    printf("%-24s %10llu %10llu %16llu  %s\n", folder.name.c_str(), (unsigned long long)folder.step,
           (unsigned long long)folder.generation, (unsigned long long)bytes, state.c_str());
    fflush(stdout);
  }
  return Status::success();
}

int run(int argc, char **argv) {
  std::string path, output, original, type;
  HubExportOptions hub;
  bool listing = false, averages = false;
  CLI::App app{"Writes the parameters of a checkpoint as one safetensors file, into an ONNX file, "
               "or as a directory of the Hugging Face hub."};
  app.add_option("checkpoint", path,
                 "checkpoint, or directory of checkpoints (uses its newest complete one)")
      ->required();
  app.add_option("-o,--output", output,
                 "output file: safetensors, or ONNX with --onnx; with --hub an output directory");
  app.add_option(
      "--onnx", original,
      "ONNX file that was compiled; the output is a copy of it with the trained weights");
  app.add_option("--hub", hub.hub,
                 "Hugging Face hub directory that was given to --load-weights; the output is a "
                 "copy of it with the trained weights or, for a model with "
                 "adapters, an adapter in the PEFT layout")
      ->excludes("--onnx");
  app.add_option("--dtype", type, "type of the weights with --hub (default: types of its files)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->needs("--hub");
  app.add_option("--ignore-tensors", hub.skip,
                 "with --hub: value of --ignore-tensors that was given to zorse-run")
      ->delimiter(',')
      ->needs("--hub");
  app.add_option("--base-name", hub.baseName,
                 "with adapters: base model name in the adapter configuration (default: the "
                 "directory of --hub)")
      ->needs("--hub");
  app.add_flag("--ema", averages,
               "write the moving averages of the parameters (zorse-compile --ema-decay)");
  app.add_flag("--list", listing,
               "read and verify every checkpoint of the directory and print the list");
  if (std::optional<int> done = zorse::parseFlags(app, argc, argv, "zorse-export"))
    return *done;
  if (!listing && output.empty())
    return report(userError("expected -o (output file) or --list"));
  if (listing) {
    Status status = list(path);
    return status.failed() ? report(status.error()) : 0;
  }
  if (Status status = hub.hub.empty() ? checkWritable(output) : Status::success(); status.failed())
    return report(status.error());
  Result<std::string> found = findCheckpoint(path);
  if (found.failed())
    return report(found.error());
  Result<CheckpointReader> checkpoint = CheckpointReader::open(*found);
  if (checkpoint.failed())
    return report(checkpoint.error());
  if (Status status = averages ? checkpoint->useAverages() : Status::success(); status.failed())
    return report(status.error());
  if (Status status =
          checkOverwrites({{"the checkpoint", *found}, {"--onnx", original}, {"--hub", hub.hub}},
                          {{"--output", output}});
      status.failed())
    return report(status.error());
  std::string note;
  hub.output = output;
  if (!type.empty())
    hub.type = storedTypeNamed(type);
  Status status = !hub.hub.empty()    ? exportHub(*checkpoint, hub, note)
                  : !original.empty() ? exportOnnx(*checkpoint, original, output, note)
                                      : mergeCheckpoint(*checkpoint, output, &note);
  if (status.failed())
    return report(status.error());
  if (!note.empty())
    fprintf(stderr, "note: %s\n", note.c_str());
  printf("%s: step %llu of %s\n", output.c_str(), (unsigned long long)checkpoint->index().step,
         found->c_str());
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  try {
    zorse::runtime::openStandardStreams();
    return run(argc, argv);
  } catch (const std::bad_alloc &) {
    return report(userError("out of memory"));
  } catch (const std::exception &problem) {
    return report(internalError(problem.what()));
  }
}
