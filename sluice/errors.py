"""The errors Sluice raises for reasons a caller can act on.

    MessagingError
    ├── ConfigError       a declaration, profile or option is wrong: correct it (exit code 3)
    │   └── FieldError    a field of a declared value is
    ├── EndpointError     the other side cannot be used: unreachable, not SQS, refused (exit code 2)
    ├── HistoryError      a recorded history cannot be written or read
    └── Stopped           somebody pressed Ctrl-C, and something is to be said of it (exit code 130)

Messages are one line: the value seen, the value allowed, the next step.
"""

import errno

SET_CREDENTIALS = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
"""The next step where there are no AWS credentials."""
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


class MessagingError(Exception):
    """Root of everything Sluice raises on purpose."""


class ConfigError(MessagingError):
    """Raised when a value given by the user cannot be right."""

    def __str__(self) -> str:
        """Return the message in one line, whatever line breaks the given value has."""
        return " ".join(super().__str__().splitlines())


class FieldError(ConfigError):
    """Raised when a field of a declared value cannot be right.

    Args:
        field: the field's name, by which the loader finds its line.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class EndpointError(MessagingError):
    """Raised when the AWS endpoint cannot be used as asked."""


class HistoryError(MessagingError):
    """Raised when a history cannot be written or read."""


def unwritable(what: object, error: OSError, next_step: str) -> ConfigError | HistoryError:
    """Return the refusal of a file or folder that was given to write to, before anything is begun.

    Another one has to be given (ConfigError), but where the disk is full or broken (HistoryError).
    """
    kind = HistoryError if error.errno in _DISK_ERRORS else ConfigError
    return kind(f"cannot write to {what} ({error.strerror or error}); {next_step}")


class InterruptedWorkError(MessagingError):
    """Raised when Ctrl-C ended work that can be resumed: the message says what is kept where, and how to resume."""
