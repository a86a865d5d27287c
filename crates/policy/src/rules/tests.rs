//! Rules and judgements, and files that mean nothing.

use serde_json::json;

use super::*;
use crate::document::Syntax;

fn rules(json: Value) -> Rules {
    read_rules(&json.to_string(), Syntax::Json).unwrap_or_else(|flaw| panic!("{json}: {flaw}"))
}

fn yaml(text: &str) -> Rules {
    read_rules(text, Syntax::Yaml).unwrap_or_else(|flaw| panic!("{text}: {flaw}"))
}

/// The denial, or `None` if the call is allowed.
fn denied(rules: &Rules, tool: &str, arguments: Value) -> Option<Denied> {
    match rules.judge(&[tool], &arguments) {
        Judgement::Denied(denied) => Some(denied),
        Judgement::Allowed { .. } => None,
    }
}

fn rule_of(rules: &Rules, tool: &str, arguments: Value) -> String {
    denied(rules, tool, arguments).map_or_else(|| "allowed".to_owned(), |denied| denied.rule)
}

#[test]
fn only_listed_tools_pass_a_policy_that_denies_by_default() {
    let rules = rules(json!({"version": "1", "default": "deny", "tools": {"run": {}, "read_file": null}}));
    assert_eq!(rule_of(&rules, "run", json!({})), "allowed");
    assert_eq!(rule_of(&rules, "read_file", json!({})), "allowed");
    for other in ["write_file", "RUN", "run ", "rυn", "", "__proto__", "*"] {
        assert_eq!(rule_of(&rules, other, json!({})), RULE_DEFAULT, "{other}");
    }
    assert_eq!(rule_of(&Rules::open(), "anything", json!({})), "allowed");
}

#[test]
fn a_hidden_tool_is_denied_under_every_name() {
    let rules = rules(json!({"version": "1", "default": "allow", "hide": ["run"], "tools": {"run": {}}}));
    assert_eq!(rule_of(&rules, "run", json!({})), RULE_HIDE);
    assert!(rules.hides(&["execute_code", "run"]) && !rules.hides(&["read_file"]));
    assert!(matches!(rules.judge(&["execute_code", "run"], &json!({})), Judgement::Denied(_)));
    let all = super::tests::rules(json!({"version": "1", "default": "allow", "hide": ["*"]}));
    assert!(all.hides(&["anything"]));
}

#[test]
fn require_and_deny_if_treat_absent_and_unfit_values_as_the_format_says() {
    let rules = rules(json!({"version": "1", "default": "deny", "tools": {"pay": {
        "require": [{"path": "args.reason", "op": "exists", "value": true, "on_deny": "say why"}],
        "deny_if": [{"args.amount": {"gt": 100}}],
    }}}));
    let ok = json!({"reason": "rent", "amount": 100});
    assert_eq!(rule_of(&rules, "pay", ok), "allowed");
    assert_eq!(rule_of(&rules, "pay", json!({"reason": "rent"})), "allowed", "absent does not match deny_if");
    let amount = "/tools/pay/deny_if/args.amount-gt";
    assert_eq!(rule_of(&rules, "pay", json!({"reason": "rent", "amount": 100.01})), amount);
    assert_eq!(
        rule_of(&rules, "pay", json!({"reason": "rent", "amount": "1"})),
        amount,
        "unfit counts against"
    );
    let without = denied(&rules, "pay", json!({"amount": 1})).unwrap();
    assert_eq!(
        without,
        Denied { rule: "/tools/pay/require/args.reason-exists".into(), reason: "say why".into() }
    );
    assert!(denied(&rules, "pay", json!({"amount": 1, "reason": null})).is_some());
}

#[test]
fn a_denial_has_the_reason_of_its_predicate_or_of_its_tool() {
    let rules = rules(json!({"version": "1", "default": "allow", "tools": {
        "a": {"reason": "not on Sundays", "deny_if": [{"args.x": {"eq": 1}}, {"args.y": {"eq": 1}, "on_deny": "no y"}]},
        "b": {"deny_if": true},
    }}));
    assert_eq!(denied(&rules, "a", json!({"x": 1})).unwrap().reason, "not on Sundays");
    assert_eq!(denied(&rules, "a", json!({"y": 1})).unwrap().reason, "no y");
    assert_eq!(denied(&rules, "b", json!({})).unwrap().reason, "the policy does not allow the tool b");
}

#[test]
fn limits_are_named_and_not_counted_here() {
    let rules = rules(json!({"version": "1", "default": "allow",
        "all_tools": {"limits": [{"counter": "calls", "window": "minute", "max": 60, "scope": "grant"}]},
        "tools": {"pay": {"limits": [
            {"counter": "spent", "window": "day", "max": 1000, "increment_from": "args.amount", "scope": "all"}]}}}));
    let arguments = json!({"amount": 12.5});
    let Judgement::Allowed { reserve, approval: None } = rules.judge(&["pay"], &arguments) else { panic!() };
    let named: Vec<_> = reserve
        .iter()
        .map(|one| {
            (one.limit.rule.as_str(), one.limit.tool.as_str(), one.amount.to_string(), one.limit.is_shared)
        })
        .collect();
    assert_eq!(
        named,
        [
            ("/tools/pay/limits/spent-per-day", "pay", "12.5".to_owned(), true),
            ("/all_tools/limits/calls-per-minute", "_global", "1".to_owned(), false),
        ]
    );
    let limit = &reserve[0].limit;
    assert!(limit.allows(Decimal::from(1000)) && !limit.allows(Decimal::parse("1000.01").unwrap()));
    assert!(limit.denied().reason.contains("1000 per day"), "{:?}", limit.denied());
    for bad in [json!({}), json!({"amount": -1}), json!({"amount": "1"}), json!({"amount": null})] {
        assert_eq!(rule_of(&rules, "pay", bad.clone()), "/tools/pay/limits/spent-per-day", "{bad}");
    }
}

#[test]
fn of_several_rules_that_ask_the_strictest_one_does() {
    let by = |tool: Value, all: Value| {
        let rules = rules(json!({"version": "1", "default": "allow",
            "tools": {"pay": {"require_approval": tool}}, "all_tools": {"require_approval": all}}));
        let Judgement::Allowed { approval, .. } = rules.judge(&["pay"], &json!({})) else { panic!() };
        approval.unwrap().by
    };
    let asks = |by: &str| json!({"when": [], "approve_by": by});
    assert_eq!(by(asks("caller"), asks("operator")), Some(ApproveBy::Operator));
    assert_eq!(by(asks("operator"), asks("caller")), Some(ApproveBy::Operator));
    assert_eq!(by(asks("caller"), json!(true)), None);
}

#[test]
fn denial_beats_approval() {
    let rules = rules(json!({"version": "1", "default": "allow", "tools": {"pay": {
        "deny_if": [{"args.amount": {"gt": 1000}}],
        "require_approval": {"when": [{"args.amount": {"gt": 100}}], "reason": "large", "approve_by": "caller"}}}}));
    let asked = |amount| match rules.judge(&["pay"], &json!({"amount": amount})) {
        Judgement::Denied(_) => "denied",
        Judgement::Allowed { approval: Some(approval), .. } => {
            assert_eq!((approval.reason.as_deref(), approval.by), (Some("large"), Some(ApproveBy::Caller)));
            "asked"
        }
        Judgement::Allowed { approval: None, .. } => "allowed",
    };
    assert_eq!((asked(json!(50)), asked(json!(500)), asked(json!(5000))), ("allowed", "asked", "denied"));
}

#[test]
fn explain_names_every_rule_that_was_looked_at() {
    let rules = rules(json!({"version": "1", "default": "allow",
        "all_tools": {"limits": [{"window": "hour", "max": 5}]},
        "tools": {"pay": {"require": {"args.a": {"gte": 1}}, "require_approval": true}}}));
    let (_, steps) = rules.explain(&["pay"], &json!({"a": 1}));
    let told: Vec<_> = steps.iter().map(|step| (step.rule.as_str(), step.effect.clone())).collect();
    assert_eq!(
        told,
        [
            ("/tools/pay/require/args.a-gte", Effect::Passes),
            ("/all_tools/limits/calls-per-hour", Effect::Counts(Decimal::ONE)),
            ("/tools/pay/require_approval", Effect::Asks),
        ]
    );
    let (_, steps) = rules.explain(&["pay"], &json!({"a": 0}));
    assert!(matches!(steps.as_slice(), [Step { effect: Effect::Denies(_), .. }]), "{steps:?}");
}

const PAYMENTS: &str = r#"
version: "1"
description: "payments"
hide: [delete_account]
tools:
  charge:
    rules:
      - name: "single charge"
        conditions:
          - {path: args.amount, op: lte, value: 50000}
          - {path: args.currency, op: in, value: [usd, eur]}
        on_deny: "too much, or a currency that is not allowed"
      - name: "spend of a day"
        conditions:
          - {path: state.charge.spent, op: lt, value: 100000}
        state: {counter: spent, window: day, increment_from: args.amount}
  refund:
    rules:
      - name: ask
        action: require_approval
        conditions: [{path: args.amount, op: gt, value: 100}]
        approval_timeout: "1h30m"
      - name: "not after much spending"
        conditions: [{path: state.charge.spent, op: lte, value: 90000}]
  drop:
    rules: [{name: never, action: deny, on_deny: "no"}]
  "*":
    rules:
      - name: "all calls"
        rate_limit: 60/minute
"#;

#[test]
fn the_other_format_compiles_to_the_same_rules() {
    let rules = yaml(PAYMENTS);
    assert_eq!(rules.description.as_deref(), Some("payments"));
    assert_eq!(rule_of(&rules, "charge", json!({"amount": 50000, "currency": "eur"})), "allowed");
    for bad in [
        json!({"amount": 50001, "currency": "eur"}),
        json!({"amount": 1, "currency": "xyz"}),
        json!({"amount": 1}),
    ] {
        let found = denied(&rules, "charge", bad).unwrap();
        assert_eq!(
            (found.rule.as_str(), &found.reason[..8]),
            ("/tools/charge/rules/single charge", "too much")
        );
    }
    assert_eq!(rule_of(&rules, "drop", json!({})), "/tools/drop/rules/never");
    assert_eq!(rule_of(&rules, "delete_account", json!({})), RULE_HIDE);
    assert_eq!(rule_of(&rules, "unlisted", json!({})), "allowed");
    let Judgement::Allowed { reserve, .. } =
        rules.judge(&["charge"], &json!({"amount": 70, "currency": "usd"}))
    else {
        panic!()
    };
    assert!(
        !reserve[0].limit.allows(Decimal::from(100_000)) && reserve[0].limit.allows(Decimal::from(99_999))
    );
    assert_eq!(
        (reserve[1].limit.counter.as_str(), reserve[1].limit.tool.as_str()),
        ("_rate_minute", "_global")
    );
    assert!(reserve[1].limit.allows(Decimal::from(60)) && !reserve[1].limit.allows(Decimal::from(61)));
}

#[test]
fn a_rule_can_look_at_the_counter_of_another_tool() {
    let rules = yaml(PAYMENTS);
    let arguments = json!({"amount": 500});
    let Judgement::Allowed { reserve, approval } = rules.judge(&["refund"], &arguments) else { panic!() };
    let reading = reserve.iter().find(|one| one.limit.counter == "spent").unwrap();
    assert_eq!(
        (reading.amount, reading.limit.tool.as_str(), reading.limit.window),
        (Decimal::ZERO, "charge", Window::Day)
    );
    assert_eq!(approval.map(|approval| approval.timeout_s), Some(Some(5400)));
}

#[test]
fn examples_are_checked_when_the_file_is_read() {
    let file = |expect: &str, rule: &str| {
        json!({"version": "1", "default": "deny", "tools": {"pay": {"deny_if": {"args.amount": {"gt": 5}}}},
            "examples": [{"tool": "pay", "args": {"amount": 9}, "expect": expect, "rule": rule}]})
        .to_string()
    };
    let rule = "/tools/pay/deny_if/args.amount-gt";
    read_rules(&file("deny", rule), Syntax::Json).unwrap();
    let wrong = read_rules(&file("deny", "/default"), Syntax::Json).unwrap_err();
    assert!(wrong.message.contains(rule), "{wrong}");
    let wrong = read_rules(&file("allow", rule), Syntax::Json).unwrap_err();
    assert!(wrong.message.contains("the rules say `deny`"), "{wrong}");
}

#[test]
fn files_that_mean_nothing_are_refused_with_their_place() {
    let base = "version: \"1\"\ntools:\n  t:\n    rules:\n      - ";
    for (rest, part) in [
        ("{action: deny}", "no `name`"),
        ("{name: x, action: maybe}", "`action` is"),
        ("{name: x, action: deny, conditions: [{path: args.a, op: eq, value: 1}]}", "has no conditions"),
        ("{name: x, action: deny, rate_limit: 5/hour}", "counts nothing"),
        ("{name: x}", "at least one condition"),
        ("{name: x, rate_limit: 5/week}", "`rate_limit` is"),
        ("{name: x, rate_limit: 0/hour}", "`rate_limit` is"),
        ("{name: x, rate_limit: -1/hour}", "`rate_limit` is"),
        ("{name: x, rate_limit: 5/hour, state: {counter: a, window: day}}", "cannot be combined"),
        ("{name: x, conditions: [{path: state.t.nothing, op: lte, value: 1}]}", "no rule counts"),
        ("{name: x, conditions: [{path: state.t, op: lte, value: 1}]}", "state.TOOL.COUNTER"),
        (
            "{name: x, conditions: [{path: state.t.a, op: regex, value: \"1\"}], state: {counter: a, window: day}}",
            "cannot compare",
        ),
        (
            "{name: x, conditions: [{path: args.a, op: lte, value: 1}], state: {counter: a, window: week}}",
            "a window is",
        ),
        (
            "{name: x, conditions: [{path: args.a, op: lte, value: 1}], state: {counter: a, window: day, increment: -1}}",
            "at least zero",
        ),
        ("{name: x, conditions: [{path: args.a, op: lte, value: 1}], approval_timeout: 5m}", "belongs to"),
        ("{name: x, action: require_approval, approval_timeout: soon}", "a time such as"),
        ("{name: x, rate_limit: 5/hour}\n      - {name: y, rate_limit: 6/hour}", "counted by two rules"),
        ("{name: x, rate_limit: 5/hour, when: now}", "not a field of a rule"),
    ] {
        let flaw = read_rules(&format!("{base}{rest}\n"), Syntax::Yaml).expect_err(rest);
        assert!(flaw.message.contains(part) && flaw.at.line >= 5, "{rest}: {flaw}");
    }
    for (file, part) in [
        (json!([]), "a policy is an object"),
        (json!({"default": "deny"}), "`version` is missing"),
        (json!({"version": "2", "default": "deny"}), "must be \"1\""),
        (json!({"version": "1"}), "`default` is missing"),
        (json!({"version": "1", "default": "ask"}), "`default` is"),
        (json!({"version": "1", "default": "deny", "tool": {}}), "not a field of a policy"),
        (json!({"version": "1", "default": "deny", "hide": "run"}), "`hide` is a list"),
        (json!({"version": "1", "default": "deny", "hide": ["a", "a"]}), "hidden twice"),
        (
            json!({"version": "1", "default": "deny", "tools": {"t": {"requires": []}}}),
            "not a field of a tool's entry",
        ),
        (json!({"version": "1", "default": "deny", "tools": {"t": {"limits": [{"max": 1}]}}}), "no `window`"),
        (
            json!({"version": "1", "default": "deny", "tools": {"t": {"limits": [{"window": "day"}]}}}),
            "no `max`",
        ),
        (
            json!({"version": "1", "default": "deny", "tools": {"t": {"limits": [{"window": "day", "max": -1}]}}}),
            "at least zero",
        ),
        (
            json!({"version": "1", "default": "deny", "tools": {"t": {"limits": [{"window": "day", "max": 1, "scope": "x"}]}}}),
            "`scope` is",
        ),
        (json!({"version": "1", "default": "deny", "approvals": "x"}), "`approvals` is an object"),
        (json!({"version": "1", "default": "deny", "tools": {"t": {"approve_by": "me"}}}), "`approve_by` is"),
    ] {
        let flaw = read_rules(&file.to_string(), Syntax::Json).expect_err(part);
        assert!(flaw.message.contains(part), "{file}: {flaw}");
    }
}

#[test]
fn texts_that_are_compared_with_an_argument_can_be_doubted_at_their_place() {
    let text = r#"{"version": "1", "default": "allow",
        "tools": {"run": {
            "require": [{"path": "args.language", "op": "in", "value": ["python", "sh"]}],
            "deny_if": [{"path": "args.code", "op": "contains", "value": "sh"}]}},
        "all_tools": {"deny_if": [{"path": "args.language", "op": "eq", "value": "js"}]}}"#;
    let rules = read_rules(text, Syntax::Json).unwrap();
    let doubted = rules.doubts("args.language", |text| (text != "python").then(|| text.to_owned()));
    let told: Vec<(usize, &str)> = doubted.iter().map(|flaw| (flaw.at.line, flaw.message.as_str())).collect();
    assert_eq!(told, [(3, "sh"), (5, "js")]);
}
