#include "Phases.h"

#include "zorse/Bundle/BundleReader.h"
#include "zorse/Summary/Summary.h"

namespace zorse::pipelines {

Status adoptBundle(CompileOptions &options) {
  Result<bundle::BundleView> view = bundle::readBundle(options.rebuild);
  if (view.failed())
    return view.error();
  if (!options.plan.empty() || !options.cluster.empty() || options.batch != 0)
    return userError("--rebuild-kernels: takes plan, cluster and batch from " + options.rebuild +
                     ": leave out --plan, --cluster and --global-batch-size");
  options.plan = options.rebuild + "/plan.json";
  options.cluster = options.rebuild + "/cluster.yaml";
  options.batch = view->batch;
  options.groupRows = view->summary.samples_per_row();
  options.sequence = view->sequence;
  options.precision = precisionOf(view->summary);
  options.training = view->summary.training();
  options.optimizerGiven = options.learningRateGiven = options.clipGiven = options.decayGiven =
      true;
  options.arch = view->functions.arch();
  options.weights = Weights::Copy;
  return Status::success();
}

Status takeFromBundle(const CompileOptions &options, bundle::BundleContents &contents,
                      std::string &remark) {
  Result<bundle::BundleView> view = bundle::readBundle(options.rebuild);
  if (view.failed())
    return view.error();
  if (bundle::serialize(view->summary) != bundle::serialize(contents.summary)) {
    const bool sameGraph = view->summary.content_hash() == contents.summary.content_hash();
    return userError(
        options.rebuild + ": its summary differs from the one that this compiler generates for " +
        options.model +
        (sameGraph ? ", though the graph is the same" : ", which has a different graph") +
        ": it was compiled from another model, with other options or by another version. Nothing "
        "was written. Pass the options that it was compiled "
        "with, or compile a new bundle with --plan " +
        options.rebuild + "/plan.json");
  }
  bool same = bundle::serialize(view->functions) == bundle::serialize(contents.functions) &&
              view->otherTargets.size() == contents.otherTargets.size();
  for (size_t i = 0; i < contents.otherTargets.size() && same; ++i)
    same = bundle::serialize(view->otherTargets[i]) ==
           bundle::serialize(contents.otherTargets[i].functions);
  if (!same)
    remark += "; the functions of " + options.rebuild +
              " were replaced by different ones of this compiler";
  Result<bool> own = bundle::readWeights(*view, contents.weights);
  if (own.failed())
    return own.error();
  if (!*own)
    remark += "; its weights are read from the model's files";
  return Status::success();
}

} // namespace zorse::pipelines
