"""The verdict as JUnit XML: a test case for each judged property, and one for the run as a whole."""

import re
from xml.etree import ElementTree as ET

from sluice.judge.checker.anomalies import ANOMALIES
from sluice.judge.checker.verdict import Property, PropertyState, PropertyStatus, Verdict
from sluice.judge.report.summary import NO_THRESHOLD, NOT_EXERCISED, caveats, harm_sentence, since, where, witness_lines

_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
WHOLE_RUN = "the run can be judged"
_SUFFIXES = {PropertyState.VIOLATED: "failure", PropertyState.CROSSED: "failure", PropertyState.UNKNOWN: "error"}


def xml(verdict: Verdict) -> str:
    """Return the verdict as JUnit XML.

    A property that was violated, or whose threshold was crossed, is a failure with its witnesses; one that was not
    exercised is skipped, one that is unknown is an error. The unknowns of the run as a whole are an error of one more
    test case, so that an UNKNOWN run never looks like a pass.
    """
    run = _clean(str(verdict.run.get("run", "")))
    suite = ET.Element("testsuite", name=f"sluice load {run}".strip())
    for prop in verdict.properties:
        _add(suite, prop, verdict, run)
    whole = _case(suite, WHOLE_RUN, run)
    if found := [*caveats(verdict), *([] if (harm := harm_sentence(verdict)) is None else [harm])]:
        ET.SubElement(whole, "system-out").text = _clean("\n".join(found))
    if verdict.status is PropertyStatus.UNKNOWN or verdict.unknowns:
        error = ET.SubElement(
            whole, "error", type="unknown", message=_clean((*verdict.unknowns, "nothing was exercised")[0])
        )
        error.text = _clean("\n".join(verdict.unknowns))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite)))
    root = ET.Element("testsuites", {name: value for name, value in suite.attrib.items() if name != "name"})
    root.append(suite)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, name: str, run: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=name, classname=f"sluice.{run}")


def _add(suite: ET.Element, prop: Property, verdict: Verdict, run: str) -> None:
    known = ANOMALIES[prop.anomaly]
    case = _case(suite, f"{known.id} nothing was {known.name}", run)
    holding = prop.holding
    if holding is PropertyState.NOT_EXERCISED:
        ET.SubElement(case, "skipped", message=f"not exercised: {NOT_EXERCISED}")
    elif holding is PropertyState.NO_THRESHOLD:
        ET.SubElement(case, "skipped", message=f"not judged: {NO_THRESHOLD}")
    elif holding in _SUFFIXES:
        element = ET.SubElement(case, _SUFFIXES[holding], type=holding.value, message=_message(prop))
        element.text = _clean(_witnesses(prop, verdict) or known.definition)
    elif holding is PropertyState.ALLOWED:
        ET.SubElement(case, "system-out").text = _clean(
            f"allowed, found {prop.violation_count} times: {prop.allowed_because}"
        )


def _message(prop: Property) -> str:
    if prop.holding is PropertyState.UNKNOWN and not prop.violation_count:
        return "this run cannot tell"
    return f"{prop.holding.value}: found {prop.violation_count:,} times in {prop.opportunities:,} opportunities"


def _witnesses(prop: Property, verdict: Verdict) -> str:
    lines = [
        line
        for violation in verdict.violations
        if violation.anomaly == prop.anomaly
        for line in (
            f"{where(violation)}: {violation.sentence}{since(violation)}",
            *(f"    {line}" for line in witness_lines(violation)),
        )
    ]
    return "\n".join([*prop.crossed, *lines])


def _clean(text: str) -> str:
    """Return the text without what XML cannot hold: group ids come from outside."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
