"""What the libraries raise, as the sentence an operator reads. Imported when something failed: they are heavy."""

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError


def sentence(error: Exception) -> str | None:
    """Return what happened and the next step; None of an error nobody thought of."""
    if isinstance(error, SQLAlchemyError):
        text = str(getattr(error, "orig", None) or error).strip().splitlines()
        return f"the database does not do it ({text[0] if text else type(error).__name__}); look at --dsn"
    if isinstance(error, BotoCoreError | ClientError):
        return f"AWS does not answer as hoped ({error}); look at credentials, region and --endpoint-url"
    return None
