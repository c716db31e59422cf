"""The CDK constructs that turn the declaration into CloudFormation."""
