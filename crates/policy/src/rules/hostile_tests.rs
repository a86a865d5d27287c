//! Hostile files and hostile arguments, one case per test. A reader that is quadratic or exponential would not end in the
//! time that the runner of tests gives.

use serde_json::json;

use super::*;
use crate::document::Syntax;

fn rules(json: Value) -> Rules {
    read_rules(&json.to_string(), Syntax::Json).unwrap_or_else(|flaw| panic!("{json}: {flaw}"))
}

/// Rules that deny the tool `t` under a condition on its arguments.
fn deny_if(predicate: Value) -> Rules {
    rules(json!({"version": "1", "default": "allow", "tools": {"t": {"deny_if": predicate}}}))
}

fn require(predicate: Value) -> Rules {
    rules(json!({"version": "1", "default": "allow", "tools": {"t": {"require": predicate}}}))
}

fn is_denied(rules: &Rules, tool: &str, arguments: &str) -> bool {
    let arguments: Value =
        serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{arguments}: {error}"));
    matches!(rules.judge(&[tool], &arguments), Judgement::Denied(_))
}

#[test]
fn names_that_look_like_an_allowed_tool_are_other_tools() {
    let rules = rules(json!({"version": "1", "default": "deny", "tools": {"café_run": {}, "run": {}}}));
    assert!(!is_denied(&rules, "run", "{}") && !is_denied(&rules, "caf\u{e9}_run", "{}"));
    for other in [
        "Run",
        "RUN",
        "run\u{200b}",
        "\u{feff}run",
        "r\u{fc}n",
        "\u{433}un",
        "run\0",
        "run ",
        "cafe\u{301}_run",
    ] {
        assert!(is_denied(&rules, other, "{}"), "{other:?}");
    }
}

#[test]
fn names_that_look_like_a_forbidden_argument_do_not_satisfy_a_requirement() {
    let rules = require(json!({"args.ticket": {"exists": true}}));
    for other in ["Ticket", "ticket\u{200b}", "t\u{456}cket", "ticket ", "args.ticket", "tic\u{feff}ket"] {
        assert!(is_denied(&rules, "t", &json!({other: "1"}).to_string()), "{other:?}");
    }
    assert!(!is_denied(&rules, "t", r#"{"ticket": "1"}"#));
}

#[test]
fn of_two_equal_keys_in_arguments_the_one_that_is_carried_out_is_judged() {
    let rules = deny_if(json!({"args.mode": {"neq": "safe"}}));
    let arguments: Value = serde_json::from_str(r#"{"mode": "safe", "mode": "raw"}"#).unwrap();
    // A tool reads the same parsed value.
    assert_eq!(arguments["mode"], "raw");
    assert!(matches!(rules.judge(&["t"], &arguments), Judgement::Denied(_)));
    assert!(
        is_denied(&rules, "t", r#"{"mode": "safe", "\u006dode": "raw"}"#),
        "an escaped key is the same key"
    );
}

#[test]
fn numbers_beyond_every_machine_number_are_compared_exactly() {
    let rules = deny_if(json!({"args.n": {"gt": 100}}));
    for large in ["1e400", "100.000000000000000000001", "9007199254740993", "1E+2000", "99999999999999999999"]
    {
        assert!(is_denied(&rules, "t", &format!(r#"{{"n": {large}}}"#)), "{large}");
    }
    for small in ["100", "1e2", "100.0", "-0", "-1e400", "1e-400", "0.1e3"] {
        assert!(!is_denied(&rules, "t", &format!(r#"{{"n": {small}}}"#)), "{small}");
    }
    let exact = deny_if(json!({"args.n": {"neq": 9_007_199_254_740_993_u64}}));
    assert!(!is_denied(&exact, "t", r#"{"n": 9007199254740993}"#));
    assert!(is_denied(&exact, "t", r#"{"n": 9007199254740992}"#), "a binary fraction takes them for equal");
}

#[test]
fn numbers_that_cannot_be_compared_exactly_count_against_the_caller() {
    let forbid = deny_if(json!({"args.n": {"gt": 100}}));
    let demand = require(json!({"args.n": {"lte": 100}}));
    let digits = "1".repeat(60);
    for odd in ["1e999999999", "1e-999999999", "1e99999999999999999999", digits.as_str()] {
        let arguments = format!(r#"{{"n": {odd}}}"#);
        assert!(is_denied(&forbid, "t", &arguments) && is_denied(&demand, "t", &arguments), "{odd}");
    }
}

#[test]
fn a_number_as_text_and_other_wrong_types_count_against_the_caller() {
    let forbid = deny_if(json!({"args.n": {"gt": 100}}));
    let demand = require(json!({"args.n": {"lte": 100}}));
    for odd in [r#""5""#, "true", "null", "[5]", r#"{"n": 5}"#, r#""""#] {
        let arguments = format!(r#"{{"n": {odd}}}"#);
        assert!(is_denied(&forbid, "t", &arguments) && is_denied(&demand, "t", &arguments), "{odd}");
    }
}

#[test]
fn tenths_are_added_and_compared_exactly() {
    let rules = deny_if(json!({"args.n": {"neq": 0.3}}));
    for same in ["0.3", "0.30", "3e-1", "0.03E1", "30e-2"] {
        assert!(!is_denied(&rules, "t", &format!(r#"{{"n": {same}}}"#)), "{same}");
    }
    assert!(is_denied(&rules, "t", r#"{"n": 0.30000000000000004}"#), "0.1 + 0.2 in binary fractions");
}

#[test]
fn a_key_with_dots_is_not_the_path_that_it_spells() {
    let forbid = deny_if(json!({"args.a.b": {"eq": 1}}));
    let demand = require(json!({"args.a.b": {"eq": 1}}));
    assert!(is_denied(&forbid, "t", r#"{"a": {"b": 1}}"#) && !is_denied(&demand, "t", r#"{"a": {"b": 1}}"#));
    assert!(is_denied(&demand, "t", r#"{"a.b": 1}"#), "not found");
    assert!(is_denied(&forbid, "t", r#"{"a.b": 0, "a": {"b": 1}}"#), "the real one counts");
    assert!(!is_denied(&forbid, "t", r#"{"a.b": 1}"#), "the tool does not know such an argument");
}

#[test]
fn a_list_where_an_object_is_expected_counts_against_the_caller() {
    let forbid = deny_if(json!({"args.limits.memory_mb": {"gt": 256}}));
    for odd in [r#"[{"memory_mb": 1}]"#, r#""memory_mb""#, "7", "true", "null"] {
        assert!(is_denied(&forbid, "t", &format!(r#"{{"limits": {odd}}}"#)), "{odd}");
    }
    assert!(!is_denied(&forbid, "t", r#"{"limits": {}}"#) && !is_denied(&forbid, "t", "{}"));
    let first = deny_if(json!({"args.list.0": {"eq": "x"}}));
    assert!(
        is_denied(&first, "t", r#"{"list": ["x"]}"#) && is_denied(&first, "t", r#"{"list": {"0": "x"}}"#)
    );
}

#[test]
fn aliases_that_multiply_are_refused_soon() {
    let mut bomb = String::from("version: '1'\ndefault: allow\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n");
    for level in 1..9 {
        bomb += &format!("x{level}: &x{level} [{}]\n", vec![format!("*x{}", level - 1); 10].join(", "));
    }
    let flaw = read_rules(&bomb, Syntax::Yaml).unwrap_err();
    assert!(flaw.message.contains("more than") && flaw.at.line > 3, "{flaw}");
}

#[test]
fn deep_nesting_is_refused_in_files_and_survived_in_arguments() {
    let deep = format!("{{\"version\": \"1\", \"default\": {}", "[".repeat(200_000));
    assert!(read_rules(&deep, Syntax::Json).unwrap_err().message.contains("nested"));
    let rules = deny_if(json!({"args.a.a.a": {"contains": "x"}}));
    // The parser of messages accepts at most 128 levels.
    let arguments = format!("{}1{}", r#"{"a": "#.repeat(100), "}".repeat(100));
    assert!(is_denied(&rules, "t", &arguments), "an object cannot contain a text");
}

#[test]
fn a_pattern_that_explodes_elsewhere_is_linear_here() {
    let rules = deny_if(json!({"args.text": {"regex": "^(a+)+$"}}));
    assert!(!is_denied(&rules, "t", &json!({"text": format!("{}!", "a".repeat(100_000))}).to_string()));
    for bomb in ["(x{1000}){1000}", "((a{100}){100}){100}", "(", "(?<name", "\\p{Nothing}"] {
        let file = json!({"version": "1", "default": "allow", "tools": {"t": {"deny_if": {"args.a": {"regex": bomb}}}}});
        let flaw = read_rules(&file.to_string(), Syntax::Json).expect_err(bomb);
        assert!(flaw.message.contains("pattern"), "{bomb}: {flaw}");
    }
}

#[test]
fn a_file_of_a_thousand_large_patterns_is_refused_before_they_take_memory() {
    let one = json!({"path": "args.a", "op": "regex", "value": "x{500}"});
    let many: Vec<Value> = (0..1001).map(|_| one.clone()).collect();
    let file = json!({"version": "1", "default": "allow", "tools": {"t": {"deny_if": many}}});
    let flaw = read_rules(&file.to_string(), Syntax::Json).unwrap_err();
    assert!(flaw.message.contains("more than 1000 patterns"), "{flaw}");
}

#[test]
fn very_long_texts_are_judged_soon() {
    let rules = rules(json!({"version": "1", "default": "allow", "tools": {"t": {"deny_if": [
        {"args.code": {"contains": "forbidden"}}, {"args.code": {"regex": "(?i)secret[0-9]{3}$"}},
    ]}}}));
    let long = "forbidde".repeat(1 << 18);
    assert!(!is_denied(&rules, "t", &json!({"code": long}).to_string()));
    assert!(is_denied(&rules, "t", &json!({"code": format!("{long}forbidden")}).to_string()));
}

#[test]
fn a_file_of_very_many_keys_is_read_soon() {
    let tools: serde_json::Map<String, Value> = (0..9000)
        .map(|number| (format!("tool_{number}"), json!({"limits": [{"window": "day", "max": number}]})))
        .collect();
    let file = json!({"version": "1", "default": "deny", "tools": tools}).to_string();
    assert!(read_rules(&file, Syntax::Json).is_ok());
    let keys: String = (0..60_000).map(|number| format!("\"{number}\":1,")).collect();
    let flaw = read_rules(&format!("{{{keys}\"0\":2}}"), Syntax::Json).unwrap_err();
    assert!(flaw.message.contains("second time"), "{flaw}");
}

#[test]
fn an_amount_that_would_lower_a_counter_is_denied() {
    let rules = rules(json!({"version": "1", "default": "allow", "tools": {"t": {
        "limits": [{"counter": "spent", "window": "day", "max": 10, "increment_from": "args.n"}]}}}));
    for odd in ["-1", "-1e-300", r#""1""#, "null", "[1]", "1e999999999"] {
        assert!(is_denied(&rules, "t", &format!(r#"{{"n": {odd}}}"#)), "{odd}");
    }
    assert!(is_denied(&rules, "t", "{}"), "absent");
    assert!(!is_denied(&rules, "t", r#"{"n": -0}"#) && !is_denied(&rules, "t", r#"{"n": 1e1}"#));
}

#[test]
fn a_denial_comes_before_a_question_to_a_human() {
    let rules = rules(json!({"version": "1", "default": "allow", "tools": {"t": {
        "require_approval": true, "deny_if": {"args.x": {"eq": 1}}}},
        "all_tools": {"deny_if": {"args.y": {"eq": 1}}}}));
    assert!(is_denied(&rules, "t", r#"{"x": 1}"#) && is_denied(&rules, "t", r#"{"y": 1}"#));
    let Judgement::Allowed { approval, .. } = rules.judge(&["t"], &json!({})) else { panic!() };
    assert!(approval.is_some());
}

#[test]
fn a_value_that_cannot_be_compared_asks_a_human() {
    let file = json!({"version": "1", "default": "allow", "tools": {"pay": {
        "require_approval": [{"path": "args.amount", "op": "gt", "value": 100}]}}});
    let rules = read_rules(&file.to_string(), Syntax::Json).unwrap();
    let asks = |arguments: Value| {
        matches!(rules.judge(&["pay"], &arguments), Judgement::Allowed { approval: Some(_), .. })
    };
    assert!(asks(json!({"amount": 101})) && !asks(json!({"amount": 100})));
    for unfit in [json!("101"), json!(null), json!([101]), json!(true)] {
        assert!(asks(json!({"amount": unfit})), "{unfit}");
    }
}

#[test]
fn a_file_of_too_many_tools_or_hidden_names_is_refused() {
    let names: Vec<String> = (0..=10_000).map(|number| format!("t{number}")).collect();
    let tools: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
    for file in [
        json!({"version": "1", "default": "deny", "tools": tools}),
        json!({"version": "1", "default": "deny", "hide": names}),
    ] {
        let flaw = read_rules(&file.to_string(), Syntax::Json).unwrap_err();
        assert!(flaw.message.contains("more than 10000"), "{flaw}");
    }
}
