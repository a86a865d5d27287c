//! Files in the form of the registries: every construct of both formats loads and means the same.

use serde_json::json;

use super::*;
use crate::document::Syntax;

fn yaml(text: &str) -> Rules {
    read_rules(text, Syntax::Yaml).unwrap_or_else(|flaw| panic!("{text}: {flaw}"))
}

fn rule_of(rules: &Rules, tool: &str, arguments: Value) -> String {
    match rules.judge(&[tool], &arguments) {
        Judgement::Denied(denied) => denied.rule,
        Judgement::Allowed { approval: Some(approval), .. } => format!("asks {}", approval.rule),
        Judgement::Allowed { reserve, .. } => format!("allowed {}", reserve.len()),
    }
}

/// A generated scaffold: a head of comments, four spaces, comments at odd places, nothing but empty rules.
const SCAFFOLD: &str = "
#  ─────────────────────
#  Policy: a server
#  Tools: 3

#  ─────────────────────
version: \"1\"
description: \"Policy for a server\"
#  Set to \"deny\" to reject calls that are not listed
default: \"allow\"
tools:
    #  ── Read Tools ──────
    #  look: Looks at things: docs, properties, versions
    look:
        rules: []
    #  ── Execute Tools ──────
    run-it_2:
        rules: []
    commented:
        rules:
            # - name: \"later\"

  # \"*\":
  #   rules:
  #     - name: \"global rate limit\"
";

#[test]
fn a_generated_scaffold_loads_and_allows_everything() {
    let rules = yaml(SCAFFOLD);
    for tool in ["look", "run-it_2", "commented", "another"] {
        assert_eq!(rule_of(&rules, tool, json!({})), "allowed 0", "{tool}");
    }
    let all_commented = yaml("version: \"1\"\ndefault: deny\nhide:\ntools:\n  # look:\n");
    assert_eq!(rule_of(&all_commented, "look", json!({})), RULE_DEFAULT);
}

const EVERY_CONSTRUCT: &str = "
version: \"1\"
description: every construct
approvals: {timeout: 30m}
hide:
  - secret_tool
tools:
  pay:
    rules:
      - name: \"single\"
        conditions:
          - path: \"args.amount\"
            op: \"lte\"
            value: 50000
          - {path: args.currency, op: in, value: [\"usd\", \"eur\"]}
        on_deny: \"too much\"
      - name: \"day\"
        action: evaluate
        conditions:
          - {path: state.pay.daily, op: lt, value: 1000000}
        state: {counter: daily, window: day, increment: 1, increment_from: args.amount}
      - name: \"count\"
        conditions: [{path: state.pay.calls, op: lte, value: 10}]
        state: {counter: calls, window: hour, increment: 0}
      - name: \"big\"
        action: require_approval
        conditions: [{path: args.amount, op: gt, value: 1000}]
        approval_timeout: \"1h30m\"
  all_ops:
    rules:
      - name: \"ops\"
        conditions:
          - {path: args.a, op: eq, value: main}
          - {path: args.b, op: neq, value: draft}
          - {path: args.c, op: not_in, value: [admin]}
          - {path: args.d, op: gte, value: 1}
          - {path: args.e, op: regex, value: \"^feat/\"}
          - {path: args.f, op: contains, value: x}
          - {path: args.g.h, op: exists, value: false}
      - {name: \"ops\", action: deny}
  stop:
    rules:
      - {name: \"no\", action: \"deny\", on_deny: \"never\"}
  \"*\":
    rules:
      - {name: \"global\", rate_limit: 60/minute}
";

#[test]
fn every_construct_of_the_rules_format_loads_and_decides() {
    let rules = yaml(EVERY_CONSTRUCT);
    assert_eq!(rule_of(&rules, "secret_tool", json!({})), RULE_HIDE);
    let pay = |amount: u64, currency: &str| json!({"amount": amount, "currency": currency});
    assert_eq!(rule_of(&rules, "pay", pay(60_000, "usd")), "/tools/pay/rules/single");
    assert_eq!(rule_of(&rules, "pay", pay(5, "chf")), "/tools/pay/rules/single");
    assert_eq!(rule_of(&rules, "pay", json!({"amount": 5})), "/tools/pay/rules/single", "absent fails");
    assert_eq!(rule_of(&rules, "pay", pay(5, "eur")), "allowed 3");
    assert_eq!(rule_of(&rules, "pay", pay(5000, "eur")), "asks /tools/pay/rules/big");
    let ops = json!({"a": "main", "b": "x", "c": "y", "d": 1, "e": "feat/1", "f": "axb", "g": {}});
    assert_eq!(rule_of(&rules, "all_ops", ops), "/tools/all_ops/rules/ops-2", "the second of that name");
    assert_eq!(rule_of(&rules, "stop", json!({})), "/tools/stop/rules/no");
    assert_eq!(rule_of(&rules, "other", json!({})), "allowed 1");
    assert_eq!(rules.notes().len(), 1, "{:?}", rules.notes());
    let Judgement::Allowed { reserve, .. } = rules.judge(&["pay"], &pay(5, "eur")) else { panic!() };
    let amounts: Vec<String> =
        reserve.iter().map(|one| format!("{} {}", one.limit.counter, one.amount)).collect();
    assert_eq!(amounts, ["daily 5", "calls 1", "_rate_minute 1"], "an increment of zero counts as one");
}

#[test]
fn the_same_rules_in_both_formats_and_both_forms_of_predicates_decide_the_same() {
    let native = |deny_if: Value| {
        let file = json!({"version": "1", "default": "allow", "tools": {"pay": {
            "require": [{"path": "args.reason", "op": "exists", "value": true}], "deny_if": deny_if}}});
        read_rules(&file.to_string(), Syntax::Json).unwrap()
    };
    let forms = [
        native(json!([{"path": "args.amount", "op": "gt", "value": 100}])),
        native(json!({"args.amount": {"gt": 100}})),
        native(json!([{"args.amount": {"gt": 100}}])),
    ];
    for (arguments, is_denied) in [
        (json!({"reason": "x", "amount": 100}), false),
        (json!({"reason": "x", "amount": 100.0000001}), true),
        (json!({"reason": "x", "amount": "1"}), true),
        (json!({"reason": "x"}), false),
        (json!({"amount": 1}), true),
    ] {
        let verdicts: Vec<String> =
            forms.iter().map(|rules| rule_of(rules, "pay", arguments.clone())).collect();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{arguments}: {verdicts:?}");
        assert_eq!(verdicts[0].starts_with('/'), is_denied, "{arguments}: {verdicts:?}");
    }
}

#[test]
fn added_fields_are_kept_told_and_placed() {
    let rules = yaml(
        "version: '1'\ndefault: deny\naccess: [pypi]\ntools:\n  run:\n    reason: ask first\n    require_approval: true\n    approve_by: caller\n    walls: [own_kernel, vm]\n",
    );
    assert_eq!(rule_of(&rules, "run", json!({})), "asks /tools/run/require_approval");
    let declared = rules.declared(&["run"]);
    assert_eq!(
        (declared.access, declared.walls),
        (vec!["pypi".to_owned()], vec!["own_kernel".to_owned(), "vm".to_owned()])
    );
    let lines: Vec<usize> = rules.notes().iter().map(|note| note.at.line).collect();
    assert_eq!(lines, [9], "a wall that is not known is told");
    assert_eq!(rules.wall_lists(&["run"]), [["own_kernel", "vm"]]);
    assert_eq!(rules.place(RULE_ACCESS).unwrap().line, 3);
    assert_eq!(rules.place("/tools/run/require_approval").unwrap().line, 7);
    assert_eq!(rules.place(RULE_DEFAULT).unwrap().line, 2);
    assert_eq!(rules.place(RULE_HIDE), None);
    assert_eq!(rules.place("/nowhere"), None);
}

#[test]
fn only_listed_names_of_access_pass_a_policy_that_lists_some() {
    let of_tool = "version: '1'\ndefault: allow\ntools:\n  run:\n    access: [pypi]\n";
    let of_all = "version: '1'\ndefault: allow\naccess: [pypi]\n";
    for text in [of_tool, of_all] {
        let rules = yaml(text);
        for allowed in
            [json!({}), json!({"access": null}), json!({"access": []}), json!({"access": ["pypi"]})]
        {
            assert!(!rule_of(&rules, "run", allowed.clone()).starts_with('/'), "{allowed}");
        }
        for denied in
            [json!(["github"]), json!(["pypi", "github"]), json!("github"), json!([1]), json!({"pypi": 1})]
        {
            assert_eq!(rule_of(&rules, "run", json!({"access": denied})), RULE_ACCESS, "{denied}");
        }
    }
    assert!(!rule_of(&yaml(of_tool), "sandbox_open", json!({"access": ["x"]})).starts_with('/'));
    let none = yaml("version: '1'\ndefault: allow\naccess: []\n");
    assert_eq!(rule_of(&none, "run", json!({"access": ["pypi"]})), RULE_ACCESS);
    let silent = yaml("version: '1'\ndefault: allow\n");
    assert!(!rule_of(&silent, "run", json!({"access": ["pypi"]})).starts_with('/'));
}

#[test]
fn files_of_cases_name_a_policy_or_a_caller() {
    let text = "cases:\n  - {principal: key:ci, tool: run, expect: allow}\n  - {policy: team, tool: run, args: {a: 1}, expect: deny, rule: /x}\n";
    let cases = read_cases(text, Syntax::Yaml).unwrap();
    assert_eq!(cases[0].subject, Subject::Principal("key:ci".to_owned()));
    assert_eq!((cases[1].subject.clone(), cases[1].at.line), (Subject::Policy("team".to_owned()), 3));
    for bad in ["cases: 1", "other: []", "- {tool: run}", "- {tool: run, expect: allow, who: me}"] {
        assert!(read_cases(bad, Syntax::Yaml).is_err(), "{bad}");
    }
    let subject_in_example =
        "version: '1'\ndefault: allow\nexamples: [{policy: x, tool: run, expect: allow}]\n";
    assert!(read_rules(subject_in_example, Syntax::Yaml).is_err());
}

#[test]
fn each_list_of_walls_counts_and_a_guarantee_is_no_wall() {
    let rules = yaml(
        "version: '1'\ndefault: allow\nwalls: own_kernel\ntools:\n  run:\n    walls: [native, gvisor]\n",
    );
    assert_eq!(rules.wall_lists(&["run"]), [vec!["native", "gvisor"], vec!["own_kernel"]]);
    assert_eq!(rules.wall_lists(&["wait"]), [["own_kernel"]]);
    assert!(rules.notes().is_empty());
    let flaw =
        crate::read_rules("version: '1'\ndefault: allow\nwalls: [memory_limited]\n", crate::Syntax::Yaml)
            .unwrap_err();
    assert!(flaw.message.contains("is a guarantee") && flaw.at.line == 3, "{flaw:?}");
}
