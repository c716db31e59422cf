"""A promise and the evidence for it."""

from dataclasses import dataclass
from enum import StrEnum

LOCALSTACK_TESTS = "LocalStack tests/aws/services/"
"""The beginning of each source that is a test of LocalStack's."""


class Promiser(StrEnum):
    """The party that keeps a promise."""

    SERVICE = "SQS and SNS"
    MAPPING = "Lambda's event source mapping"
    STACK = "Sluice's stacks"


class Grade(StrEnum):
    """Strength of the evidence that AWS itself behaves so, the strongest first.

    RECORDED: a response recorded from AWS, dated. ASSERTED: a test asserted it against AWS and recorded no response,
    dated. OLD: the same without a date. REPORTED: AWS output quoted by users. DOCUMENTED: AWS documentation only. OPEN:
    our inference; nobody recorded it.
    """

    RECORDED = "recorded"
    ASSERTED = "asserted"
    OLD = "old"
    REPORTED = "reported"
    DOCUMENTED = "documented"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of a promise. `date` is of the recording, or of the reading for documentation."""

    grade: Grade
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise.

    Args:
        id: never changes; the contract test's marker has it.
        statement: one sentence that a test can contradict.
        evidence: strongest first.
        saboteurs: names in `sluice.saboteurs`; each one alone makes the promise's test fail.
        promiser: who keeps the promise.
        area: the heading of its group in the documentation.
    """

    id: str
    statement: str
    evidence: tuple[Evidence, ...]
    saboteurs: tuple[str, ...]
    promiser: Promiser
    area: str

    @property
    def grade(self) -> Grade:
        """Return the grade of the strongest evidence."""
        grades = [evidence.grade for evidence in self.evidence]
        return min(grades, key=list(Grade).index)
