"""The results of a run, for people and for machines.

Each function takes the scenarios of the run and {id: result}, where a result has `outcome` (passed, failed or skipped),
`detail` (why), `seconds`, and for scenarios that ran `attempts` and `log`.
"""

import json
import pathlib
import re
import xml.etree.ElementTree as xml

OUTCOMES = ("passed", "failed", "skipped")
# Characters that XML 1.0 does not allow.
INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def by_group(chosen, results):
    """{group: {outcome: count}}, sorted by group."""
    groups = {}
    for scenario in chosen:
        counts = groups.setdefault(scenario.group, dict.fromkeys(OUTCOMES, 0))
        counts[results[scenario.id]["outcome"]] += 1
    return dict(sorted(groups.items()))


def total(groups):
    return {outcome: sum(counts[outcome] for counts in groups.values()) for outcome in OUTCOMES}


def print_summary(chosen, results):
    """Prints a table by group, the ids of failed scenarios, and the line with the totals, which comes last."""
    groups = by_group(chosen, results)
    totals = total(groups)
    width = max(map(len, groups), default=5)
    print(f"\n{'group':{width}}  passed  failed  skipped")
    for group, counts in groups.items():
        print(f"{group:{width}}  {counts['passed']:6}  {counts['failed']:6}  {counts['skipped']:7}")
    failed = [s.id for s in chosen if results[s.id]["outcome"] == "failed"]
    if failed:
        print("\nfailed:\n" + "\n".join(f"  {id}" for id in failed))
    print(f"\n{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return totals


def write_json(path, chosen, results):
    pathlib.Path(path).write_text(json.dumps({
        "totals": total(by_group(chosen, results)),
        "scenarios": [{"id": s.id, "group": s.group, "statement": s.statement, "source": s.source, **results[s.id]}
                      for s in chosen]}, indent=2) + "\n")


def write_junit(path, chosen, results):
    """One test suite per group, one test case per scenario."""
    root = xml.Element("testsuites", name="xds-conformance")
    suites = {}
    for group, counts in by_group(chosen, results).items():
        seconds = sum(results[s.id]["seconds"] for s in chosen if s.group == group)
        suites[group] = xml.SubElement(root, "testsuite", name=group, tests=str(sum(counts.values())), errors="0",
                                       failures=str(counts["failed"]), skipped=str(counts["skipped"]),
                                       time=f"{seconds:.2f}")
    for scenario in chosen:
        result = results[scenario.id]
        case = xml.SubElement(suites[scenario.group], "testcase", classname=scenario.group,
                              name=scenario.id.partition("/")[2], time=f"{result['seconds']:.2f}")
        detail = INVALID.sub("?", result["detail"])
        if result["outcome"] == "failed":
            text = INVALID.sub("?", f"{scenario.statement}\n{scenario.source}\n\n{result['detail']}")
            xml.SubElement(case, "failure", message=detail).text = text
            if result.get("log"):
                xml.SubElement(case, "system-out").text = INVALID.sub("?", result["log"])
        elif result["outcome"] == "skipped":
            xml.SubElement(case, "skipped", message=detail)
    xml.indent(root)
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def append_markdown(path, chosen, results):
    """A table by group and the failed scenarios, appended, as a summary of a CI job is."""
    groups = by_group(chosen, results)
    totals = total(groups)
    lines = ["## xDS conformance", "",
             f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped", "",
             "| Group | Passed | Failed | Skipped |", "|---|--:|--:|--:|"]
    lines += [f"| {group} | {c['passed']} | {c['failed']} | {c['skipped']} |" for group, c in groups.items()]
    failed = [s for s in chosen if results[s.id]["outcome"] == "failed"]
    if failed:
        lines += ["", "| Failed scenario | What must happen | What happened |", "|---|---|---|"]
        lines += [f"| `{s.id}` | {cell(s.statement)} | {cell(results[s.id]['detail'])} |" for s in failed]
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n\n")


def cell(text):
    """Text for a cell of a Markdown table."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 300 else text[:300] + " ..."
