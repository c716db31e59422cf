"""The hot calls of SNS and SQS at a fraction of boto3's price, by an explicit client that is built beside boto3's.

`client` chooses between both and has the calls as methods; `operation` makes one call's parameters a signed request and
its response an answer or botocore's error, for threads that wait (`connections`) and for selectors alike. Below it,
`codec` compiles botocore's models, `http` reads HTTP/1.1, and `signing` is Signature Version 4. Nothing here retries,
and nothing here knows a message.
"""
