"""What vl-convert draws of a chart is the same however often: charts that many tests have are drawn once a worker."""

import functools

import vl_convert

vl_convert.vegalite_to_svg = functools.cache(vl_convert.vegalite_to_svg)  # type: ignore[assignment]
