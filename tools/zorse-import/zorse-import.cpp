// zorse-import: prints the graph IR of an ONNX file. Runs only the first phase of zorse-compile.
#include "DeepStack.h"

#include "zorse/Import/ONNX/Import.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

static cl::OptionCategory category("zorse-import options");
static cl::opt<std::string> input(cl::Positional, cl::desc("<model.onnx>"), cl::Required,
                                  cl::cat(category));
static cl::opt<int64_t> sequence("seq-length",
                                 cl::desc("length of dimension 1 of inputs if it is symbolic"),
                                 cl::init(0), cl::cat(category));
static cl::opt<int64_t> groupRows(
    "group-rows",
    cl::desc(
        "combine groups of N samples in losses and batch norms; a row of the graph is one group"),
    cl::init(0), cl::cat(category));
static cl::list<std::string> dims("dim", cl::desc("size of a symbolic dimension"),
                                  cl::value_desc("name=N"), cl::cat(category));
static cl::opt<std::string> loss("loss", cl::desc("loss to add to the graph: cross_entropy"),
                                 cl::cat(category));
static cl::opt<std::string>
    lossOutput("loss-output", cl::desc("name of the output that is the loss"), cl::cat(category));
static cl::opt<std::string> logits("logits", cl::desc("output with the logits of the added loss"),
                                   cl::cat(category));
static cl::opt<std::string> labels("labels", cl::desc("input with the labels of the added loss"),
                                   cl::cat(category));
static cl::opt<bool> shift("shift-labels",
                           cl::desc("compare position i with label i + 1 in the added loss"),
                           cl::cat(category));
static cl::opt<std::string> precision("precision", cl::desc("compute type: f32 or f64"),
                                      cl::init("f32"), cl::cat(category));
static cl::list<std::string> train("train", cl::desc("initializer to train"), cl::cat(category));
static cl::list<std::string> freeze("freeze", cl::desc("initializer not to train"),
                                    cl::cat(category));
static cl::opt<bool>
    trustGuess("infer-trainable",
               cl::desc("infer which initializers are trained if the file does not specify it"),
               cl::cat(category));
static cl::opt<bool>
    trustImport("trust-import",
                cl::desc("skip the numerical comparison of the imported loss with the ONNX nodes"),
                cl::cat(category));
static cl::opt<bool> notes("notes", cl::desc("print the decisions of the importer"),
                           cl::cat(category));
static cl::opt<bool> listWeights("weights", cl::desc("list the file and offset of every parameter"),
                                 cl::cat(category));
static cl::opt<bool> quiet("quiet", cl::desc("do not print the module"), cl::cat(category));
static cl::opt<bool>
    full("full", cl::desc("print large constants and all locations; required to compile the text"),
         cl::cat(category));
static cl::opt<bool> locations("locations", cl::desc("print the ONNX nodes as locations"),
                               cl::cat(category));

static int run(int argc, char **argv) {
  InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Imports an ONNX model into the zorse dialect.\n");

  zorse::ImportOptions options;
  options.sequence = sequence;
  options.groupRows = groupRows;
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
      outs() << weight.parameter << " " << (weight.file.empty() ? "(inline)" : weight.file) << " +"
             << weight.offset << " " << weight.bytes << " bytes\n";
  if (!quiet) {
    mlir::OpPrintingFlags flags;
    flags.enableDebugInfo(locations || full,
                          /*prettyForm=*/!full); // messages and summaries name ONNX nodes
    if (!full)
      flags.elideLargeElementsAttrs(64);
    model->module->print(outs(), flags);
  }
  return 0;
}

int main(int argc, char **argv) { return zorse::runOnDeepStack(run, argc, argv); }
