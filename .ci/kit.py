"""The scenarios of conformance/scenarios and the rules that they check, read without running the kit: only the standard
library is needed. Used by check-conformance-page and conformance-scenarios."""

import ast
import pathlib
import re
import tomllib
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "conformance" / "scenarios"
RULES = ROOT / "conformance" / "rules.toml"
PAGE = ROOT / "docs" / "conformance-scenarios.md"
CONFORMANCE = ROOT / "docs" / "conformance.md"
README = ROOT / "conformance" / "README.md"
RULE_ID = re.compile(r"^(A\d+|X)-\d+$")


@dataclass
class Scenario:
    id: str
    statement: str
    source: str
    unsupported: bool  # by the reference client

    @property
    def group(self):
        return self.id.partition("/")[0]

    @property
    def name(self):
        return self.id.partition("/")[2]


class Unreadable(Exception):
    """An expression that only a run of the kit can evaluate."""


def evaluate(node, values):
    """The value of an expression of strings; of a dict, the list of its keys."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return evaluate(node.left, values) + evaluate(node.right, values)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(evaluate(part, values)) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return evaluate(node.value, values)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [evaluate(element, values) for element in node.elts]
    if isinstance(node, ast.Dict):
        return [evaluate(key, values) for key in node.keys]
    raise Unreadable


def module_values(tree):
    """The constants of a module, as far as they can be evaluated."""
    values = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = evaluate(node.value, values)
            except (Unreadable, TypeError):
                pass
    return values


def calls_in_loops(tree, function, values):
    """The first arguments with which loops of the module call a function: `for case in CASES: function(case)`."""
    for loop in tree.body:
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            for call in ast.walk(loop):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function:
                    for value in evaluate(loop.iter, values):
                        yield evaluate(call.args[0], {**values, loop.target.id: value})


def scenarios_of(path):
    """The scenarios of a file, in its order."""
    tree = ast.parse(path.read_text(), str(path))
    values = module_values(tree)
    for outer in tree.body:
        if not isinstance(outer, ast.FunctionDef):
            continue
        for node in ast.walk(outer):
            for call in getattr(node, "decorator_list", []):
                if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "scenario"):
                    continue
                try:
                    # A scenario inside a function is made once per call of that function.
                    bound = [{}] if node is outer else [
                        {outer.args.args[0].arg: value} for value in calls_in_loops(tree, outer.name, values)]
                    for more in bound:
                        id, statement, source = (evaluate(a, {**values, **more}) for a in call.args[:3])
                        unsupported = len(call.args) > 3 or any(k.arg == "unsupported" for k in call.keywords)
                        yield Scenario(id, statement, source, unsupported)
                except Unreadable:
                    raise SystemExit(f"{path}:{call.lineno}: the id, the statement or the source of this scenario "
                                     "cannot be read without running the kit") from None


def scenarios():
    """All scenarios: {id: Scenario}."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for scenario in scenarios_of(path):
            found[scenario.id] = scenario
    return found


def load_rules():
    """({scenario id: [rules]}, {text: address}) of conformance/rules.toml."""
    groups = tomllib.loads(RULES.read_text())
    texts = groups.pop("texts")
    return {f"{group}/{name}": rules for group, names in groups.items() for name, rules in names.items()}, texts


def anchors():
    """{prefix of rule ids: anchor of its section in docs/conformance.md}."""
    found, anchor = {}, ""
    for line in CONFORMANCE.read_text().splitlines():
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        elif match := re.match(r"\| (A\d+|X)-\d+ \|", line):
            found.setdefault(match[1], anchor)
    return found


def problems(rule_ids):
    """What is wrong with conformance/rules.toml, given the ids of docs/conformance.md."""
    found, (mapping, texts), sections = scenarios(), load_rules(), anchors()
    for id in found:
        if not mapping.get(id):
            yield f"conformance/rules.toml: no rule for the scenario {id}"
    for id, rules in mapping.items():
        if id not in found:
            yield f"conformance/rules.toml: {id} is not a scenario"
        for rule in rules:
            if rule not in rule_ids and rule not in texts and rule not in sections:
                yield f"conformance/rules.toml: {id} names {rule}, which is neither a rule of docs/conformance.md " \
                      "nor in [texts]"
        if len(set(rules)) != len(rules):
            yield f"conformance/rules.toml: {id} names a rule twice"


def readme_problems():
    """Counts of conformance/README.md that are out of date."""
    text, found = README.read_text(), scenarios()
    groups = {}
    for scenario in found.values():
        groups[scenario.group] = groups.get(scenario.group, 0) + 1
    said = {group: int(count) for group, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)}
    for group in sorted(groups.keys() | said.keys()):
        if groups.get(group) != said.get(group):
            yield f"conformance/README.md: the group {group} has {groups.get(group, 0)} scenarios, " \
                  f"the table says {said.get(group, 0)}"
    if f"There are {len(found)} scenarios in {len(groups)} groups." not in text:
        yield f"conformance/README.md does not say that there are {len(found)} scenarios in {len(groups)} groups"


def page():
    """The text of docs/conformance-scenarios.md."""
    found, (mapping, texts) = scenarios(), load_rules()
    groups = {}
    for scenario in found.values():
        groups.setdefault(scenario.group, []).append(scenario)
    docs = {path.stem: " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
            for path in FOLDER.glob("*.py")}
    lines = [
        "# Scenarios of the conformance kit", "",
        "<!-- Written by .ci/conformance-scenarios --write from conformance/scenarios and conformance/rules.toml. -->", "",
        f"The {len(found)} scenarios of the [conformance kit](../conformance/README.md), and the rules that each of them",
        "checks. Ids such as A27-10 are rows of [conformance.md](conformance.md); a gRFC or another text stands alone where",
        "it has no numbered row there. The reference client (gRPC's C-core) does not pass scenarios with a †; the",
        "[README](../conformance/README.md#where-the-reference-deviates) says why.", "",
        "| Group | Scenarios |", "|---|---|",
    ]
    lines += [f"| [{group}](#{group}) | {len(members)} |" for group, members in sorted(groups.items())]
    for group, members in sorted(groups.items()):
        lines += ["", f"## {group}", "", docs.get(group, ""), "",
                  "| Scenario | What it checks | Rules |", "|---|---|---|"]
        for scenario in members:
            mark = " †" if scenario.unsupported else ""
            rules = ", ".join(f"[{rule}]" for rule in mapping[scenario.id])
            statement = scenario.statement.replace("|", "\\|")
            lines.append(f"| `{scenario.name}`{mark} | {statement} | {rules} |")
    by_rule = {}
    for id in found:
        for rule in mapping[id]:
            by_rule.setdefault(rule, []).append(id)
    lines += ["", "## By rule", "", "The numbered rules that scenarios check.", "", "| Rule | Scenarios |", "|---|---|"]
    numbered = [rule for rule in by_rule if RULE_ID.match(rule)]
    def order(rule):
        prefix, _, number = rule.partition("-")
        return (prefix == "X", int(prefix[1:] or 0), int(number))
    for rule in sorted(numbered, key=order):
        lines.append(f"| [{rule}] | {', '.join(f'`{id}`' for id in by_rule[rule])} |")
    sections = anchors()
    def address(rule):
        return texts.get(rule) or f"conformance.md#{sections[rule.partition('-')[0]]}"
    lines += ["", *(f"[{rule}]: {address(rule)}" for rule in sorted(by_rule))]
    return "\n".join(lines) + "\n"
