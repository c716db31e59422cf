"""Deployments that tell what they would destroy, and ask first.

`guard` compares templates and calls nothing; `assembly` reads the output of `cdk synth`; `account` reads the deployed
stacks; `deploy` puts them together around the cdk command line.
"""
