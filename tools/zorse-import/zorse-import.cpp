// Prints the graph IR of an ONNX file: the first phase of zorse-compile alone.
#include "DeepStack.h"

#include "zorse/Import/ONNX/Import.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

static cl::OptionCategory category("zorse-import options");
static cl::opt<std::string> input(cl::Positional, cl::desc("<model.onnx>"), cl::Required, cl::cat(category));
static cl::opt<int64_t> sequence("seq", cl::desc("length of dimension 1 of inputs where it is symbolic"), cl::init(0), cl::cat(category));
static cl::opt<int64_t> batchNormRows("batch-norm-rows",
                                      cl::desc("samples whose statistics batch norm takes together: a row of the graph is such a group"), cl::init(0),
                                      cl::cat(category));
static cl::list<std::string> dims("dim", cl::desc("value of a symbolic dimension"), cl::value_desc("name=N"), cl::cat(category));
static cl::opt<std::string> loss("loss", cl::desc("loss to add: cross_entropy"), cl::cat(category));
static cl::opt<std::string> lossOutput("loss-output", cl::desc("output that is the loss"), cl::cat(category));
static cl::opt<std::string> logits("logits", cl::desc("logits of the added loss"), cl::cat(category));
static cl::opt<std::string> labels("labels", cl::desc("labels of the added loss"), cl::cat(category));
static cl::opt<bool> shift("shift-labels", cl::desc("the added loss compares position i with label i + 1"), cl::cat(category));
static cl::opt<std::string> precision("precision", cl::desc("compute type: f32 or f64"), cl::init("f32"), cl::cat(category));
static cl::list<std::string> train("train", cl::desc("initializer to train"), cl::cat(category));
static cl::list<std::string> freeze("freeze", cl::desc("initializer not to train"), cl::cat(category));
static cl::opt<bool> trustGuess("trust-guess", cl::desc("guess what is trained where the file does not say"), cl::cat(category));
static cl::opt<bool> trustImport("trust-import", cl::desc("do not compare the loss with the file's nodes by numbers"), cl::cat(category));
static cl::opt<bool> notes("notes", cl::desc("print what was decided"), cl::cat(category));
static cl::opt<bool> listWeights("weights", cl::desc("list where the parameters' bytes are"), cl::cat(category));
static cl::opt<bool> quiet("quiet", cl::desc("print no module"), cl::cat(category));
static cl::opt<bool> full("full", cl::desc("print large constants and all locations, so that the text can be compiled"), cl::cat(category));
static cl::opt<bool> locations("locations", cl::desc("print the ONNX nodes as locations"), cl::cat(category));

static int run(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Imports an ONNX model into the zorse dialect.\n");

  zorse::ImportOptions options;
  options.sequence = sequence;
  options.batchNormRows = batchNormRows;
  options.loss = loss;
  options.lossOutput = lossOutput;
  options.logits = logits;
  options.labels = labels;
  options.shiftLabels = shift;
  options.compute = precision == "f64" ? zorse::ComputeType::F64 : zorse::ComputeType::F32;
  for (const std::string &text : dims) {
    auto [name, value] = StringRef(text).split('=');
    int64_t size = 0;
    if (value.getAsInteger(10, size) || size < 1) {
      errs() << "--dim expects name=N with N >= 1, got '" << text << "'\n";
      return 1;
    }
    options.dims[name.str()] = size;
  }
  for (const std::string &name : train)
    options.trainable[name] = zorse::TrainableChoice::Train;
  for (const std::string &name : freeze)
    options.trainable[name] = zorse::TrainableChoice::Freeze;
  options.trustGuess = trustGuess;
  options.trustImport = trustImport;

  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  auto model = zorse::importOnnx(input, options, context);
  if (mlir::failed(model))
    return 1;
  for (const std::string &warning : model->warnings)
    errs() << "warning: " << input << ": " << warning << "\n";
  if (notes)
    for (const std::string &note : model->notes)
      errs() << "note: " << note << "\n";
  if (listWeights)
    for (const zorse::WeightSource &weight : model->weights)
      outs() << weight.parameter << " " << (weight.file.empty() ? "(inline)" : weight.file) << " +" << weight.offset << " " << weight.bytes
             << " bytes\n";
  if (!quiet) {
    mlir::OpPrintingFlags flags;
    flags.enableDebugInfo(locations || full, /*prettyForm=*/!full); // messages and summaries name nodes
    if (!full)
      flags.elideLargeElementsAttrs(64);
    model->module->print(outs(), flags);
  }
  return 0;
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(run, argc, argv); }
