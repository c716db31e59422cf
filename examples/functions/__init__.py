"""The declaration of `examples.services` with billing as a Lambda function."""
