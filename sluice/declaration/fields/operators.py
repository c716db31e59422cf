"""Who hears the alarms of an environment."""

import re
from typing import TYPE_CHECKING

from sluice.declaration.validation import declared, matching, require
from sluice.limits import FIFO_SUFFIX

if TYPE_CHECKING:
    from sluice.declaration.environment import Environment

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
EMAIL = r"[^@\s]+@[^@\s]+\.[^@\s]+"
HTTPS = rf"https://({_LABEL}\.)+{_LABEL}(:[0-9]{{1,5}})?(/[!-~]*)?"


@declared
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


def check_operators(environment: "Environment") -> None:
    """Refuse whom no alarm would reach.

    Raises:
        FieldError: an address is none, or something is subscribed to a topic that is somebody else's.
    """
    for address in environment.alarm_emails:
        require(
            environment, re.fullmatch(EMAIL, address), field="alarm_emails", seen=address, allowed="e-mail addresses"
        )
    for address in environment.alarm_urls:
        require(
            environment,
            re.fullmatch(HTTPS, address),
            field="alarm_urls",
            seen=address,
            allowed="addresses that begin with https://",
        )
    arn = environment.alarm_topic_arn
    if arn is None:
        return
    require(
        environment,
        arn.split(":")[3] == environment.region and not arn.endswith(FIFO_SUFFIX),
        field="alarm_topic_arn",
        allowed=f"a standard topic in {environment.region}: alarms publish to no other",
    )
    require(
        environment,
        not (environment.alarm_emails or environment.alarm_urls or environment.alarm_slack),
        field="alarm_topic_arn",
        allowed="None beside alarm_emails, alarm_urls and alarm_slack: they belong to a topic of the environment's own",
    )
