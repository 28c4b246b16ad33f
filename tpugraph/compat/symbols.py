"""The symbols of TensorFlow 1.15 by module: the data behind the tree, behind ``tpugraph program`` and docs/compat.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Symbol:
    """One name of a module: what stands for it now, how that differs, or why there is nothing."""

    # what stands for it, as module:attribute, or module alone; @ is before a module of the tree itself. "" where
    # nothing does
    home: str = ""
    differs: str = ""  # how that differs from the original; "" where it does not
    why: str = ""  # why there is nothing
    instead: str = ""  # what to use in its place, where there is nothing

    @property
    def state(self) -> str:
        """``works``, ``works with a difference`` or ``not there``."""
        if not self.home:
            return "not there"
        return "works with a difference" if self.differs else "works"


Page = dict[str, Symbol]
"""The symbols of one module, by name."""


def found_in(module: str, names: str, differs: str = "") -> Page:
    """Symbols that a module has, with blanks between; ``old=new`` where it has another name for one."""
    pairs = [word.partition("=") for word in names.split()]
    return {old: Symbol(f"{module}:{new or old}", differs) for old, _, new in pairs}


def gone(names: str, why: str, instead: str) -> Page:
    """Symbols that are not there, all for one reason."""
    return {name: Symbol(why=why, instead=instead) for name in names.split()}


# --------------------------------------------------------------------------- what several modules have

_V1 = "tensorflow.compat.v1"
_LEGACY = "tf_keras.api._v1.keras.__internal__.legacy"
_PIECES = "tpugraph.compat.pieces"
_FUNCTIONS = f"{_PIECES}.estimator_functions"
_LEARN = f"{_PIECES}.contrib_learn"

_RESOLVER = found_in("tpugraph", "TPUClusterResolver", "names of TPUs are not looked up: give an address, or 'local'")
_TPU = found_in("tpugraph", "TPUEstimatorSpec RunConfig InputPipelineConfig TPUConfig") | found_in(
    "tpugraph", "TPUEstimator", "a replica of several cores is computed as one"
)
_STOPPING = found_in(f"{_PIECES}.hooks", "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook "
                     "stop_if_no_decrease_hook stop_if_no_increase_hook make_stop_at_checkpoint_step_hook")  # fmt: skip
_ESTIMATOR: Page = {
    **found_in("tpugraph", "Estimator EstimatorSpec ModeKeys TrainSpec EvalSpec train_and_evaluate WarmStartSettings"),
    **found_in("tpugraph.estimator.plain_estimator", "RunConfig=PlainRunConfig"),
    **found_in(f"{_V1}.train", "VocabInfo CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook "
               "LoggingTensorHook NanTensorHook ProfilerHook SecondOrStepTimer StepCounterHook StopAtStepHook "
               "NanLossDuringTrainingError SummarySaverHook SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"),
    **found_in("tpugraph.estimator.canned_estimators", "LinearClassifier DNNClassifier DNNLinearCombinedClassifier "
               "BaselineClassifier LinearRegressor DNNRegressor DNNLinearCombinedRegressor BaselineRegressor LinearEstimator "
               "DNNEstimator DNNLinearCombinedEstimator BaselineEstimator"),
    **found_in("tpugraph.estimator.heads", "Head BinaryClassHead MultiClassHead MultiLabelHead RegressionHead "
               "LogisticRegressionHead PoissonRegressionHead MultiHead"),
    **found_in(_FUNCTIONS, "classifier_parse_example_spec regressor_parse_example_spec add_metrics"),
    **found_in(f"{_PIECES}.exports", "Exporter FinalExporter LatestExporter BestExporter"),
    **gone("BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor",
           "it trains with ops of its own that keep their state on one host, which nothing can put on a TPU",
           "tf.estimator.DNNClassifier"),
}  # fmt: skip

# --------------------------------------------------------------------------- the modules

PAGES: dict[str, Page] = {
    "": {
        "keras": Symbol("tf_keras.api._v1.keras"),
        "python": Symbol("tensorflow.python"),
        **found_in(f"{_PIECES}.variables", "Variable"),
        **found_in(f"{_PIECES}.variables", "__version__=VERSION VERSION", "it is 1.15.5, the version whose tree this is"),
    },
    "compat": {"v1": Symbol("@"), "v2": Symbol("@compat.v2")},
    "distribute.cluster_resolver": _RESOLVER,
    "tpu.experimental": found_in("tpugraph", "AdagradParameters AdamParameters StochasticGradientDescentParameters"),
    "version": found_in(f"{_PIECES}.variables", "VERSION", "it is 1.15.5, the version whose tree this is"),
    "layers": {
        **found_in(f"{_PIECES}.normalization", "BatchNormalization"),
        **found_in(f"{_LEGACY}.layers", "InputSpec Layer Conv1D Conv2D Conv2DTranspose Conv3D Conv3DTranspose SeparableConv1D "
                   "SeparableConv2D conv1d conv2d conv2d_transpose conv3d conv3d_transpose separable_conv1d separable_conv2d Dense "
                   "Dropout Flatten dense dropout flatten batch_normalization AveragePooling1D AveragePooling2D AveragePooling3D "
                   "MaxPooling1D MaxPooling2D MaxPooling3D average_pooling1d average_pooling2d average_pooling3d max_pooling1d "
                   "max_pooling2d max_pooling3d"),
    },
    "layers.experimental": found_in(f"{_LEGACY}.layers.experimental", "keras_style_scope set_keras_style"),
    "python.tpu.tpu_embedding": found_in("tpugraph", "TableConfig FeatureConfig AdagradParameters AdamParameters "
                                         "StochasticGradientDescentParameters"),
    "contrib.tpu": {
        **_TPU,
        **found_in("tpugraph", "CrossShardOptimizer"),
        **found_in(f"{_PIECES}.exports", "export_estimator_savedmodel"),
        **found_in("tensorflow.python.tpu.ops.tpu_ops", "cross_replica_sum infeed_dequeue infeed_dequeue_tuple infeed_enqueue "
                   "infeed_enqueue_tuple outfeed_dequeue outfeed_dequeue_tuple outfeed_enqueue outfeed_enqueue_tuple"),
        **found_in(f"{_V1}.tpu", "initialize_system shutdown_system core replicate shard batch_parallel rewrite "
                   "outside_compilation bfloat16_scope"),
        **found_in("tensorflow.python.tpu.device_assignment", "device_assignment DeviceAssignment"),
        **found_in("tensorflow.python.tpu.topology", "Topology"),
        **found_in("tensorflow.python.tpu.tpu_feed", "InfeedQueue"),
        **found_in("tensorflow.python.tpu.training_loop", "while_loop repeat"),
        **found_in(f"{_V1}.train", "AsyncCheckpointSaverHook=CheckpointSaverHook", "checkpoints are written in the same thread"),
        **found_in("tpugraph.estimator.keras_tpu_model", "keras_to_tpu_model", "the logs of an epoch have the loss and the "
                   "validation, no metrics of training; callbacks are not told of batches"),
        **found_in("tpugraph.estimator.keras_tpu_model", "TPUDistributionStrategy"),
        "profiler": Symbol("@contrib.tpu.profiler"),
        **found_in(f"{_PIECES}.hooks", "TPUInMemoryEvalHook=InMemoryEvaluatorHook",
                   "TensorFlow 1.15 names it and has no such class; it is tf.estimator.experimental.InMemoryEvaluatorHook"),
    },
    "contrib.tpu.profiler": found_in("tensorflow.tsl.profiler.protobuf.trace_events_pb2", "Trace Resource Device TraceEvent"),
    "contrib.data": {
        **found_in(f"{_V1}.data.experimental", "AUTOTUNE map_and_batch parallel_interleave shuffle_and_repeat Counter "
                   "enumerate_dataset ignore_errors get_single_element bucket_by_sequence_length group_by_reducer group_by_window "
                   "Reducer choose_from_datasets sample_from_datasets make_saveable_from_iterator parse_example_dataset "
                   "copy_to_device prefetch_to_device RandomDataset CsvDataset make_batched_features_dataset make_csv_dataset "
                   "SqlDataset rejection_resample scan unique TFRecordWriter get_next_as_optional Optional dense_to_sparse_batch "
                   "unbatch"),
        **found_in(f"{_PIECES}.inputs", "batch_and_drop_remainder padded_batch_and_drop_remainder sloppy_interleave "
                   "sliding_window_batch assert_element_shape reduce_dataset"),
        **found_in(f"{_V1}.data.experimental", "read_batch_features=make_batched_features_dataset",
                   "it returns the Dataset, not tensors of it"),
        **gone("StatsAggregator latency_stats set_stats_aggregator", "TensorFlow 2 collects no statistics of inputs any more",
               "tf.profiler, which shows where an input waits"),
        **gone("LMDBDataset", "TensorFlow has no reader of LMDB files any more", "tf.data.TFRecordDataset"),
        **gone("CheckpointInputPipelineHook", "the position of an input is not saved",
               "tf.data.experimental.make_saveable_from_iterator in a Saver of your own"),
    },
    "contrib.cluster_resolver": {
        **_RESOLVER,
        **found_in(f"{_V1}.distribute.cluster_resolver", "ClusterResolver SimpleClusterResolver UnionClusterResolver=UnionResolver "
                   "GCEClusterResolver KubernetesClusterResolver SlurmClusterResolver TFConfigClusterResolver"),
    },
    "contrib.training": {
        **found_in(f"{_PIECES}.hparams", "HParams parse_values"),
        **found_in("tf_slim.training.evaluation", "checkpoints_iterator evaluate_once evaluate_repeatedly get_or_create_eval_step "
                   "StopAfterNEvalsHook SummaryAtEndHook wait_for_new_checkpoint"),
        **found_in("tf_slim.training.training", "add_gradients_summaries clip_gradient_norms clip_gradient_norms_fn create_train_op "
                   "multiply_gradients train"),
        **gone("HParamDef", "it was the protobuf behind HParams", "HParams.to_json()"),
        **gone("bucket bucket_by_sequence_length rejection_sample resample_at_rate stratified_sample weighted_resample "
               "batch_sequences_with_states NextQueuedSequenceBatch SequenceQueueingStateSaver FeedingQueueRunner",
               "it is built on queues that only a Python thread fills, which no TPU input can have",
               "tf.data, such as tf.data.experimental.bucket_by_sequence_length and rejection_resample"),
        **gone("RandomStrategy GreedyLoadBalancingStrategy byte_size_load_fn", "there are no parameter servers",
               "nothing: variables are on the cores"),
        **gone("FailureTolerator Tuner", "no program was found that uses it", "a loop of your own around train"),
    },
    # in the model itself nothing runs these by itself; in a host call they run in each step
    "contrib.summary": {
        **found_in("tensorflow.python.ops.summary_ops_v2", "scalar histogram image audio generic create_file_writer "
                   "create_summary_file_writer always_record_summaries never_record_summaries record_summaries_every_n_global_steps "
                   "should_record_summaries all_summary_ops=all_v2_summary_ops flush initialize summary_writer_initializer_op graph "
                   "eval_dir import_event SummaryWriter"),
        **gone("create_db_writer", "TensorFlow writes summaries to no database any more", "tf.contrib.summary.create_file_writer"),
    },
    "contrib.framework": {  # what tf_slim does not have of it
        **found_in(f"{_V1}.train", "get_global_step get_or_create_global_step create_global_step assert_global_step "
                   "init_from_checkpoint list_variables load_variable load_checkpoint"),
        **found_in(_V1, "nest is_tensor"),
        **found_in("tensorflow", "sort argsort"),
    },
    "contrib.layers": found_in("tf_slim", "optimize_loss OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES l1_regularizer l2_regularizer "
                               "l1_l2_regularizer sum_regularizer apply_regularization xavier_initializer xavier_initializer_conv2d "
                               "variance_scaling_initializer summarize_tensor summarize_tensors summarize_collection "
                               "summarize_activation summarize_activations summarize_variables summarize_weights summarize_biases "
                               "instance_norm group_norm adaptive_clipping_fn"),
    "contrib.opt": found_in(f"{_PIECES}.contrib_optimizers", "AdamWOptimizer MomentumWOptimizer LARSOptimizer LazyAdamOptimizer "
                            "extend_with_decoupled_weight_decay DecoupledWeightDecayExtension"),
    "contrib.estimator": {
        **found_in("tpugraph.estimator.heads", "binary_classification_head=BinaryClassHead multi_class_head=MultiClassHead "
                   "regression_head=RegressionHead"),
        **found_in(_FUNCTIONS, "add_metrics clip_gradients_by_norm"),
        **_STOPPING,
    },
    "contrib.quantize": gone(
        "create_training_graph create_eval_graph experimental_create_training_graph experimental_create_eval_graph",
        "it put the fake quantization of TensorFlow Lite into a graph, and was dropped with TensorFlow 2",
        "leave it out (most programs have a flag for it), and quantize the exported model",
    ),
    "contrib.crf": {
        **found_in(f"{_PIECES}.crf", "crf_binary_score crf_constrained_decode crf_decode crf_filtered_inputs crf_log_likelihood "
                   "crf_log_norm crf_multitag_sequence_score crf_sequence_score crf_unary_score viterbi_decode"),
        **gone("CrfForwardRnnCell CrfDecodeForwardRnnCell CrfDecodeBackwardRnnCell",
               "they were parts of crf_log_norm and crf_decode", "tf.contrib.crf.crf_log_norm or crf_decode"),
    },
    "contrib.rnn": {
        **found_in(f"{_PIECES}.rnn_cells", "AttentionCellWrapper Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell "
                   "CoupledInputForgetGateLSTMCell EmbeddingWrapper FusedRNNCell FusedRNNCellAdaptor GRUBlockCell GRUBlockCellV2 "
                   "HighwayWrapper IndRNNCell IndyGRUCell IndyLSTMCell InputProjectionWrapper LSTMBlockCell LSTMBlockFusedCell "
                   "LayerNormBasicLSTMCell LayerNormLSTMCell NASCell OutputProjectionWrapper PhasedLSTMCell SRUCell "
                   "TimeReversedFusedRNN UGRNNCell stack_bidirectional_dynamic_rnn stack_bidirectional_rnn"),
        **gone("BidirectionalGridLSTMCell CFNCell CompiledWrapper GLSTMCell GridLSTMCell IntersectionRNNCell MinimalRNNCell NTMCell "
               "TimeFreqLSTMCell WeightNormLSTMCell",
               "it was an experiment of tf.contrib that no published program was found to use",
               "tf.nn.rnn_cell.LSTMCell, or a class of your own that derives from tf.nn.rnn_cell.RNNCell"),
        **found_in("tensorflow.python.ops.rnn", "best_effort_input_batch_size=_best_effort_input_batch_size "
                   "transpose_batch_time=_transpose_batch_time"),
        **found_in("tf_keras.src.layers.rnn.legacy_cells", "LayerRNNCell"),
    },
    "contrib.seq2seq": {
        **found_in(f"{_PIECES}.decoding", "BasicDecoder BasicDecoderOutput CustomHelper Decoder GreedyEmbeddingHelper Helper "
                   "InferenceHelper SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper ScheduledOutputTrainingHelper "
                   "TrainingHelper dynamic_decode sequence_loss"),
        **found_in(f"{_PIECES}.attention", "AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention "
                   "BahdanauMonotonicAttention LuongAttention LuongMonotonicAttention hardmax monotonic_attention safe_cumprod"),
        **found_in(f"{_PIECES}.beam_search", "BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState "
                   "FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array tile_batch"),
    },
    "contrib.predictor": found_in(f"{_PIECES}.exports", "from_estimator from_saved_model"),
    "contrib.distribute": {
        **found_in(f"{_PIECES}.strategies", "CollectiveAllReduceStrategy MirroredStrategy OneDeviceStrategy ParameterServerStrategy "
                   "TPUStrategy", "it means the cores, which share each batch that the input gives"),
        **found_in(f"{_PIECES}.strategies", "DistributeConfig DistributionStrategy=CoreStrategy"),
        **found_in(f"{_V1}.distribute", "get_replica_context get_strategy has_strategy in_cross_replica_context "
                   "get_loss_reduction"),
        **gone("AllReduceCrossDeviceOps ReductionToOneDeviceCrossDeviceOps CrossDeviceOps MultiWorkerAllReduce Monitor Step "
               "StandardInputStep StandardSingleLossStep", "the compiler chooses how cores combine their values",
               "nothing: leave it out"),
        **gone("run_standard_tensorflow_server", "there are no TensorFlow servers of workers", "tpugraph run --coordinator"),
        **found_in(f"{_V1}.tpu", "initialize_tpu_system=initialize_system"),
    },
    "contrib.tensorboard.plugins.projector": {
        **found_in("tensorboard.plugins.projector", "ProjectorConfig EmbeddingInfo SpriteMetadata"),
        **found_in(f"{_PIECES}.exports", "visualize_embeddings"),
    },
    "contrib.learn": {
        **found_in(_LEARN, "Experiment ModeKeys RunConfig"),
        **gone("DNNClassifier DNNRegressor DNNLinearCombinedClassifier DNNLinearCombinedRegressor DNNEstimator Estimator "
               "LinearClassifier LinearRegressor LinearEstimator KMeansClustering SVM BaseEstimator Trainable Evaluable SKCompat "
               "MetricSpec ModelFnOps PredictionKey InputFnOps make_export_strategy ExportStrategy "
               "infer_real_valued_columns_from_input infer_real_valued_columns_from_input_fn",
               "it was deprecated with TensorFlow 1.4, and took other arguments", "tf.estimator, which has the same models"),
    },
    "contrib.learn.learn_runner": found_in(_LEARN, "run"),
    "contrib.learn.preprocessing": found_in(_LEARN, "VocabularyProcessor"),
    "contrib.learn.datasets.base": found_in(_LEARN, "Dataset Datasets load_csv_with_header load_csv_without_header"),
    "estimator": _ESTIMATOR,
    "estimator.export": {
        **found_in("tpugraph.estimator.exporting", "ServingInputReceiver TensorServingInputReceiver "
                   "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn"),
        **found_in("tensorflow.python.saved_model.model_utils.export_output", "ExportOutput ClassificationOutput PredictOutput "
                   "RegressionOutput"),
    },
    "estimator.inputs": found_in(f"{_PIECES}.inputs", "numpy_input_fn pandas_input_fn",
                                 "the function returns a Dataset, not tensors that a queue fills"),
    "estimator.tpu": _TPU,
    "estimator.tpu.experimental": found_in("tpugraph", "EmbeddingConfigSpec", "every core has each table whole"),
    "estimator.experimental": {
        **_STOPPING,
        **found_in("tpugraph.estimator.canned_estimators", "dnn_logit_fn_builder linear_logit_fn_builder"),
        **found_in(_FUNCTIONS, "call_logit_fn"),
        **found_in("tpugraph.estimator.exporting", "build_raw_supervised_input_receiver_fn"),
        **found_in(f"{_PIECES}.hooks", "InMemoryEvaluatorHook"),
        **found_in(f"{_PIECES}.kmeans", "KMeans", "it is not put on cores"),
        **gone("LinearSDCA", "it keeps a dual variable of each example in a hash table of one host, which nothing can put on a TPU",
               "the optimizer Ftrl, with l1 and l2"),
    },
    "compat.v2.estimator": {
        **_ESTIMATOR,
        **found_in(f"{_PIECES}.estimators_v2", "BaselineClassifier BaselineRegressor DNNClassifier DNNLinearCombinedClassifier "
                   "DNNLinearCombinedRegressor DNNRegressor LinearClassifier LinearRegressor", "optimizers are those of tf.train"),
        "export": Symbol("@estimator.export"),
        "experimental": Symbol("@estimator.experimental"),
    },
}  # fmt: skip
"""Of each module of the tree, by its name below ``tf``, the symbols with a record of their own."""

INSIDE: dict[str, Page] = {
    "estimator": {
        **found_in(_FUNCTIONS, "_load_global_step_from_checkpoint_dir=load_global_step_from_checkpoint_dir parse_input_fn_result"),
        **found_in("tensorflow.python.saved_model.signature_constants", "_DEFAULT_SERVING_KEY=DEFAULT_SERVING_SIGNATURE_DEF_KEY"),
        **found_in("tensorflow.python.util.function_utils", "fn_args"),
    },
    "contrib.tpu": found_in("tensorflow.python.tpu.tpu_function", "get_tpu_context"),
    "contrib.seq2seq": found_in(f"{_PIECES}.attention", "_BaseAttentionMechanism _bahdanau_score _compute_attention _luong_score"),
}  # fmt: skip
"""What published programs take from the files of a module without being public in it; no promise of docs/compat.md."""

BASES: dict[str, tuple[str, ...]] = {
    "": (_V1,),
    "compat": (f"{_V1}.compat",),
    "nn": (f"{_V1}.nn",),
    "nn.rnn_cell": (f"{_LEGACY}.rnn_cell",),
    "contrib.rnn": (f"{_LEGACY}.rnn_cell", f"{_V1}.nn"),
    "contrib.framework": ("tf_slim",),
    "contrib.layers": ("tf_slim.layers", "tf_slim"),
    "contrib.slim": ("tf_slim",),
    "contrib.slim.nets": ("tf_slim.nets",),
    "contrib.losses": ("tf_slim.losses",),
    "contrib.metrics": ("tf_slim.metrics",),
    "contrib.gan": ("tensorflow_gan",),
    "compat.v2": ("tensorflow.compat.v2",),
    "contrib.lookup": ("tensorflow.python.ops.lookup_ops",),
    "distribute": (f"{_V1}.distribute",),
    "distribute.cluster_resolver": (f"{_V1}.distribute.cluster_resolver",),
    "python.tpu": ("tensorflow.python.tpu",),
    "python.tpu.tpu_embedding": (),
    "tpu": (f"{_V1}.tpu",),
    "tpu.experimental": (f"{_V1}.tpu.experimental",),
    "version": (f"{_V1}.version",),
}
"""The modules in which names without a record are looked up, first one first."""

_INSTEAD = {
    "tensorflow_probability": "bayesflow distributions linear_optimizer",
    "tf.estimator": "legacy_seq2seq boosted_trees factorization tensor_forest timeseries kernel_methods",
    "nothing: TPUEstimator's cores need no strategy": "all_reduce nccl",
    "nothing: a program for Estimator makes graphs": "eager autograph",
    "tf.data": "cloud bigtable hadoop ignite kafka kinesis libsvm",
    "nothing: it is for other devices than TPUs": "tensorrt lite fused_conv",
    "tf.nn.rnn_cell.LSTMCell with tf.nn.dynamic_rnn": "cudnn_rnn",
    "tf.image": "image",
    "tpugraph compile, which says how much memory a step takes": "memory_stats",
    "tf.contrib.tpu.bfloat16_scope": "mixed_precision",
    "tensorflow_model_optimization": "model_pruning",
    "tf.profiler": "tfprof",
    "tf.summary": "deprecated",
    "tf.random.stateless_uniform and the like": "stateless",
    "tf.train.Checkpoint": "checkpoint",
    "tf.quantization": "quantization",
    "tf.signal": "signal",
    "tf.saved_model": "saved_model session_bundle",
    "scipy.integrate": "integrate",
    "tf.train.ProfilerHook": "hooks",
    "tf.feature_column": "feature_column",
    "a function of tf itself; docs/compat.md lists what there is of tf.contrib":
        "batching compiler constrained_optimization copy_graph decision_trees ffmpeg graph_editor grid_rnn input_pipeline keras "
        "labeled_tensor meta_graph_transform nearest_neighbor nn optimizer_v2 periodic_resample proto receptive_field recurrent "
        "reduce_slice_ops remote_fused_graph resampler rpc solvers sparsemax specs staging stat_summarizer testing text util",
}  # fmt: skip
CONTRIB = {name: instead for instead, names in _INSTEAD.items() for name in names.split()}
"""The packages of ``tf.contrib`` that have nothing in their place, and what to use instead."""
