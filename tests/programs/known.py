"""Programs that do not come out equal today, at how many cores, and in which words: shorter with every change."""

KNOWN = {
    "first_half_folded at 4": "different: the loss differs",
    "top_k_hard_examples_folded at 4": "different: 'out' differs",
}
