"""What holds of messages that were received too often, and of the way back."""

from contract_tests.promises.promise import (
    SQS_GUIDE,
    Promise,
    api,
    asserted,
    guide,
    old,
    peer,
    recorded,
    reported,
    unverified,
)

_DLQ_PAGE = SQS_GUIDE + "sqs-dead-letter-queues.html"
_REDRIVE_PAGE = SQS_GUIDE + "sqs-configure-dead-letter-queue-redrive.html"
_MOVES = "sqs/test_sqs_move_task.py::"
_LOCAL_AWS_SQS = "Inqnuam/local-aws-sqs test"

_DEAD_LETTER_QUEUE = {
    "DLQ-01": Promise(
        "After maxReceiveCount receives a message goes to the DLQ, with its message id and its group, and its group"
        " moves on.",
        (
            asserted("test_dead_letter_queue_with_fifo_and_content_based_deduplication", "2024-05-21"),
            guide("sqs-dead-letter-queues"),
        ),
        ("change-message-ids", "withhold-dead-letters", "ignore-redrive-policy"),
    ),
    "DLQ-04": Promise(
        "In a FIFO DLQ the deduplication id is the original message id.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        ("change-message-ids",),
    ),
    "DLQ-05": Promise(
        "Two queues that share a FIFO DLQ both keep their message there, even if the two messages had one"
        " deduplication id.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        ("withhold-dead-letters",),
    ),
    "DLQ-06": Promise(
        "Messages keep their group in a FIFO DLQ, and come out of it in the order they were moved there.",
        (guide("sqs-dead-letter-queues"), guide("FIFO-queues-message-order")),
        ("reverse-dead-letters", "regroup-messages"),
    ),
    "DLQ-07": Promise(
        "A dead letter keeps its message attributes and its trace header, goes on counting its receives, and names"
        " the queue it came from.",
        (recorded("test_dead_letter_queue_message_attributes", "2024-04-30"),),
        ("drop-message-attributes", "freeze-receive-count", "disguise-source"),
    ),
    "DLQ-08": Promise(
        "The SentTimestamp of a message in a FIFO DLQ is the time it was moved there, not the time it was first sent.",
        (guide("setting-up-dead-letter-queue-retention"), guide("sqs-dead-letter-queues")),
        ("freeze-sent-at",),
    ),
    "DLQ-39": Promise(
        "A FIFO DLQ keeps a message for its own retention, counted from the move.",
        (guide("setting-up-dead-letter-queue-retention"), guide("sqs-dead-letter-queues")),
        ("withhold-dead-letters",),
    ),
    "DLQ-20": Promise(
        "A DLQ can have a DLQ of its own, which gets the messages that fail in the first DLQ too.",
        (unverified("LocalStack tests/aws/services/sqs/test_sqs.py::test_dead_letter_queue_chain (skipped)"),),
        ("end-chains",),
    ),
    "DLQ-36": Promise(
        "A message goes to the DLQ when it would be received once more, not before: until then it stays in its queue.",
        (api("CreateQueue"),),
        ("hurry-dead-letters",),
    ),
    "DLQ-37": Promise(
        "In a standard DLQ the SentTimestamp is the time of the first send (comparison).",
        (guide("setting-up-dead-letter-queue-retention"), guide("sqs-dead-letter-queues")),
        ("shift-sent-at",),
    ),
    "DLQ-21": Promise(
        "Every receive counts towards maxReceiveCount, even if the consumer releases the message unhandled.",
        (guide("sqs-dead-letter-queues"), api("ReceiveMessage")),
        ("ignore-redrive-policy",),
    ),
    "DLQ-23": Promise(
        "A lowered maxReceiveCount applies to messages already in the queue, at their next receive.",
        (unverified(_DLQ_PAGE),),
        ("ignore-redrive-policy", "only-show-redrive-policy"),
    ),
    "SLU-04": Promise(
        "If the 15th of 20 messages of a group fails twice, 3 consumers handle no later message before it succeeds.",
        (old("test_fifo_message_group_visibility"), guide("FIFO-queues-understanding-logic")),
        ("swap-late-bodies", "drop-messages"),
    ),
}

_REDRIVE_POLICY = {
    "DLQ-09": Promise(
        "The DLQ of a FIFO queue must be a FIFO queue.",
        (reported("https://github.com/awslabs/aws-solutions-constructs/issues/342", "2026-11-20"), api("CreateQueue")),
        ("accept-attributes",),
    ),
    "DLQ-10": Promise(
        "A redrive policy that names a queue which does not exist is refused.",
        (reported("https://github.com/serverless/serverless/issues/5215", "2026-11-20"), api("CreateQueue")),
        ("accept-attributes",),
    ),
    "DLQ-11": Promise(
        "A redrive policy without target, without maxReceiveCount or with one that is not a number is refused.",
        (old("test_redrive_policy_attribute_validity"),),
        ("accept-attributes",),
    ),
    "DLQ-12": Promise(
        "maxReceiveCount is 1 to 1000; anything else is refused.",
        (api("CreateQueue"), unverified(_LOCAL_AWS_SQS)),
        ("accept-attributes",),
    ),
    "DLQ-13": Promise(
        "maxReceiveCount may be given as a number, which is reported as one, or as a string.",
        (
            old("test_redrive_policy_attribute_validity"),
            recorded(
                "sqs/resource_providers/test_aws_sqs_queue.py::test_create_fifo_queue_with_all_properties", "2025-12-18"
            ),
        ),
        ("quote-receive-count",),
    ),
    "DLQ-14": Promise(
        "A deadLetterTargetArn that is not an ARN is refused.",
        (old("test_invalid_dead_letter_arn_rejected_before_lookup"), unverified(_LOCAL_AWS_SQS)),
        ("accept-attributes",),
    ),
    "DLQ-15": Promise(
        "A redrive policy that is not a JSON object, or has another key, is refused.",
        (unverified(_LOCAL_AWS_SQS),),
        ("accept-attributes",),
    ),
    "DLQ-38": Promise(
        "An empty redrive policy takes the DLQ away.",
        (asserted("test_set_empty_redrive_policy", "2024-08-20"),),
        ("ignore-attribute-changes",),
    ),
    "DLQ-18": Promise(
        "A DLQ's RedriveAllowPolicy decides which queues may name it: all, none, or those it lists, ten at most.",
        (api("SetQueueAttributes"), guide("sqs-dead-letter-queues")),
        ("accept-attributes",),
    ),
    "DLQ-26": Promise(
        "A RedriveAllowPolicy that is set or changed later holds for the redrive policies set after it.",
        (api("SetQueueAttributes"), guide("sqs-dead-letter-queues")),
        ("only-show-redrive-permission",),
    ),
    "DLQ-19": Promise(
        "ListDeadLetterSourceQueues lists every queue that names the DLQ, and returns an empty list when none does.",
        (old("test_dead_letter_queue_list_sources"), api("ListDeadLetterSourceQueues")),
        ("hide-source-queue",),
    ),
}

_MOVE_TASK = {
    "MOV-20": Promise(
        "A move task takes the messages of a FIFO DLQ to another FIFO queue, in order.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        ("ignore-move-task", "redirect-move-tasks", "reverse-moved"),
    ),
    "MOV-17": Promise(
        "A move task takes a message from the FIFO DLQ back to its source, even inside the deduplication window.",
        (unverified(_REDRIVE_PAGE),),
        ("ignore-move-task",),
    ),
    "MOV-18": Promise(
        "A moved message is a new message: it has another message id and a later enqueue time.",
        (guide("sqs-configure-dead-letter-queue-redrive"), api("StartMessageMoveTask")),
        ("freeze-sent-at",),
    ),
    "MOV-45": Promise(
        "After a move task has taken a message back to its source, a send with the first deduplication id is"
        " still a repeat, inside the window.",
        (unverified("by DED-15 and MOV-17: the id is remembered whatever becomes of the message"),),
        ("forget-deduplication", "ignore-move-task"),
    ),
    "MOV-46": Promise(
        "A message that fails again after a move task goes to the DLQ again, and can be taken back again.",
        (unverified("by DLQ-04 and MOV-18: each move gives it a deduplication id of its own"),),
        ("move-once",),
    ),
    "MOV-47": Promise(
        "A move task starts the retention of a message anew.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        ("ignore-move-task",),
    ),
    "MOV-49": Promise(
        "A moved message keeps its group, its message attributes and its trace header.",
        (unverified("by DLQ-07, which was recorded for the way into the DLQ"),),
        ("drop-message-attributes", "lose-trace", "regroup-messages"),
    ),
    "MOV-31": Promise(
        "A move task without destination takes messages back to the queue they came from.",
        (recorded(_MOVES + "test_move_task_workflow_with_default_destination", "2024-04-30"),),
        ("ignore-move-task", "miscount-moves"),
    ),
    "MOV-32": Promise(
        "If several queues share a DLQ, a move task without destination takes each message back to its own source.",
        (recorded(_MOVES + "test_move_task_workflow_with_multiple_sources_as_default_destination", "2024-04-30"),),
        ("ignore-move-task", "miscount-moves"),
    ),
    "MOV-07": Promise(
        "A completed move task is listed with its queues, its start time and the number of messages it moved, and"
        " without a handle.",
        (recorded(_MOVES + "test_basic_move_task_workflow", "2024-04-30"),),
        ("miscount-moves", "redirect-move-tasks"),
    ),
    "MOV-27": Promise(
        "A move task of an empty DLQ completes with nothing moved.",
        (peer("StartMessageMoveTaskAsync_EmptyDLQ_NoMessagesMoved"),),
        ("miscount-moves",),
    ),
    "MOV-06": Promise(
        "A task handle is base64 of a JSON object with the task id and the ARN of the source.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_id_in_task_handle", "2024-04-30"),),
        ("scramble-task-handles",),
    ),
    "MOV-09": Promise(
        "A move task keeps to the rate it was given.",
        (recorded(_MOVES + "test_move_task_with_throughput_limit", "2024-04-30"),),
        ("hurry-move-tasks",),
    ),
    "MOV-10": Promise(
        "A DLQ has one move task at a time.",
        (recorded(_MOVES + "test_start_multiple_move_tasks", "2024-04-30"),),
        ("accept-moves", "blur-moves", "hurry-move-tasks"),
    ),
    "MOV-11": Promise(
        "A running move task is listed with its handle and its rate; after a cancel it ends as CANCELLED before it"
        " has moved everything.",
        (recorded(_MOVES + "test_move_task_cancel", "2024-04-30"),),
        ("ignore-cancel", "report-moves-done", "hurry-move-tasks"),
    ),
    "MOV-12": Promise(
        "A move task whose destination is deleted ends as FAILED, with AWS's error code as the reason.",
        (recorded(_MOVES + "test_move_task_delete_destination_queue_while_running", "2024-04-30"),),
        ("report-moves-done",),
    ),
    "MOV-21": Promise(
        "A move task without destination fails at a message that was sent directly to the DLQ.",
        (unverified(_LOCAL_AWS_SQS),),
        ("report-moves-done",),
    ),
    "MOV-34": Promise(
        "A move task with a destination also moves messages that were sent directly to the DLQ.",
        (guide("sqs-configure-dead-letter-queue-redrive"),),
        ("ignore-move-task",),
    ),
    "MOV-26": Promise(
        "A move task does not take messages of the DLQ that are in flight.",
        (unverified(_REDRIVE_PAGE),),
        ("ignore-move-task",),
    ),
    "MOV-33": Promise(
        "ListMessageMoveTasks returns the newest task, or with MaxResults several tasks, the newest first.",
        (api("ListMessageMoveTasks"),),
        ("reverse-move-tasks",),
    ),
    "MOV-01": Promise(
        "A move task from a queue that is nobody's DLQ is refused.",
        (recorded(_MOVES + "test_source_needs_redrive_policy", "2024-04-30"),),
        ("accept-moves", "blur-moves"),
    ),
    "MOV-25": Promise(
        "A move task from the DLQ of a subscription is refused.",
        (api("StartMessageMoveTask"),),
        ("accept-moves",),
    ),
    "MOV-02": Promise(
        "A move task to a queue that does not exist is refused.",
        (recorded(_MOVES + "test_destination_needs_to_exist", "2024-04-30"),),
        ("accept-moves", "blur-moves"),
    ),
    "MOV-16": Promise(
        "A move task from a FIFO DLQ to a standard queue is refused.",
        (guide("sqs-configure-dead-letter-queue-redrive"), unverified(_LOCAL_AWS_SQS)),
        ("accept-moves",),
    ),
    "MOV-22": Promise("A move task from a DLQ to itself is refused.", (unverified(_LOCAL_AWS_SQS),), ("accept-moves",)),
    "MOV-23": Promise(
        "A move task whose source is not an ARN is refused.", (unverified(_LOCAL_AWS_SQS),), ("accept-moves",)
    ),
    "MOV-14": Promise(
        "The rate of a move task is 1 to 500 messages a second.",
        (api("StartMessageMoveTask"), unverified(_LOCAL_AWS_SQS)),
        ("accept-moves",),
    ),
    "MOV-15": Promise(
        "A listing of more than ten move tasks is refused.", (api("ListMessageMoveTasks"),), ("accept-moves",)
    ),
    "MOV-13": Promise(
        "A move task that has ended cannot be cancelled.",
        (api("CancelMessageMoveTask"),),
        ("accept-cancels",),
    ),
    "MOV-04": Promise(
        "Cancelling with a handle that names an unknown source is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_source_arn_in_task_handle", "2024-04-30"),),
        ("accept-cancels", "blur-cancels"),
    ),
    "MOV-30": Promise(
        "Cancelling with a handle that names an unknown task is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_id_in_task_handle", "2024-04-30"),),
        ("accept-cancels", "blur-cancels"),
    ),
    "MOV-29": Promise(
        "Cancelling with a text that is not a task handle is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_handle", "2024-04-30"),),
        ("accept-cancels", "blur-cancels"),
    ),
}

AREAS = {
    "Dead-letter queue": _DEAD_LETTER_QUEUE,
    "Redrive policy": _REDRIVE_POLICY,
    "Move task": _MOVE_TASK,
}
