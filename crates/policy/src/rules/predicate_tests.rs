//! Predicates over arguments of every type.

use serde_json::json;

use super::*;
use crate::document::{Syntax, read};

fn predicate(text: &str) -> Predicate {
    let node = read(text, Syntax::Json).unwrap();
    read_list(&node).unwrap_or_else(|flaw| panic!("{text}: {flaw}")).remove(0).0
}

fn find(text: &str, arguments: Value) -> Finding {
    predicate(text).find(&arguments)
}

#[test]
fn both_spellings_are_the_same_predicate() {
    let triple = predicate(r#"{"path": "args.amount", "op": "gt", "value": 1}"#);
    let keyed = predicate(r#"{"args.amount": {"gt": 1}}"#);
    assert_eq!((triple.id().as_str(), keyed.id().as_str()), ("args.amount-gt", "args.amount-gt"));
    for (amount, finding) in [(2, Finding::Holds), (1, Finding::Fails)] {
        assert_eq!(triple.find(&json!({"amount": amount})), finding);
        assert_eq!(keyed.find(&json!({"amount": amount})), finding);
    }
}

#[test]
fn each_operator_holds_and_fails() {
    for (op, value, holds, fails) in [
        ("eq", json!("a"), json!("a"), json!("A")),
        ("neq", json!("a"), json!("b"), json!("a")),
        ("eq", json!(1), json!(1.0), json!(2)),
        ("eq", json!(true), json!(true), json!(false)),
        ("in", json!(["a", 1]), json!(1), json!("b")),
        ("not_in", json!(["a"]), json!("b"), json!("a")),
        ("lt", json!(5), json!(4.999), json!(5)),
        ("lte", json!(5), json!(5), json!(5.001)),
        ("gt", json!(5), json!(6), json!(5)),
        ("gte", json!(5), json!(5), json!(4)),
        ("regex", json!("^feat/[a-z]+$"), json!("feat/x"), json!("main")),
        ("contains", json!("b"), json!("abc"), json!("xyz")),
        ("contains", json!("b"), json!(["a", "b"]), json!(["a"])),
    ] {
        let text = json!({"path": "args.x", "op": op, "value": value}).to_string();
        assert_eq!(find(&text, json!({"x": holds})), Finding::Holds, "{text}");
        assert_eq!(find(&text, json!({"x": fails})), Finding::Fails, "{text}");
        assert_eq!(find(&text, json!({})), Finding::Absent, "{text}");
    }
}

#[test]
fn a_value_of_another_type_is_neither_true_nor_false() {
    for (op, value, unfit) in [
        ("eq", json!("5"), json!(5)),
        ("neq", json!("5"), json!(5)),
        ("eq", json!(5), json!("5")),
        ("gt", json!(5), json!("6")),
        ("gt", json!(5), json!(null)),
        ("lt", json!(5), json!([1])),
        ("in", json!(["a"]), json!(["a"])),
        ("not_in", json!(["a"]), json!({"a": 1})),
        ("regex", json!("a"), json!(["a"])),
        ("contains", json!("b"), json!(7)),
        ("contains", json!("b"), json!([["b"]])),
        ("exists", json!(true), json!(null)),
        ("exists", json!(false), json!(null)),
    ] {
        let text = json!({"path": "args.x", "op": op, "value": value}).to_string();
        assert_eq!(find(&text, json!({"x": unfit})), Finding::Unfit, "{text}");
    }
    let long: Value =
        serde_json::from_str(r#"{"x": 1111111111111111111111111111111111111111111.5}"#).unwrap();
    assert_eq!(find(r#"{"args.x": {"lt": 5}}"#, long), Finding::Unfit);
}

#[test]
fn paths_go_into_objects_and_lists() {
    let arguments = json!({"a": {"b": [{"c": "x"}]}, "n": null, "s": "text"});
    let finding =
        |path: &str| find(&json!({"path": path, "op": "eq", "value": "x"}).to_string(), arguments.clone());
    assert_eq!(finding("args.a.b.0.c"), Finding::Holds);
    assert_eq!(finding("args.a.b.1.c"), Finding::Absent);
    assert_eq!(finding("args.a.x"), Finding::Absent);
    for unfit in ["args.a.b.c", "args.s.c", "args.n.c", "args.a.b.-1.c"] {
        assert_eq!(finding(unfit), Finding::Unfit, "{unfit}");
    }
    assert_eq!(find(r#"{"path": "args.z", "op": "exists"}"#, arguments.clone()), Finding::Fails);
    assert_eq!(find(r#"{"path": "args.s", "op": "exists"}"#, arguments), Finding::Holds);
}

#[test]
fn numbers_compare_exactly() {
    let gt = r#"{"args.x": {"gt": 9007199254740992}}"#;
    for (number, finding) in [
        ("9007199254740993", Finding::Holds),
        ("9007199254740992", Finding::Fails),
        ("9007199254740992.0000000001", Finding::Holds),
        ("9.007199254740993e15", Finding::Holds),
        ("1e400", Finding::Holds),
        ("-1e400", Finding::Fails),
    ] {
        let arguments: Value = serde_json::from_str(&format!("{{\"x\": {number}}}")).unwrap();
        assert_eq!(find(gt, arguments), finding, "{number}");
    }
}

#[test]
fn names_are_compared_by_their_bytes() {
    let predicate = r#"{"args.x": {"eq": "é"}}"#;
    assert_eq!(find(predicate, json!({"x": "\u{e9}"})), Finding::Holds);
    assert_eq!(find(predicate, json!({"x": "e\u{301}"})), Finding::Fails, "another spelling is another text");
}

#[test]
fn predicates_that_mean_nothing_are_refused() {
    for (text, part) in [
        (r#"[{"path": "amount", "op": "gt", "value": 1}]"#, "must start with `args.`"),
        (r#"[{"path": "args.", "op": "gt", "value": 1}]"#, "empty step"),
        (r#"[{"path": "args.a", "op": "above", "value": 1}]"#, "not an operator"),
        (r#"[{"path": "args.a", "op": "gt", "value": "1"}]"#, "takes a number, not a text"),
        (r#"[{"path": "args.a", "op": "in", "value": "a"}]"#, "takes a list"),
        (r#"[{"path": "args.a", "op": "regex", "value": "("}]"#, "cannot be used"),
        (r#"[{"path": "args.a", "op": "regex", "value": "(a{1000}){1000}"}]"#, "cannot be used"),
        (r#"[{"path": "args.a", "op": "exists", "value": 1}]"#, "true or false"),
        (r#"[{"path": "args.a", "op": "eq", "value": {"a": 1}}]"#, "compares with"),
        (r#"[{"path": "args.a", "op": "eq"}]"#, "has no `value`"),
        (r#"[{"path": "args.a", "value": 1}]"#, "has no `op`"),
        (r#"[{"path": "args.a", "op": "eq", "value": 1, "if": 2}]"#, "not a field of a predicate"),
        (r#"{"args.a": 5}"#, "takes an object"),
        (r#"["args.a"]"#, "expected a predicate"),
        (r#""args.a""#, "expected a list of predicates"),
    ] {
        let flaw = read_list(&read(text, Syntax::Json).unwrap()).expect_err(text);
        assert!(flaw.message.contains(part), "{text}: {flaw}");
    }
}
