"""Random numbers."""

from __future__ import annotations

from tpugraph.ops.record import page

op = page("random")

_HOST = "draw in the input function, or from tf.random.normal or tf.random.uniform"
_SAMPLE = "draw the candidates in the input function, or take the full softmax"

op("RandomUniform", role="random", constants=(0,), stateless_op="StatelessRandomUniform", sizes=(0,))
op("RandomUniformInt", role="random", constants=(0,), stateless_op="StatelessRandomUniformInt", sizes=(0,))
op("RandomStandardNormal", role="random", constants=(0,), stateless_op="StatelessRandomNormal", sizes=(0,))
op("TruncatedNormal", role="random", constants=(0,), stateless_op="StatelessTruncatedNormal", sizes=(0,))
op("ParameterizedTruncatedNormal", role="random", constants=(0,), sizes=(0,))
op("Multinomial", role="random", constants=(1,))
op("RandomGamma RandomPoisson RandomPoissonV2", role="random", instead=_HOST)
op("RandomShuffle RandomCrop StatelessMultinomial", role="random")
op("StatefulUniform", role="random", sizes=(1, 2))
op("StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformInt", role="random")
op("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal", constants=(0,), sizes=(0,))
op("StatelessRandomUniformInt", constants=(0,))
op(
    "LogUniformCandidateSampler UniformCandidateSampler LearnedUnigramCandidateSampler FixedUnigramCandidateSampler "
    "AllCandidateSampler ThreadUnsafeUnigramCandidateSampler",
    role="sampler",
    instead=_SAMPLE,
)
