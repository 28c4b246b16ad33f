"""Elementwise string ops."""

from __future__ import annotations

from tpugraph.ops.record import page

op = page("string", dims="elementwise")

op("StringJoin")
op("AsString EncodeBase64 StringLength StringLower StringStrip StringToNumber StringUpper Substr UnicodeScript")
op("StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StaticRegexFullMatch StaticRegexReplace")
op("RegexFullMatch", dims="..., - -> ...")
op("RegexReplace", dims="..., -, - -> ...")
op("DecodeBase64", host_only=True)
