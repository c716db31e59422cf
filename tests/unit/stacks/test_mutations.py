"""Templates as a careless change would make them: the invariants notice every one, and say what is wrong."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.stacks.extra import FULL
from tests.unit.stacks.invariants import problems
from tests.unit.stacks.synthesis import CONSUMERS, MESSAGING, OBSERVABILITY, Properties, Stacks, Template

type Templates = dict[str, Template]
type Edit = Callable[[Templates], Any]

LEDGER, LEDGER_DLQ = "sluice-full-ledger.fifo", "sluice-full-ledger-dlq.fifo"
LEDGER_UNDELIVERED = "sluice-full-ledger-undelivered-dlq.fifo"
WORKER = "ConsumersConsumerledgerWorkerTaskDefinitionTaskRoleDefaultPolicy"
NIGHT, NIGHT_DLQ = "sluice-full-night-batch.fifo", "sluice-full-night-batch-dlq.fifo"
OF_QUEUES = "arn:aws:sqs:eu-central-1:111122223333"
OPEN = {"Effect": "Allow", "Action": "sqs:SendMessage", "Principal": "*", "Resource": "*"}


def _resource(templates: Templates, part: str, id_: str) -> dict[str, Any]:
    """Return the one resource of that logical id, less its hash."""
    (found,) = (one for key, one in templates[part]["Resources"].items() if key[:-8] == id_)
    resource: dict[str, Any] = found
    return resource


def _properties(templates: Templates, part: str, id_: str) -> Properties:
    properties: Properties = _resource(templates, part, id_)["Properties"]
    return properties


def _id(templates: Templates, part: str, id_: str) -> str:
    (found,) = (str(key) for key in templates[part]["Resources"] if key[:-8] == id_)
    return found


def _named(templates: Templates, kind: str, name: str) -> Properties:
    """Return the properties of the one resource of that type that has that value in some property."""
    (found,) = (
        one["Properties"]
        for template in templates.values()
        for one in template["Resources"].values()
        if one["Type"] == kind and name in one["Properties"].values()
    )
    properties: Properties = found
    return properties


def _queue(templates: Templates, name: str) -> Properties:
    return _named(templates, "AWS::SQS::Queue", name)


def _alarm(templates: Templates, name: str) -> Properties:
    return _named(templates, "AWS::CloudWatch::Alarm", f"sluice-full-{name}")


def _subscription(templates: Templates, consumer: str) -> Properties:
    return next(
        one["Properties"]
        for id_, one in templates[MESSAGING]["Resources"].items()
        if one["Type"] == "AWS::SNS::Subscription" and id_.startswith(f"FanoutConsumer{consumer}")
    )


def _allowed(templates: Templates, part: str, policy: str) -> list[Any]:
    """Return the statements of a policy, to be changed."""
    properties = _properties(templates, part, policy)
    document = properties["KeyPolicy" if "KeyPolicy" in properties else "PolicyDocument"]
    statements: list[Any] = document["Statement"]
    return statements


def _worker(templates: Templates) -> list[Any]:
    return _allowed(templates, CONSUMERS, WORKER)


def _container(templates: Templates) -> dict[str, Any]:
    definition = _named(templates, "AWS::ECS::TaskDefinition", "sluice-full-ledger")
    container: dict[str, Any] = definition["ContainerDefinitions"][0]
    return container


def _service(templates: Templates) -> Properties:
    return _named(templates, "AWS::ECS::Service", "sluice-full-ledger")


def _tracking(templates: Templates) -> dict[str, Any]:
    policy = _properties(templates, CONSUMERS, "ConsumersConsumerledgerScalingBacklogPerTask")
    tracking: dict[str, Any] = policy["TargetTrackingScalingPolicyConfiguration"]
    return tracking


def _queries(templates: Templates) -> list[dict[str, Any]]:
    queries: list[dict[str, Any]] = _tracking(templates)["CustomizedMetricSpecification"]["Metrics"]
    return queries


def _remove(templates: Templates, part: str, id_: str) -> None:
    resources, whole = templates[part]["Resources"], _id(templates, part, id_)
    del resources[whole]
    for resource in resources.values():  # CDK does not wait for what is not there
        resource["DependsOn"] = [other for other in resource.get("DependsOn", []) if other != whole]


def _add(templates: Templates, part: str, kind: str, **properties: Any) -> None:
    templates[part]["Resources"]["AddedABCDEF01"] = {"Type": kind, "Properties": properties}


def _without_task_protection(templates: Templates) -> None:
    statements = _worker(templates)
    statements[:] = [
        one for one in statements if one["Action"] != ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"]
    ]


def _written(queries: list[dict[str, Any]], old: str, new: str) -> None:
    for query in queries:
        if "Expression" in query:
            query["Expression"] = query["Expression"].replace(old, new)


def _scaled_on_cpu(templates: Templates) -> None:
    tracking = _tracking(templates)
    del tracking["CustomizedMetricSpecification"]
    tracking["PredefinedMetricSpecification"] = {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"}


def _scaled_on_cpu_too(templates: Templates) -> None:
    _add(
        templates,
        CONSUMERS,
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        PolicyType="TargetTrackingScaling",
        ScalingTargetId={"Ref": _id(templates, CONSUMERS, "ConsumersConsumerledgerScalingTarget")},
    )


def _shared(templates: Templates) -> None:
    _subscription(templates, "ledger")["RedrivePolicy"] = _subscription(templates, "nightbatch")["RedrivePolicy"]


def _exported(templates: Templates) -> None:
    templates[MESSAGING]["Outputs"]["ExportsOutputFnGetAttFanoutConsumerledgerQueue2E289984Arn"] = {
        "Value": {"Fn::GetAtt": [_id(templates, MESSAGING, "FanoutConsumerledgerQueue"), "Arn"]},
        "Export": {"Name": "sluice-full-messaging:ExportsOutputFnGetAttFanoutConsumerledgerQueue2E289984Arn"},
    }


QUEUE_POLICY, TOPIC_POLICY = "FanoutConsumerledgerQueuePolicy", "FanoutTopicPolicy"
UNDELIVERED_POLICY, OPERATORS_POLICY = "FanoutConsumerledgerUndeliveredQueuePolicy", "OperatorsTopicPolicy"

MUTATIONS: dict[str, tuple[Edit, list[str]]] = {
    "a queue without a DLQ": (
        lambda t: _queue(t, LEDGER).pop("RedrivePolicy"),
        [
            "sluice-full-ledger-dlq.fifo has no DLQ",
            "sluice-full-ledger.fifo has no DLQ",
            "sluice-full-ledger.fifo has maxReceiveCount None",
        ],
    ),
    "a standard DLQ": (
        lambda t: _queue(t, LEDGER_DLQ).update(FifoQueue=False),
        [
            "sluice-full-ledger-dlq.fifo is not FIFO for high throughput",
            "sluice-full-ledger-dlq.fifo is not of the type of sluice-full-ledger.fifo",
        ],
    ),
    "a standard queue": (
        lambda t: _queue(t, LEDGER).pop("FifoQueue"),
        [
            "sluice-full-ledger.fifo is not FIFO for high throughput",
            "sluice-full-ledger-dlq.fifo is not of the type of sluice-full-ledger.fifo",
        ],
    ),
    "a DLQ that forgets sooner than its queue": (
        lambda t: _queue(t, LEDGER_DLQ).update(MessageRetentionPeriod=3_600),
        [
            "sluice-full-ledger-dlq.fifo keeps messages for a shorter time than sluice-full-ledger.fifo",
            "sluice-full-ledger-dlq.fifo has MessageRetentionPeriod 3600",
        ],
    ),
    "a DLQ that takes from everybody": (
        lambda t: _queue(t, LEDGER_DLQ).update(RedriveAllowPolicy={"redrivePermission": "allowAll"}),
        ["sluice-full-ledger-dlq.fifo does not take messages from sluice-full-ledger.fifo alone"],
    ),
    "a DLQ that does not say from whom it takes": (
        lambda t: _queue(t, LEDGER_DLQ).pop("RedriveAllowPolicy"),
        ["sluice-full-ledger-dlq.fifo does not take messages from sluice-full-ledger.fifo alone"],
    ),
    "a DLQ that takes from another's queue": (
        lambda t: _queue(t, LEDGER_DLQ).update(RedriveAllowPolicy=_queue(t, NIGHT_DLQ)["RedriveAllowPolicy"]),
        ["sluice-full-ledger-dlq.fifo does not take messages from sluice-full-ledger.fifo alone"],
    ),
    "two queues with one DLQ": (
        lambda t: _queue(t, LEDGER).update(RedrivePolicy=_queue(t, NIGHT)["RedrivePolicy"]),
        [
            "sluice-full-ledger-dlq.fifo has no DLQ",
            "sluice-full-night-batch-dlq.fifo is the DLQ of 2",
            "sluice-full-night-batch-dlq.fifo does not take messages from sluice-full-ledger.fifo alone",
            "sluice-full-night-batch-dlq.fifo is the DLQ of 2",
            "sluice-full-ledger.fifo has maxReceiveCount 5",
        ],
    ),
    "two subscriptions with one DLQ": (
        _shared,
        [
            "sluice-full-ledger-undelivered-dlq.fifo has no DLQ",
            "what SNS cannot deliver to ledger goes to Arn(sluice-full-night-batch-undelivered-dlq.fifo)",
            "what SNS cannot deliver to ledger is mixed with something else",
            "what SNS cannot deliver to night-batch is mixed with something else",
        ],
    ),
    "a subscription without a DLQ": (
        lambda t: _subscription(t, "ledger").pop("RedrivePolicy"),
        [
            "sluice-full-ledger-undelivered-dlq.fifo has no DLQ",
            "what SNS cannot deliver to ledger goes to None",
            "what SNS cannot deliver to ledger is mixed with something else",
        ],
    ),
    "a subscription with the queue's own DLQ": (
        lambda t: _subscription(t, "ledger").update(
            RedrivePolicy={"deadLetterTargetArn": _queue(t, LEDGER)["RedrivePolicy"]["deadLetterTargetArn"]}
        ),
        [
            "sluice-full-ledger-undelivered-dlq.fifo has no DLQ",
            "sluice-full-ledger-dlq.fifo is the DLQ of 2",
            "what SNS cannot deliver to ledger goes to Arn(sluice-full-ledger-dlq.fifo)",
            "what SNS cannot deliver to ledger is mixed with something else",
        ],
    ),
    "envelopes": (lambda t: _subscription(t, "ledger").pop("RawMessageDelivery"), ["ledger gets envelopes"]),
    "a filter lost": (
        lambda t: _subscription(t, "ledger").pop("FilterPolicy"),
        ["ledger is filtered otherwise than declared"],
    ),
    "a consumer not subscribed": (
        lambda t: _remove(t, MESSAGING, "FanoutConsumerledgerQueuefullMessagingFanoutTopic35266735"),
        ["sluice-full-ledger-undelivered-dlq.fifo has no DLQ", "there are 1 subscriptions", "ledger is not subscribed"],
    ),
    "a queue's name without .fifo": (
        lambda t: _queue(t, LEDGER).update(QueueName="sluice-full-ledger"),
        [
            "sluice-full-ledger is no name for a FIFO queue",
            "sluice-full-ledger is unknown",
            "sluice-full-ledger.fifo is missing",
            "sluice-full-ledger-dlq.fifo does not take messages from sluice-full-ledger alone",
            "sluice-full-ledger.fifo has MessageRetentionPeriod None",
            "sluice-full-ledger.fifo has VisibilityTimeout None",
            "sluice-full-ledger.fifo has ReceiveMessageWaitTimeSeconds None",
            "sluice-full-ledger.fifo has maxReceiveCount None",
            "ledger is not subscribed",
            "SNS may send to Arn(sluice-full-ledger)",
            "SNS may not send to Arn(sluice-full-ledger.fifo)",
        ],
    ),
    "two queues of one name": (
        lambda t: _queue(t, NIGHT).update(QueueName=LEDGER),
        [
            "2 queues are called sluice-full-ledger.fifo",
            "sluice-full-night-batch.fifo is missing",
            "sluice-full-ledger-dlq.fifo has no DLQ",
            "sluice-full-night-batch-dlq.fifo does not take messages from sluice-full-ledger.fifo alone",
            "sluice-full-night-batch.fifo has MessageRetentionPeriod None",
            "sluice-full-night-batch.fifo has VisibilityTimeout None",
            "sluice-full-night-batch.fifo has ReceiveMessageWaitTimeSeconds None",
            "sluice-full-night-batch.fifo has maxReceiveCount None",
            "what SNS cannot deliver to ledger goes to Arn(sluice-full-night-batch-undelivered-dlq.fifo)",
            "ledger is filtered otherwise than declared",
            "night-batch is not subscribed",
            "SNS may not send to Arn(sluice-full-night-batch.fifo)",
        ],
    ),
    "throughput by queue": (
        lambda t: _queue(t, LEDGER).update(FifoThroughputLimit="perQueue"),
        ["sluice-full-ledger.fifo is not FIFO for high throughput"],
    ),
    "deduplication by queue": (
        lambda t: _queue(t, LEDGER_UNDELIVERED).update(DeduplicationScope="queue"),
        ["sluice-full-ledger-undelivered-dlq.fifo is not FIFO for high throughput"],
    ),
    "throughput by topic": (
        lambda t: _properties(t, MESSAGING, "FanoutTopic").update(FifoThroughputScope="Topic"),
        ["the topic is not FIFO for high throughput"],
    ),
    "deduplication by content": (
        lambda t: _properties(t, MESSAGING, "FanoutTopic").update(ContentBasedDeduplication=True),
        ["something deduplicates by content"],
    ),
    "one attempt more": (
        lambda t: _queue(t, LEDGER)["RedrivePolicy"].update(maxReceiveCount=8),
        ["sluice-full-ledger.fifo has maxReceiveCount 8"],
    ),
    "visibility left to SQS": (
        lambda t: _queue(t, LEDGER).pop("VisibilityTimeout"),
        ["sluice-full-ledger.fifo has VisibilityTimeout None"],
    ),
    "short polls": (
        lambda t: _queue(t, LEDGER).pop("ReceiveMessageWaitTimeSeconds"),
        ["sluice-full-ledger.fifo has ReceiveMessageWaitTimeSeconds None"],
    ),
    "a queue that goes with its stack": (
        lambda t: _resource(t, MESSAGING, "FanoutConsumerledgerQueue").update(DeletionPolicy="Delete"),
        ["sluice-full-ledger.fifo does not go or stay as declared"],
    ),
    "a key that goes with its stack": (
        lambda t: _resource(t, MESSAGING, "FanoutKeysQueues").update(UpdateReplacePolicy="Delete"),
        ["FanoutKeysQueues does not go or stay as declared"],
    ),
    "something of a consumer's exported": (
        _exported,
        ["sluice-full-messaging:ExportsOutputFnGetAttFanoutConsumerledgerQueue2E289984Arn is exported"],
    ),
    "a queue with the account's key": (
        lambda t: _queue(t, LEDGER).update(KmsMasterKeyId="alias/aws/sqs"),
        ["sluice-full-ledger.fifo is encrypted with {'KmsMasterKeyId': 'alias/aws/sqs'}"],
    ),
    "a DLQ with no key": (
        lambda t: _queue(t, LEDGER_DLQ).pop("KmsMasterKeyId"),
        ["sluice-full-ledger-dlq.fifo is encrypted with {}"],
    ),
    "a topic with no key": (
        lambda t: _properties(t, MESSAGING, "FanoutTopic").pop("KmsMasterKeyId"),
        ["sluice-full-orders.fifo is encrypted with None"],
    ),
    "a key that does not rotate": (
        lambda t: _properties(t, MESSAGING, "FanoutKeysQueues").pop("EnableKeyRotation"),
        ["FanoutKeysQueues does not rotate"],
    ),
    "a key that shuts SNS out": (
        lambda t: _allowed(t, MESSAGING, "FanoutKeysQueues").pop(),
        ["keys let in {'FanoutKeysTopic': ['cloudwatch.amazonaws.com', 'sns.amazonaws.com'], 'FanoutKeysQueues': []}"],
    ),
    "an archive SNS cannot read": (
        lambda t: _allowed(t, MESSAGING, "FanoutKeysTopic").pop(),
        ["keys let in {'FanoutKeysTopic': ['cloudwatch.amazonaws.com'], 'FanoutKeysQueues': ['sns.amazonaws.com']}"],
    ),
    "a key that lets SNS in for anybody": (
        lambda t: _allowed(t, MESSAGING, "FanoutKeysQueues")[1].pop("Condition"),
        ["FanoutKeysQueues: sns.amazonaws.com is let in on whoever's behalf"],
    ),
    "a key that lets everybody in": (
        lambda t: _allowed(t, MESSAGING, "FanoutKeysTopic")[0].update(Principal={"AWS": "*"}),
        [
            "FanoutKeysTopic: anybody is allowed something",
            "FanoutKeysTopic: kms:* is allowed",
            "FanoutKeysTopic: * is let in on whoever's behalf",
        ],
    ),
    "a queue that takes plain HTTP": (
        lambda t: _allowed(t, MESSAGING, QUEUE_POLICY).pop(0),
        ["sluice-full-ledger.fifo takes what is not encrypted in transit"],
    ),
    "a topic that takes plain HTTP": (
        lambda t: _remove(t, MESSAGING, TOPIC_POLICY),
        ["sluice-full-orders.fifo takes what is not encrypted in transit"],
    ),
    "an operator topic that takes plain HTTP": (
        lambda t: _allowed(t, OBSERVABILITY, OPERATORS_POLICY).pop(0),
        ["sluice-full-operators takes what is not encrypted in transit"],
    ),
    "a queue everybody may send to": (
        lambda t: _allowed(t, MESSAGING, QUEUE_POLICY).append(dict(OPEN)),
        [
            "FanoutConsumerledgerQueuePolicy: anybody is allowed something",
            "FanoutConsumerledgerQueuePolicy: * is let in on whoever's behalf",
        ],
    ),
    "a queue any topic may send to": (
        lambda t: _allowed(t, MESSAGING, QUEUE_POLICY)[1].pop("Condition"),
        [
            "FanoutConsumerledgerQueuePolicy: sns.amazonaws.com is let in on whoever's behalf",
            "SNS may not send to Arn(sluice-full-ledger.fifo)",
        ],
    ),
    "a queue any service of the account may send to": (
        lambda t: _allowed(t, MESSAGING, QUEUE_POLICY)[1].update(Principal={"AWS": "111122223333"}),
        [
            "FanoutConsumerledgerQueuePolicy: 111122223333 is let in on whoever's behalf",
            "SNS may not send to Arn(sluice-full-ledger.fifo)",
        ],
    ),
    "an undelivered DLQ SNS may not send to": (
        lambda t: _allowed(t, MESSAGING, UNDELIVERED_POLICY).pop(),
        ["SNS may not send to Arn(sluice-full-ledger-undelivered-dlq.fifo)"],
    ),
    "producers who may anything in SNS": (
        lambda t: _allowed(t, MESSAGING, "ProducersPublish")[0].update(Action="sns:*"),
        ["ProducersPublish: sns:* is allowed"],
    ),
    "producers who may publish anywhere": (
        lambda t: _allowed(t, MESSAGING, "ProducersPublish")[0].update(Resource="*"),
        ["ProducersPublish: something is allowed on *"],
    ),
    "a worker that may all but one thing": (
        lambda t: _worker(t).append({"Effect": "Allow", "NotAction": "iam:PassRole", "Resource": "*"}),
        [
            f"{WORKER}: something is allowed by what it is not",
            f"{WORKER}: something is allowed on *",
            "ledger may everything else on *",
        ],
    ),
    "a worker that may send as well": (
        lambda t: _worker(t)[2]["Action"].append("sqs:SendMessage"),
        [f"ledger may sqs:SendMessage on {OF_QUEUES}:{LEDGER}"],
    ),
    "a worker that may not protect its task": (
        _without_task_protection,
        ["ledger may ecs:GetTaskProtection on nothing", "ledger may ecs:UpdateTaskProtection on nothing"],
    ),
    "a worker on any queue": (
        lambda t: _worker(t)[2].update(Resource="arn:aws:sqs:*:*:*"),
        [
            f"{WORKER}: something is allowed on arn:aws:sqs:*:*:*",
            "ledger may sqs:ChangeMessageVisibility on arn:aws:sqs:*:*:*",
            "ledger may sqs:DeleteMessage on arn:aws:sqs:*:*:*",
            "ledger may sqs:GetQueueAttributes on arn:aws:sqs:*:*:*",
            "ledger may sqs:GetQueueUrl on arn:aws:sqs:*:*:*",
            "ledger may sqs:ReceiveMessage on arn:aws:sqs:*:*:*",
        ],
    ),
    "a worker on another's queue": (
        lambda t: _worker(t)[2].update(Resource=f"{OF_QUEUES}:{NIGHT}"),
        [
            f"ledger may sqs:ChangeMessageVisibility on {OF_QUEUES}:{NIGHT}",
            f"ledger may sqs:DeleteMessage on {OF_QUEUES}:{NIGHT}",
            f"ledger may sqs:GetQueueAttributes on {OF_QUEUES}:{NIGHT}",
            f"ledger may sqs:GetQueueUrl on {OF_QUEUES}:{NIGHT}",
            f"ledger may sqs:ReceiveMessage on {OF_QUEUES}:{NIGHT}",
        ],
    ),
    "a worker that may anything in SQS": (
        lambda t: _worker(t)[2].update(Action="sqs:*"),
        [
            f"{WORKER}: sqs:* is allowed",
            f"ledger may sqs:* on {OF_QUEUES}:{LEDGER}",
            "ledger may sqs:ChangeMessageVisibility on nothing",
            "ledger may sqs:DeleteMessage on nothing",
            "ledger may sqs:GetQueueAttributes on nothing",
            "ledger may sqs:GetQueueUrl on nothing",
            "ledger may sqs:ReceiveMessage on nothing",
        ],
    ),
    "a worker that cannot decrypt": (
        lambda t: _worker(t)[1]["Resource"].pop(),
        ["ledger may kms:Decrypt on arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-1111-2222-3333-444455556666"],
    ),
    "a worker that cannot read its secret": (
        lambda t: _worker(t).pop(0),
        ["ledger may secretsmanager:GetSecretValue on nothing"],
    ),
    "a task count set": (
        lambda t: _service(t).update(DesiredCount=1),
        ["sluice-full-ledger has a fixed task count of 1"],
    ),
    "a deployment not rolled back": (
        lambda t: _service(t)["DeploymentConfiguration"].pop("DeploymentCircuitBreaker"),
        ["sluice-full-ledger does not roll back"],
    ),
    "a public address": (
        lambda t: _service(t)["NetworkConfiguration"]["AwsvpcConfiguration"].update(AssignPublicIp="ENABLED"),
        ["sluice-full-ledger has a public address"],
    ),
    "a writable file system": (
        lambda t: _container(t).update(ReadonlyRootFilesystem=False),
        ["sluice-full-ledger may write to its file system"],
    ),
    "root": (lambda t: _container(t).pop("User"), ["sluice-full-ledger is root"]),
    "another command": (
        lambda t: _container(t).update(Command=["python", "-m", "sluice"]),
        ["ledger's task has another Command"],
    ),
    "another's name": (
        lambda t: _container(t)["Environment"][1].update(Value="night-batch"),
        ["ledger's task has another Environment"],
    ),
    "less time to stop": (lambda t: _container(t).pop("StopTimeout"), ["ledger's task has another StopTimeout"]),
    "tasks not counted": (
        lambda t: _properties(t, CONSUMERS, "ConsumersCluster").update(ClusterSettings=[]),
        ["running tasks are not counted"],
    ),
    "zero for a late metric": (
        lambda t: _written(_queries(t), "FILL(visible, REPEAT)", "FILL(visible, 0)"),
        ["ledger is not scaled on what is simulated", "ledger's scaling takes a late visible for a number"],
    ),
    "zero for a late metric in an alarm": (
        lambda t: _written(_alarm(t, "ledger-pinned")["Metrics"], "FILL(visible, REPEAT)", "FILL(visible, 0)"),
        ["alarm sluice-full-ledger-pinned takes a late visible for a number"],
    ),
    "zero for tasks counted late": (
        lambda t: _written(_alarm(t, "ledger-stuck")["Metrics"], "FILL(FILL(running, REPEAT), 0)", "FILL(running, 0)"),
        ["alarm sluice-full-ledger-stuck takes a late running for a number"],
    ),
    "zero for an age never reported": (
        lambda t: _written(_alarm(t, "ledger-stuck")["Metrics"], "FILL(age, REPEAT)", "FILL(FILL(age, REPEAT), 0)"),
        ["alarm sluice-full-ledger-stuck takes age, if never reported, for a number"],
    ),
    "scaling on CPU": (_scaled_on_cpu, ["ledger is not scaled on its backlog"]),
    "scaling on CPU as well": (
        _scaled_on_cpu_too,
        ["sluice-full-ledger has policies ['TargetTrackingScaling', 'TargetTrackingScaling']"],
    ),
    "a target that is not the expression's": (
        lambda t: _tracking(t).update(TargetValue=100),
        ["ledger is not scaled on what is simulated"],
    ),
    "a metric not given": (
        lambda t: _queries(t).pop(0),
        ["ledger's scaling is given ['running', 'visible']"],
    ),
    "two results": (lambda t: _queries(t)[0].update(ReturnData=True), ["ledger's scaling has not one result"]),
    "one task more": (
        lambda t: _properties(t, CONSUMERS, "ConsumersConsumerledgerScalingTarget").update(MaxCapacity=9),
        ["sluice-full-ledger is not scaled within its bounds"],
    ),
    "nothing to wake a service": (
        lambda t: _remove(t, CONSUMERS, "ConsumersConsumernightbatchScalingWakeFromZero"),
        ["sluice-full-night-batch has policies ['TargetTrackingScaling']"],
    ),
    "nobody to wake a service": (
        lambda t: _alarm(t, "night-batch-asleep").update(AlarmActions=[]),
        ["nothing wakes night-batch"],
    ),
    "a NAT gateway": (
        lambda t: _add(t, CONSUMERS, "AWS::EC2::NatGateway"),
        ["AWS::EC2::NatGateway leads out of the network"],
    ),
    "a public subnet": (
        lambda t: _properties(t, CONSUMERS, "ConsumersNetworkVpcTasksSubnet1Subnet").update(MapPublicIpOnLaunch=True),
        ["ConsumersNetworkVpcTasksSubnet1Subnet gives public addresses"],
    ),
    "tasks open to the world": (
        lambda t: _properties(t, CONSUMERS, "ConsumersNetworkTasks").update(
            SecurityGroupIngress=[{"CidrIp": "0.0.0.0/0"}]
        ),
        ["ConsumersNetworkTasks is open to addresses"],
    ),
    "an endpoint missing": (
        lambda t: _remove(t, CONSUMERS, "ConsumersNetworkVpcSqs"),
        ["the network has endpoints for ['ecr.api', 'ecr.dkr', 'logs', 's3', 'secretsmanager', 'sns']"],
    ),
    "logs kept for ever": (
        lambda t: _properties(t, CONSUMERS, "ConsumersConsumerledgerWorkerLogs").pop("RetentionInDays"),
        ["/ecs/sluice-full-ledger is not kept for the days declared"],
    ),
    "an alarm that does not say what a gap is": (
        lambda t: _alarm(t, "ledger-late").pop("TreatMissingData"),
        ["alarm sluice-full-ledger-late takes a gap for None"],
    ),
    "a forgotten dead letter that stops ringing": (
        lambda t: _alarm(t, "ledger-dead-letters").update(TreatMissingData="notBreaching"),
        ["alarm sluice-full-ledger-dead-letters takes a gap for notBreaching"],
    ),
    "an alarm that rings for silence": (
        lambda t: _alarm(t, "topic-failed").update(TreatMissingData="breaching"),
        ["alarm sluice-full-topic-failed takes a gap for breaching"],
    ),
    "a relay that stops in silence": (
        lambda t: _alarm(t, "relay-lagging").update(TreatMissingData="notBreaching"),
        ["alarm sluice-full-relay-lagging takes a gap for notBreaching"],
    ),
    "a relay that does not run ringing for a message it refused": (
        lambda t: _alarm(t, "relay-quarantined").update(TreatMissingData="breaching"),
        ["alarm sluice-full-relay-quarantined takes a gap for breaching"],
    ),
    "an outbox that may lag longer": (
        lambda t: _alarm(t, "relay-lagging").update(Threshold=900),
        ["alarm sluice-full-relay-lagging rings at 900"],
    ),
    "an outbox nobody watches": (
        lambda t: _remove(t, OBSERVABILITY, "Alarmsrelaylagging"),
        ["alarm sluice-full-relay-lagging is missing", "alarm sluice-full-relay-lagging rings at None"],
    ),
    "an alarm nobody hears": (
        lambda t: _alarm(t, "ledger-stuck").pop("AlarmActions"),
        ["alarm sluice-full-ledger-stuck does not tell the operators"],
    ),
    "an alarm that is not called off": (
        lambda t: _alarm(t, "ledger-stuck").pop("OKActions"),
        ["alarm sluice-full-ledger-stuck does not tell the operators"],
    ),
    "an alarm too few": (
        lambda t: _remove(t, OBSERVABILITY, "Alarmsledgerundelivered"),
        ["alarm sluice-full-ledger-undelivered is missing", "alarm sluice-full-ledger-undelivered rings at None"],
    ),
    "an alarm that rings at the second message": (
        lambda t: _alarm(t, "ledger-dead-letters").update(Threshold=2),
        ["alarm sluice-full-ledger-dead-letters rings at 2"],
    ),
    "a FIFO operator topic": (
        lambda t: _properties(t, OBSERVABILITY, "OperatorsTopic").update(FifoTopic=True),
        ["CloudWatch does not publish to the operator topic: it is FIFO"],
    ),
    "an operator topic for everybody": (
        lambda t: _allowed(t, OBSERVABILITY, OPERATORS_POLICY)[1].update(Principal="*"),
        [
            "OperatorsTopicPolicy: anybody is allowed something",
            "OperatorsTopicPolicy: * is let in on whoever's behalf",
            "to the operator topic publish ['*']",
        ],
    ),
    "an operator topic for any account's alarms": (
        lambda t: _allowed(t, OBSERVABILITY, OPERATORS_POLICY)[1].pop("Condition"),
        ["OperatorsTopicPolicy: cloudwatch.amazonaws.com is let in on whoever's behalf"],
    ),
    "a resource without its tags": (lambda t: _queue(t, LEDGER).pop("Tags"), ["sluice-full-ledger.fifo is tagged {}"]),
}


@pytest.fixture
def templates(stacks: Mapping[str, Stacks]) -> Templates:
    """Return a copy of the templates of the environment that uses every option."""
    return {part: copy.deepcopy(stack.template) for part, stack in stacks[FULL.name].items()}


def test_nothing_is_wrong_before_a_change(templates: Templates) -> None:
    """Or what follows would prove nothing."""
    assert problems(templates, FULL) == []


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_careless_change_is_noticed(templates: Templates, mutation: str) -> None:
    """Everything that is wrong then, and nothing else, is said."""
    edit, expected = MUTATIONS[mutation]

    edit(templates)

    assert problems(templates, FULL) == expected
