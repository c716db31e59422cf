"""What holds of messages that were received too often, and of the way back."""

from contract_tests.promises.promise import (
    API,
    GUIDE,
    Evidence,
    Grade,
    Promise,
    documented,
    old,
    peer,
    recorded,
    reported,
    unverified,
)

_DLQ = "Dead-letter queue"
_POLICY = "Redrive policy"
_MOVE = "Move task"

_DLQ_PAGE = GUIDE + "sqs-dead-letter-queues.html"
_REDRIVE_PAGE = GUIDE + "sqs-configure-dead-letter-queue-redrive.html"
_START_PAGE = API + "API_StartMessageMoveTask.html"
_MOVES = "sqs/test_sqs_move_task.py::"
_LOCAL_AWS_SQS = "Inqnuam/local-aws-sqs test"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "DLQ-01",
        _DLQ,
        "After maxReceiveCount receives a message goes to the DLQ, with its message id and its group, and its group"
        " moves on.",
        (
            recorded("sqs/test_sqs.py::test_dead_letter_queue_with_fifo_and_content_based_deduplication", "2024-05-21"),
            documented(GUIDE + "sqs-dead-letter-queues.html"),
        ),
        ("change-message-ids", "withhold-dead-letters", "ignore-redrive-policy"),
    ),
    Promise(
        "DLQ-04",
        _DLQ,
        "In a FIFO DLQ the deduplication id is the original message id.",
        (documented(GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),),
        ("change-message-ids",),
    ),
    Promise(
        "DLQ-05",
        _DLQ,
        "Two queues that share a FIFO DLQ both keep their message there, also when the two had one deduplication id.",
        (documented(_REDRIVE_PAGE),),
        ("withhold-dead-letters",),
    ),
    Promise(
        "DLQ-06",
        _DLQ,
        "Messages keep their group in a FIFO DLQ, and come out of it in the order they were set aside.",
        (documented(_DLQ_PAGE), documented(GUIDE + "FIFO-queues-message-order.html")),
        ("reverse-batch", "regroup-messages"),
    ),
    Promise(
        "DLQ-07",
        _DLQ,
        "A dead letter keeps its message attributes and its trace header, goes on counting its receives, and names the"
        " queue it came from.",
        (recorded("sqs/test_sqs.py::test_dead_letter_queue_message_attributes", "2024-04-30"),),
        ("drop-message-attributes", "freeze-receive-count", "disguise-source"),
    ),
    Promise(
        "DLQ-08",
        _DLQ,
        "The SentTimestamp of a message in a FIFO DLQ is when it was set aside, not when it was first sent.",
        (documented(GUIDE + "setting-up-dead-letter-queue-retention.html"), documented(_DLQ_PAGE)),
        ("freeze-sent-at",),
    ),
    Promise(
        "DLQ-20",
        _DLQ,
        "A DLQ may have a DLQ of its own, to which messages travel on that fail there too.",
        (unverified("LocalStack tests/aws/services/sqs/test_sqs.py::test_dead_letter_queue_chain (skipped)"),),
        ("end-chains",),
    ),
    Promise(
        "DLQ-21",
        _DLQ,
        "Every receive counts towards maxReceiveCount, also one that only looks and puts the message back.",
        (documented(_DLQ_PAGE), documented(API + "API_ReceiveMessage.html")),
        ("ignore-redrive-policy",),
    ),
    Promise(
        "DLQ-23",
        _DLQ,
        "A lowered maxReceiveCount holds for messages already in the queue, at their next receive.",
        (unverified(_DLQ_PAGE),),
        ("ignore-redrive-policy",),
    ),
    Promise(
        "SLU-04",
        _DLQ,
        "Of 20 messages worked off by 3 consumers, the 15th fails twice and everything behind it waits.",
        (
            old("sqs/test_sqs.py::test_fifo_message_group_visibility"),
            documented(GUIDE + "FIFO-queues-understanding-logic.html"),
        ),
        ("swap-bodies", "drop-messages"),
    ),
    Promise(
        "DLQ-09",
        _POLICY,
        "The DLQ of a FIFO queue must be a FIFO queue.",
        (
            reported("https://github.com/awslabs/aws-solutions-constructs/issues/342", "2026-11-20"),
            documented(API + "API_CreateQueue.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-10",
        _POLICY,
        "A redrive policy that names a queue which does not exist is refused.",
        (
            reported("https://github.com/serverless/serverless/issues/5215", "2026-11-20"),
            documented(API + "API_CreateQueue.html"),
        ),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-11",
        _POLICY,
        "A redrive policy without target, without maxReceiveCount or with one that is not a number is refused.",
        (old("sqs/test_sqs.py::test_redrive_policy_attribute_validity"),),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-12",
        _POLICY,
        "maxReceiveCount is 1 to 1000; anything else is refused.",
        (documented(API + "API_CreateQueue.html"), unverified(_LOCAL_AWS_SQS)),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-13",
        _POLICY,
        "maxReceiveCount may be given as a string; it is reported as a number.",
        (
            recorded(
                "sqs/resource_providers/test_aws_sqs_queue.py::test_create_fifo_queue_with_all_properties", "2025-12-18"
            ),
        ),
        ("quote-receive-count",),
    ),
    Promise(
        "DLQ-14",
        _POLICY,
        "A deadLetterTargetArn that is not an ARN is refused, before any queue is looked for.",
        (old("sqs/test_sqs.py::test_invalid_dead_letter_arn_rejected_before_lookup"), unverified(_LOCAL_AWS_SQS)),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-15",
        _POLICY,
        "A redrive policy that is not a JSON object, or has another key, is refused.",
        (unverified(_LOCAL_AWS_SQS),),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-17",
        _POLICY,
        "A queue and its DLQ must be in one Region.",
        (documented(API + "API_CreateQueue.html"), documented(_DLQ_PAGE)),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-18",
        _POLICY,
        "A DLQ's RedriveAllowPolicy decides which queues may name it: all, none, or those it lists, ten at most.",
        (documented(API + "API_SetQueueAttributes.html"), documented(_DLQ_PAGE)),
        ("hide-errors",),
    ),
    Promise(
        "DLQ-19",
        _POLICY,
        "ListDeadLetterSourceQueues lists every queue that names the DLQ, and returns an empty list when none does.",
        (
            old("sqs/test_sqs.py::test_dead_letter_queue_list_sources"),
            documented(API + "API_ListDeadLetterSourceQueues.html"),
        ),
        ("hide-source-queue",),
    ),
    Promise(
        "MOV-20",
        _MOVE,
        "A move task takes the messages of a FIFO DLQ to another FIFO queue, in order.",
        (documented(_REDRIVE_PAGE),),
        ("ignore-move-task", "redirect-move-tasks", "reverse-batch"),
    ),
    Promise(
        "MOV-17",
        _MOVE,
        "A move task takes a message from the FIFO DLQ back to its source, also inside the deduplication window.",
        (Evidence(Grade.OPEN, _REDRIVE_PAGE, "2026-11-20"),),
        ("ignore-move-task",),
    ),
    Promise(
        "MOV-18",
        _MOVE,
        "A moved message is a new message: it has another message id and a later enqueue time.",
        (documented(_REDRIVE_PAGE), documented(_START_PAGE)),
        ("freeze-sent-at",),
    ),
    Promise(
        "MOV-31",
        _MOVE,
        "A move task without destination takes messages back to the queue they came from.",
        (recorded(_MOVES + "test_move_task_workflow_with_default_destination", "2024-03-07"),),
        ("ignore-move-task", "miscount-moves"),
    ),
    Promise(
        "MOV-32",
        _MOVE,
        "A move task without destination takes each message back to its own source, when several share the DLQ.",
        (recorded(_MOVES + "test_move_task_workflow_with_multiple_sources_as_default_destination", "2024-03-07"),),
        ("ignore-move-task", "miscount-moves"),
    ),
    Promise(
        "MOV-07",
        _MOVE,
        "A completed move task is listed with its queues, when it was started, and how many messages of how many it"
        " moved; without a handle.",
        (recorded(_MOVES + "test_basic_move_task_workflow", "2024-04-30"),),
        ("miscount-moves", "redirect-move-tasks"),
    ),
    Promise(
        "MOV-27",
        _MOVE,
        "A move task of an empty DLQ completes with nothing moved.",
        (peer("StartMessageMoveTaskAsync_EmptyDLQ_NoMessagesMoved"),),
        ("miscount-moves",),
    ),
    Promise(
        "MOV-06",
        _MOVE,
        "A task handle is base64 of a JSON object with the task id and the ARN of the source.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_id_in_task_handle", "2024-04-30"),),
        ("scramble-task-handles",),
    ),
    Promise(
        "MOV-09",
        _MOVE,
        "A move task keeps to the rate it was given.",
        (recorded(_MOVES + "test_move_task_with_throughput_limit", "2024-04-30"),),
        ("hurry-move-tasks",),
    ),
    Promise(
        "MOV-10",
        _MOVE,
        "A DLQ has one move task at a time.",
        (recorded(_MOVES + "test_start_multiple_move_tasks", "2024-04-30"),),
        ("hide-errors", "blur-errors", "hurry-move-tasks"),
    ),
    Promise(
        "MOV-11",
        _MOVE,
        "A running move task is listed with its handle and its rate; cancelled, it ends as CANCELLED before all is"
        " moved.",
        (recorded(_MOVES + "test_move_task_cancel", "2024-04-30"),),
        ("ignore-cancel", "report-moves-done", "hurry-move-tasks"),
    ),
    Promise(
        "MOV-12",
        _MOVE,
        "A move task whose destination is deleted ends as FAILED, with AWS's error code as the reason.",
        (recorded(_MOVES + "test_move_task_delete_destination_queue_while_running", "2024-04-30"),),
        ("report-moves-done",),
    ),
    Promise(
        "MOV-21",
        _MOVE,
        "A move task without destination fails at a message that was sent to the DLQ itself.",
        (unverified(_LOCAL_AWS_SQS),),
        ("report-moves-done",),
    ),
    Promise(
        "MOV-34",
        _MOVE,
        "A move task with a destination takes along messages that were sent to the DLQ itself.",
        (documented(_REDRIVE_PAGE),),
        ("ignore-move-task",),
    ),
    Promise(
        "MOV-26",
        _MOVE,
        "A move task does not take messages of the DLQ that are in flight.",
        (unverified(_REDRIVE_PAGE),),
        ("ignore-move-task",),
    ),
    Promise(
        "MOV-33",
        _MOVE,
        "Move tasks are listed newest first, one unless more are asked for.",
        (documented(API + "API_ListMessageMoveTasks.html"),),
        ("reverse-move-tasks",),
    ),
    Promise(
        "MOV-01",
        _MOVE,
        "A move task from a queue that is nobody's DLQ is refused.",
        (recorded(_MOVES + "test_source_needs_redrive_policy", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "MOV-25",
        _MOVE,
        "A move task from the DLQ of a subscription is refused.",
        (documented(_START_PAGE),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "MOV-02",
        _MOVE,
        "A move task to a queue that does not exist is refused.",
        (recorded(_MOVES + "test_destination_needs_to_exist", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "MOV-16",
        _MOVE,
        "A move task from a FIFO DLQ to a standard queue is refused.",
        (documented(_REDRIVE_PAGE), unverified(_LOCAL_AWS_SQS)),
        ("hide-errors",),
    ),
    Promise(
        "MOV-22",
        _MOVE,
        "A move task from a DLQ to itself is refused.",
        (unverified(_LOCAL_AWS_SQS),),
        ("hide-errors",),
    ),
    Promise(
        "MOV-23",
        _MOVE,
        "A move task whose source is not an ARN is refused.",
        (unverified(_LOCAL_AWS_SQS),),
        ("hide-errors",),
    ),
    Promise(
        "MOV-14",
        _MOVE,
        "The rate of a move task is 1 to 500 messages a second.",
        (documented(_START_PAGE), unverified(_LOCAL_AWS_SQS)),
        ("hide-errors",),
    ),
    Promise(
        "MOV-15",
        _MOVE,
        "A listing of more than ten move tasks is refused.",
        (documented(API + "API_ListMessageMoveTasks.html"),),
        ("hide-errors",),
    ),
    Promise(
        "MOV-13",
        _MOVE,
        "A move task that has ended cannot be cancelled.",
        (documented(API + "API_CancelMessageMoveTask.html"),),
        ("hide-errors",),
    ),
    Promise(
        "MOV-04",
        _MOVE,
        "Cancelling with a handle that names an unknown source is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_source_arn_in_task_handle", "2024-04-30"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "MOV-30",
        _MOVE,
        "Cancelling with a handle that names an unknown task is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_id_in_task_handle", "2024-01-05"),),
        ("hide-errors", "blur-errors"),
    ),
    Promise(
        "MOV-29",
        _MOVE,
        "Cancelling with what is not a handle is refused.",
        (recorded(_MOVES + "test_cancel_with_invalid_task_handle", "2024-01-05"),),
        ("hide-errors", "blur-errors"),
    ),
)
