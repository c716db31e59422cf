"""A Lambda function run here, without Docker: real processes of `awslambdaric`, and a model of everything around them.

`runtime_api` is Lambda's Runtime API on the loopback, `process` one execution environment behind it, `local` polls a
queue by the model of the event source mapping and invokes.
"""
