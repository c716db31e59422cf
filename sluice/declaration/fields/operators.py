"""Recipients of the alarms of an environment."""

from sluice.declaration.validation import declaration_class, matching

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
EMAIL = r"[^@\s]+@[^@\s]+\.[^@\s]+"
HTTPS = rf"https://({_LABEL}\.)+{_LABEL}(:[0-9]{{1,5}})?(/[!-~]*)?"


@declaration_class
class SlackChannel:
    """A Slack channel to which AWS Chatbot posts alarms. Somebody authorizes the workspace once, in Chatbot's console.

    AWS: https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-chatbot-slackchannelconfiguration.html
    (read 2026-11-23).

    Args:
        workspace_id: as Chatbot's console shows it.
        channel_id: the end of the channel's link.
    """

    workspace_id: str = matching(r"[0-9A-Z]{1,255}", "a Slack workspace's id such as 'T01234ABCDE'")
    channel_id: str = matching(r"[A-Za-z0-9]{1,255}", "a Slack channel's id such as 'C01234ABCDE'")
