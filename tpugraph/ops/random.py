"""Random numbers."""

from __future__ import annotations

from tpugraph.ops.record import page

op = page("random")

_HOST = "draw in the input function, or from tf.random.normal or tf.random.uniform"
_SAMPLE = "draw the candidates in the input function, or take the full softmax"

op("RandomUniform", role="random", constants=(0,), stateless_op="StatelessRandomUniform", shaped_by=0)
op("RandomUniformInt", role="random", constants=(0,), stateless_op="StatelessRandomUniformInt", shaped_by=0)
op("RandomStandardNormal", role="random", constants=(0,), stateless_op="StatelessRandomNormal", shaped_by=0)
op("TruncatedNormal", role="random", constants=(0,), stateless_op="StatelessTruncatedNormal", shaped_by=0)
op("ParameterizedTruncatedNormal", role="random", constants=(0,), shaped_by=0)
op("Multinomial", role="random", constants=(1,))
op("RandomGamma RandomPoisson RandomPoissonV2", role="random", instead=_HOST)
op("RandomShuffle RandomCrop StatelessMultinomial", role="random")
op("StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformInt", role="random", shaped_by=2)
op("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", constants=(0,), shaped_by=0)
op("StatelessRandomUniformInt", constants=(0,), shaped_by=0)
op("StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2", constants=(0, 3), shaped_by=0)
op("StatelessRandomUniformIntV2", constants=(0, 3), shaped_by=0)
op(
    "LogUniformCandidateSampler UniformCandidateSampler LearnedUnigramCandidateSampler FixedUnigramCandidateSampler "
    "AllCandidateSampler ThreadUnsafeUnigramCandidateSampler",
    role="sampler",
    instead=_SAMPLE,
)
