"""The mutants of the model: each overrides a rule that is there."""

from sluice.simulator.hook import Simulator
from tests.mutants import MUTANTS, Mutant, pairs


def _overrides(mutant: Mutant) -> bool:
    is_read = mutant.read_by is None or callable(getattr(*mutant.read_by))
    return is_read and getattr(mutant.owner, mutant.rule, mutant.instead) is not mutant.instead


def test_each_mutant_overrides_a_rule_of_the_model() -> None:
    """A rule that was renamed would end every run under `--mutants`, which no everyday check starts."""
    assert [name for name, mutant in MUTANTS.items() if not _overrides(mutant)] == []


def test_a_mutant_of_a_number_names_the_rule_that_reads_it() -> None:
    """Only a call of a rule shows that a promise's test reaches it."""
    assert not [mutant.name for mutant in MUTANTS.values() if not callable(mutant.instead) and mutant.read_by is None]


def test_each_cell_of_the_pairs_table_has_a_mutant_or_a_reason() -> None:
    mutants = {mutant.pair for mutant in MUTANTS.values() if mutant.pair is not None}

    assert len(mutants) >= 120
    assert mutants | set(pairs.REASONS) == set(pairs.CELLS)
    assert mutants.isdisjoint(pairs.REASONS)


def test_a_pair_breaks_its_rule_only_where_its_circumstance_holds() -> None:
    """The queue's message in flight blocks its group, unless it was extended and that is the cell that is broken."""
    simulator = Simulator()
    sqs = simulator.client("sqs")
    broken = next(mutant for mutant in MUTANTS.values() if mutant.pair == ("queue", "blocking", "extended"))

    with pairs.breaking(broken):
        url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for body in ("m1", "m2"):
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=body)
        (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
        in_flight = sqs.receive_message(QueueUrl=url).get("Messages", [])
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=60)
        extended = sqs.receive_message(QueueUrl=url).get("Messages", [])

    assert in_flight == []
    assert [message["Body"] for message in extended] == ["m2"]
