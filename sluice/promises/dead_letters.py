"""What holds of messages that were received too often, and of the way back."""

from sluice.promises.promise import GUIDE, Evidence, Grade, Promise, documented, old, recorded

_DLQ = "Dead-letter queue"
_MOVE = "Move task"

PROMISES: tuple[Promise, ...] = (
    Promise(
        "DLQ-01",
        _DLQ,
        "After maxReceiveCount receives a message goes to the DLQ, with its message id and its group, and its group moves on.",
        (
            recorded("sqs/test_sqs.py::test_dead_letter_queue_with_fifo_and_content_based_deduplication", "2024-05-21"),
            documented(GUIDE + "sqs-dead-letter-queues.html"),
        ),
        ("change-message-ids", "withhold-dead-letters"),
    ),
    Promise(
        "DLQ-04",
        _DLQ,
        "In a FIFO DLQ the deduplication id is the original message id.",
        (documented(GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),),
        ("change-message-ids",),
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
        "MOV-20",
        _MOVE,
        "A move task takes the messages of a FIFO DLQ to another FIFO queue, in order.",
        (documented(GUIDE + "sqs-configure-dead-letter-queue-redrive.html"),),
        ("ignore-move-task",),
    ),
    Promise(
        "MOV-17",
        _MOVE,
        "A move task takes a message from the FIFO DLQ back to its source, also inside the deduplication window.",
        (Evidence(Grade.OPEN, GUIDE + "sqs-configure-dead-letter-queue-redrive.html", "2026-11-20"),),
        ("ignore-move-task",),
    ),
    Promise(
        "MOV-01",
        _MOVE,
        "A move task from a queue that is nobody's DLQ is refused.",
        (recorded("sqs/test_sqs_move_task.py::test_source_needs_redrive_policy", "2024-04-30"),),
        ("hide-errors",),
    ),
)
