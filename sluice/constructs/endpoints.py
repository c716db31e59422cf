"""Endpoint policies of a new network: they allow the calls of this environment's tasks and producers, and no others.

An endpoint's policy gives no right; it limits the rights of all credentials that are used through the endpoint. So even
stolen credentials, or a right given by mistake, reach no other queue, topic, repository or secret from this network.
AWS: https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html has the bucket of ECR's layers.
"""

from collections.abc import Iterator, Sequence

from sluice.declaration import Environment, NewNetwork, naming, policies
from sluice.declaration.fields.image import image_of

type AllowedCalls = tuple[Sequence[str], list[str]]
"""Actions, and the ARNs of the resources on which they are allowed."""

_PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]


def let_through(environment: Environment, declared: NewNetwork, *, account: str) -> dict[str, list[AllowedCalls]]:
    """Return the actions and resources that each endpoint lets through, by the service's name in ARNs.

    Args:
        environment: as declared.
        declared: its network, with the further resources that producers in it reach.
        account: where the environment is deployed.
    """
    region = environment.region
    logs = f"arn:aws:logs:{region}:{account}:log-group:/ecs/{naming.service_name(environment, '*')}"
    allowed: dict[str, list[AllowedCalls]] = {
        "sqs": list(_queues(environment, account)),
        "ecr": [(["ecr:GetAuthorizationToken"], ["*"]), (_PULL, sorted(set(_repositories(environment, account))))],
        "logs": [(["logs:CreateLogStream", "logs:PutLogEvents"], [logs])],
        # RDS names the secret when it makes the cluster, which is in a later stack.
        "secretsmanager": [
            (["secretsmanager:GetSecretValue"], [f"arn:aws:secretsmanager:{region}:{account}:secret:rds!cluster-*"])
        ],
        "sns": [
            (
                ["sns:Publish"],
                [naming.topic_arn(environment, account, topic.name) for topic in environment.published_topics],
            )
        ],
        "s3": [(["s3:GetObject"], [f"arn:aws:s3:::prod-{region}-starport-layer-bucket/*"])],
    }
    verified = [naming.topic_arn(environment, account, topic.name) for topic in environment.verified_topics]
    if verified:
        allowed["sns"] += [(["sns:ListSubscriptionsByTopic"], verified), (["sns:GetSubscriptionAttributes"], ["*"])]
    for arn in declared.producer_resources:
        service = arn.split(":")[2]
        allowed[service].append(([f"{service}:*"], [arn]))
    return allowed


def _queues(environment: Environment, account: str) -> Iterator[AllowedCalls]:
    """Yield the calls on queues; the environment's own queues are named by the beginning of their names.

    So the policy does not change when a consumer is added or removed, and the worker of a removed consumer can still
    delete the messages that it holds.
    """
    own = naming.queue_arn(environment, naming.service_name(environment, "*"), account)
    existing = [consumer.queue for consumer in environment.consumers if consumer.queue is not None]
    arns = [own, *(arn for queue in existing for arn in (queue.arn, queue.dead_letter_queue_arn))]
    yield policies.CONSUME, arns
    if any(
        consumer.automatic_redrive or environment.sends_dead_letters(consumer) for consumer in environment.consumers
    ):
        yield ["sqs:SendMessage"], arns


def _repositories(environment: Environment, account: str) -> Iterator[str]:
    """Yield the ARNs of the ECR repositories of all declared images, and of the image that CDK builds."""
    region = environment.region
    for image in (environment.image, *(consumer.image for consumer in environment.consumers)):
        parts = None if image is None else image_of(image)
        if parts is not None:
            owner = account if parts.registry is None else parts.registry.partition(".")[0]
            yield f"arn:aws:ecr:{region}:{owner}:repository/{parts.repository}"
    if environment.image is None:  # CDK's repository of built images; the qualifier of its bootstrap stack may vary
        yield f"arn:aws:ecr:{region}:{account}:repository/cdk-*-container-assets-{account}-{region}"
