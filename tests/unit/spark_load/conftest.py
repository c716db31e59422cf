"""Charts that many tests need are drawn once in each test process, because drawing is slow."""

import functools

import vl_convert

vl_convert.vegalite_to_svg = functools.cache(vl_convert.vegalite_to_svg)  # type: ignore[assignment]
