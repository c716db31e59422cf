"""A promise and the evidence for it."""

from dataclasses import dataclass
from enum import StrEnum

SQS_GUIDE = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
SNS_GUIDE = "https://docs.aws.amazon.com/sns/latest/dg/"
_SQS_API = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_"
_SNS_API = "https://docs.aws.amazon.com/sns/latest/api/API_"
_READ = "2026-11-20"
LOCALSTACK_TESTS = "LocalStack tests/aws/services/"


class Promiser(StrEnum):
    """Who keeps the promise."""

    SERVICE = "SQS and SNS"
    STACK = "Sluice's stacks"


class Grade(StrEnum):
    """How strong the evidence is that AWS itself behaves so.

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
    """Where a promise was read or seen. `date` is of the recording, or of the reading for documentation."""

    grade: Grade
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise.

    Args:
        statement: one sentence that a test can contradict.
        evidence: strongest first.
        saboteurs: names in `sluice.saboteurs`; each one alone turns the promise's test red.
        promiser: who keeps it.
        id: stable; the contract test's marker. The catalogue gives it, as the next.
        area: heading it stands under.
    """

    statement: str
    evidence: tuple[Evidence, ...]
    saboteurs: tuple[str, ...]
    promiser: Promiser = Promiser.SERVICE
    id: str = ""
    area: str = ""

    @property
    def grade(self) -> Grade:
        """Return the grade of its strongest evidence."""
        grades = [evidence.grade for evidence in self.evidence]
        return min(grades, key=list(Grade).index)


def recorded(test: str, date: str) -> Evidence:
    """Return evidence recorded from AWS: a test of LocalStack's, and the date of its recording."""
    return Evidence(Grade.RECORDED, _localstack(test), date)


def asserted(test: str, date: str) -> Evidence:
    """Return evidence asserted on AWS by a test of LocalStack's that recorded no answer, and when it last passed."""
    return Evidence(Grade.ASSERTED, _localstack(test), date)


def old(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of LocalStack's, before dates were kept."""
    return Evidence(Grade.OLD, _localstack(test), "undated, before 2024-04")


def _localstack(test: str) -> str:
    """Return where a test of LocalStack's is; a name without a file is one of its SQS tests."""
    return LOCALSTACK_TESTS + (test if "::" in test else f"sqs/test_sqs.py::{test}")


def documented(page: str, read: str = _READ) -> Evidence:
    """Return evidence that AWS says so on that page, as it was read that day."""
    return Evidence(Grade.DOCUMENTED, page, read)


def guide(page: str, read: str = _READ) -> Evidence:
    """Return evidence that the developer guide of SQS says so on that page."""
    return documented(f"{SQS_GUIDE}{page}.html", read)


def api(action: str) -> Evidence:
    """Return evidence that the API reference of SQS says so of that action."""
    return documented(f"{_SQS_API}{action}.html")


def sns_guide(page: str, read: str = _READ) -> Evidence:
    """Return evidence that the developer guide of SNS says so on that page."""
    return documented(f"{SNS_GUIDE}{page}.html", read)


def sns_api(action: str) -> Evidence:
    """Return evidence that the API reference of SNS says so of that action."""
    return documented(f"{_SNS_API}{action}.html")


def reported(source: str, date: str) -> Evidence:
    """Return evidence that a user quoted AWS's answer there."""
    return Evidence(Grade.REPORTED, source, date)


def peer(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of the suite LocalSqsSnsMessaging shares with it; its run is dated."""
    return Evidence(Grade.ASSERTED, "justeattakeaway/LocalSqsSnsMessaging " + test, "2026-05-23")


def verified(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of moto's that is marked as verified there."""
    return Evidence(Grade.OLD, "moto tests/" + test, "undated, read 2026-08-22")


def unverified(source: str) -> Evidence:
    """Return what only another emulator, or our inference, says: nobody recorded it on AWS."""
    return Evidence(Grade.OPEN, source, _READ)
