"""What the libraries raise, as the sentence an operator reads. Imports none: what raised is imported by then."""

import sys

from sluice.errors import SET_CREDENTIALS, ConfigError, EndpointError, MessagingError


def explained(error: Exception) -> MessagingError | None:
    """Return what happened and the next step; None of an error nobody thought of."""
    if _is_a(error, "sqlalchemy.exc", "SQLAlchemyError"):
        text = str(getattr(error, "orig", None) or error).strip().splitlines()
        return EndpointError(
            f"the database does not do it ({text[0] if text else type(error).__name__}); look at --dsn"
        )
    if _is_a(error, "botocore.exceptions", "ProfileNotFound"):
        return ConfigError(f"{str(error).lower()}; correct AWS_PROFILE, or unset it")
    if _is_a(error, "botocore.exceptions", "NoCredentialsError"):
        return EndpointError(f"there are no AWS credentials; {SET_CREDENTIALS}")
    if _is_a(error, "botocore.exceptions", "BotoCoreError", "ClientError"):
        return EndpointError(f"AWS does not answer as hoped ({error}); look at credentials, region and --endpoint-url")
    return None


def _is_a(error: Exception, module: str, *names: str) -> bool:
    imported = sys.modules.get(module)
    return imported is not None and isinstance(error, tuple(getattr(imported, name) for name in names))
