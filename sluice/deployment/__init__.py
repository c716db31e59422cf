"""What a deployment would destroy, and a deployment that asks first.

`guard` compares templates and calls nothing; `assembly` reads what `cdk synth` wrote; `deployed` reads what an account
has; `deploy` puts them together around the cdk command line.
"""
