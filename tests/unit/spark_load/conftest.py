"""Charts that many tests have are drawn once a worker: vl-convert draws the same however often it is asked."""

import functools

import vl_convert

vl_convert.vegalite_to_svg = functools.cache(vl_convert.vegalite_to_svg)  # type: ignore[assignment]
