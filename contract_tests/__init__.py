"""The promises, executable, against any endpoint that speaks SQS and SNS."""
