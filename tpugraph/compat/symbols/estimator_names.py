"""``tf.estimator`` and the modules below it."""

from __future__ import annotations

from tpugraph.compat.symbol_record import Page, Symbol, found_in, gone

_NAMES = "tpugraph.compat.pieces.estimator_functions"
_TRAIN = "tensorflow.compat.v1.train"
_TREES = "it trains with ops of its own that keep their state on one host, which nothing can put on a TPU"

ESTIMATOR: Page = {
    **found_in("tpugraph", "Estimator EstimatorSpec ModeKeys TrainSpec EvalSpec train_and_evaluate WarmStartSettings"),
    **found_in("tpugraph.estimator.plain_estimator", "RunConfig=PlainRunConfig"),
    **found_in(_TRAIN, "VocabInfo CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook "
               "LoggingTensorHook NanTensorHook ProfilerHook SecondOrStepTimer StepCounterHook StopAtStepHook "
               "NanLossDuringTrainingError SummarySaverHook SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"),
    **found_in("tpugraph.estimator.canned_estimators", "LinearClassifier DNNClassifier DNNLinearCombinedClassifier "
               "BaselineClassifier LinearRegressor DNNRegressor DNNLinearCombinedRegressor BaselineRegressor LinearEstimator "
               "DNNEstimator DNNLinearCombinedEstimator BaselineEstimator"),
    **found_in("tpugraph.estimator.heads", "Head BinaryClassHead MultiClassHead MultiLabelHead RegressionHead "
               "LogisticRegressionHead PoissonRegressionHead MultiHead"),
    **found_in(_NAMES, "classifier_parse_example_spec regressor_parse_example_spec add_metrics"),
    **found_in("tpugraph.compat.pieces.exporters", "Exporter FinalExporter LatestExporter BestExporter"),
    **gone("BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor", _TREES, "tf.estimator.DNNClassifier"),
}  # fmt: skip

EXPORT: Page = {
    **found_in("tpugraph.estimator.exporting", "ServingInputReceiver TensorServingInputReceiver "
               "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn"),
    **found_in("tensorflow.python.saved_model.model_utils.export_output", "ExportOutput ClassificationOutput PredictOutput "
               "RegressionOutput"),
}  # fmt: skip

INPUTS: Page = found_in("tpugraph.compat.pieces.array_inputs", "numpy_input_fn pandas_input_fn",
                        "the function returns a Dataset, not tensors that a queue fills")  # fmt: skip

_REFUSED = "a replica of several cores is computed as one"
TPU: Page = {
    **found_in("tpugraph", "TPUEstimatorSpec RunConfig InputPipelineConfig TPUConfig"),
    **found_in("tpugraph", "TPUEstimator", _REFUSED),
}

EXPERIMENTAL: Page = {
    **found_in("tpugraph.compat.pieces.stopping", "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook "
               "stop_if_no_decrease_hook stop_if_no_increase_hook make_stop_at_checkpoint_step_hook"),
    **found_in("tpugraph.estimator.canned_estimators", "dnn_logit_fn_builder linear_logit_fn_builder"),
    **found_in(_NAMES, "call_logit_fn"),
    **found_in("tpugraph.estimator.exporting", "build_raw_supervised_input_receiver_fn"),
    **found_in("tpugraph.compat.pieces.in_memory_evaluation", "InMemoryEvaluatorHook"),
    **found_in("tpugraph.compat.pieces.kmeans", "KMeans", "it is not put on cores"),
    **gone("LinearSDCA", "it keeps a dual variable of each example in a hash table of one host, which nothing can put on a TPU",
           "the optimizer Ftrl, with l1 and l2"),
}  # fmt: skip

INSIDE: Page = {
    **found_in(
        _NAMES, "_load_global_step_from_checkpoint_dir=load_global_step_from_checkpoint_dir parse_input_fn_result"
    ),
    **found_in(
        "tensorflow.python.saved_model.signature_constants", "_DEFAULT_SERVING_KEY=DEFAULT_SERVING_SIGNATURE_DEF_KEY"
    ),
    **found_in("tensorflow.python.util.function_utils", "fn_args"),
}

V2: Page = {
    **ESTIMATOR,
    **found_in("tpugraph.compat.pieces.estimators_v2", "BaselineClassifier BaselineRegressor DNNClassifier "
               "DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNRegressor LinearClassifier LinearRegressor",
               "optimizers are those of tf.train"),
    "export": Symbol("@estimator.export"), "experimental": Symbol("@estimator.experimental"),
}  # fmt: skip

PAGES: dict[str, Page] = {
    "estimator": ESTIMATOR,
    "estimator.export": EXPORT,
    "estimator.inputs": INPUTS,
    "estimator.tpu": TPU,
    "estimator.tpu.experimental": found_in("tpugraph", "EmbeddingConfigSpec", "every core has each table whole"),
    "estimator.experimental": EXPERIMENTAL,
    "compat.v2.estimator": V2,
}
