"""AWS's hot calls at a fraction of botocore's price: what is always the same is made once, the rest is botocore's.

`fast_client` of `client` makes a boto3 client cheap; `codec` compiles botocore's models, `connections` speaks HTTP/1.1,
and `signing` is Signature Version 4. Nothing here retries, and nothing here knows a message.
"""
