"""Deployments that tell what they would destroy, and ask first.

`guard` compares templates and calls nothing; `assembly` reads what `cdk synth` wrote; `deployed` reads what an account
has; `deploy` puts them together around the cdk command line.
"""
