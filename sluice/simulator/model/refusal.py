"""AWS's errors, with AWS's own codes and texts."""


class AwsRefusal(Exception):
    """AWS refuses a call.

    Args:
        code: `Error.Code` of boto3's ClientError.
        text: `Error.Message` of boto3's ClientError.
        status: the HTTP status.
        shape: the error's name in the service model, boto3's `QueryErrorCode`; None means the code without its prefix.
    """

    def __init__(self, code: str, text: str, *, status: int = 400, shape: str | None = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.status = code, text, status
        self.shape = code.rpartition(".")[2] if shape is None else shape


def invalid_value(text: str) -> AwsRefusal:
    """Return InvalidParameterValue, SQS's most frequent error."""
    return AwsRefusal("InvalidParameterValue", text, shape="InvalidParameterValueException")


def invalid_parameter(name: str, value: object, reason: str) -> AwsRefusal:
    """Return InvalidParameterValue with the sentence that SQS usually writes."""
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def missing(name: str) -> AwsRefusal:
    """Return MissingParameter, the error of a call without a required parameter."""
    text = f"The request must contain the parameter {name}."
    return AwsRefusal("MissingParameter", text, shape="MissingRequiredParameterException")


def unknown_queue() -> AwsRefusal:
    """Return the error of every call on a queue that does not exist [CRE-22]."""
    return AwsRefusal(
        "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.", shape="QueueDoesNotExist"
    )


def not_found(text: str) -> AwsRefusal:
    """Return the error of a move task whose queue or task does not exist."""
    return AwsRefusal("ResourceNotFoundException", text, status=404)


def sns_invalid(text: str) -> AwsRefusal:
    """Return SNS's InvalidParameter."""
    return AwsRefusal("InvalidParameter", f"Invalid parameter: {text}")
