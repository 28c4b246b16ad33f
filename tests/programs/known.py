"""Programs that do not come out equal today, at how many cores, and in which words: shorter with every change."""

KNOWN: dict[str, str] = {}
