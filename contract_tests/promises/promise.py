"""A promise and the evidence for it."""

from dataclasses import dataclass
from enum import StrEnum

GUIDE = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
API = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/"
SNS_GUIDE = "https://docs.aws.amazon.com/sns/latest/dg/"
_LS = "LocalStack tests/aws/services/"


class Promiser(StrEnum):
    """Who keeps the promise."""

    SERVICE = "SQS and SNS"
    STACK = "Sluice's stacks"
    RUNTIME = "Sluice's runtime"


class Grade(StrEnum):
    """How strong the evidence is that AWS itself behaves so.

    RECORDED: a response recorded from AWS, dated. OLD: asserted on AWS by a test without a date. REPORTED: AWS output
    quoted by users. DOCUMENTED: AWS documentation only. OPEN: our inference; nobody recorded it.
    """

    RECORDED = "recorded"
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
        id: stable; the contract test's marker.
        area: heading it stands under.
        statement: one sentence that a test can contradict.
        evidence: strongest first.
        saboteurs: names in `sluice.saboteurs`; each one alone turns the promise's test red.
        promiser: who keeps it.
    """

    id: str
    area: str
    statement: str
    evidence: tuple[Evidence, ...]
    saboteurs: tuple[str, ...]
    promiser: Promiser = Promiser.SERVICE


def recorded(test: str, date: str) -> Evidence:
    """Return evidence recorded from AWS: a test of LocalStack's, and the date of its recording."""
    return Evidence(Grade.RECORDED, _LS + test, date)


def old(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of LocalStack's, before dates were kept."""
    return Evidence(Grade.OLD, _LS + test, "undated, before 2024-04")


def documented(page: str, read: str = "2026-11-20") -> Evidence:
    """Return evidence that AWS says so on that page, as it was read that day."""
    return Evidence(Grade.DOCUMENTED, page, read)


def reported(source: str, date: str) -> Evidence:
    """Return evidence that a user quoted AWS's answer there."""
    return Evidence(Grade.REPORTED, source, date)


def peer(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of the suite LocalSqsSnsMessaging shares with it; its run is dated."""
    return Evidence(Grade.RECORDED, "justeattakeaway/LocalSqsSnsMessaging " + test, "2026-05-23")


def verified(test: str) -> Evidence:
    """Return evidence asserted on AWS by a test of moto's that is marked as verified there."""
    return Evidence(Grade.OLD, "moto tests/" + test, "undated, read 2026-08-22")


def unverified(source: str) -> Evidence:
    """Return what only another emulator, or our inference, says: nobody recorded it on AWS."""
    return Evidence(Grade.OPEN, source, "2026-11-20")
