//! Files as trees: what is read, and what is refused where.

use super::*;

fn flaw(text: &str, syntax: Syntax) -> Flaw {
    read(text, syntax).expect_err(text)
}

fn at(flaw: &Flaw) -> (usize, usize) {
    (flaw.at.line, flaw.at.column)
}

/// The tree without positions, as text.
fn shape(node: &Node) -> String {
    match &node.value {
        NodeValue::Null => "null".to_owned(),
        NodeValue::Bool(truth) => truth.to_string(),
        NodeValue::Number(number) => number.to_string(),
        NodeValue::Text(text) => format!("{text:?}"),
        NodeValue::List(list) => format!("[{}]", list.iter().map(shape).collect::<Vec<_>>().join(",")),
        NodeValue::Map(map) => {
            let entry = |entry: &Entry| format!("{:?}:{}", entry.key, shape(&entry.value));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn json_and_yaml_give_the_same_tree() {
    let json = r#"{"a": [1, -2.50, "x\n\u00e9\ud83d\ude00", true, null], "b": {}, "c": []}"#;
    let yaml = "a:\n  - 1\n  - -2.50\n  - \"x\\n\u{e9}\u{1f600}\"\n  - true\n  - ~\nb: {}\nc: []\n";
    let expected = "{\"a\":[1,-2.5,\"x\\né😀\",true,null],\"b\":{},\"c\":[]}";
    assert_eq!(shape(&read(json, Syntax::Json).unwrap()), expected);
    assert_eq!(shape(&read(yaml, Syntax::Yaml).unwrap()), expected);
    assert_eq!(shape(&read(&json.replace(' ', "\t"), Syntax::Json).unwrap()), expected);
}

#[test]
fn a_key_that_occurs_twice_is_refused_where_it_is() {
    let json = flaw("{\"a\": 1,\n \"b\": {\"x\": 1, \"x\": 2}}", Syntax::Json);
    assert_eq!(at(&json), (2, 16));
    assert!(json.message.contains("`x` is here a second time"), "{json}");
    // The escape is the same key.
    assert_eq!(at(&flaw("{\"a\": 1, \"\\u0061\": 2}", Syntax::Json)), (1, 10));
    let yaml = flaw("a: 1\nb: 2\na: 3\n", Syntax::Yaml);
    assert_eq!(at(&yaml), (3, 1));
    assert!(yaml.message.contains("line 1"), "{yaml}");
    assert_eq!(at(&flaw("a: 1\n\"a\": 2\n", Syntax::Yaml)), (2, 1));
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    for (text, place) in [
        ("", (1, 1)),
        ("{", (1, 2)),
        ("{\"a\": 1,}", (1, 9)),
        ("[1 2]", (1, 4)),
        ("{a: 1}", (1, 2)),
        ("{'a': 1}", (1, 2)),
        ("{\"a\": 01}", (1, 7)),
        ("{\"a\": 1.}", (1, 7)),
        ("{\"a\": +1}", (1, 7)),
        ("{\"a\": NaN}", (1, 7)),
        ("{\"a\": \"\\ud800\"}", (1, 8)),
        ("{\"a\": \"\\x\"}", (1, 8)),
        ("{\"a\": \"b\nc\"}", (1, 9)),
        ("{} {}", (1, 4)),
        ("// comment\n{}", (1, 1)),
        ("{\"a\": 123456789012345678901234567890123456789012}", (1, 7)),
    ] {
        assert_eq!(at(&flaw(text, Syntax::Json)), place, "{text:?}: {}", flaw(text, Syntax::Json));
    }
}

#[test]
fn what_a_policy_does_not_need_of_yaml_is_refused() {
    for text in [
        "a: !!str 1",
        "a: !include /etc/passwd",
        "<<: {a: 1}",
        "a: 1\n---\nb: 2",
        "a: 0x1F",
        "a: .inf",
        "? [a]\n: b",
        "a: *nothing",
        "a: [1",
    ] {
        flaw(text, Syntax::Yaml);
    }
    assert_eq!(
        shape(&read("a: yes\nb: 0x\nc: 2026-11-16\nd: '1'", Syntax::Yaml).unwrap()),
        "{\"a\":\"yes\",\"b\":\"0x\",\"c\":\"2026-11-16\",\"d\":\"1\"}",
        "texts"
    );
}

#[test]
fn an_alias_is_what_it_names_and_aliases_that_multiply_are_refused() {
    let shared = "a: &rule {x: [1, 2]}\nb: *rule\n";
    assert_eq!(shape(&read(shared, Syntax::Yaml).unwrap()), "{\"a\":{\"x\":[1,2]},\"b\":{\"x\":[1,2]}}");
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", "));
    }
    assert!(flaw(&bomb, Syntax::Yaml).message.contains("more than"), "{}", flaw(&bomb, Syntax::Yaml));
    let mut deep = String::from("a0: &a0 [x]\n");
    for level in 1..40 {
        deep += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert!(flaw(&deep, Syntax::Yaml).message.contains("nested"));
    flaw("a: &a [*a]", Syntax::Yaml);
}

#[test]
fn depth_and_size_are_bounded() {
    let deep = "[".repeat(100_000);
    assert!(flaw(&deep, Syntax::Json).message.contains("nested"));
    flaw(&deep, Syntax::Yaml);
    let wide = format!("[{}1]", "1,".repeat(200_000));
    assert!(flaw(&wide, Syntax::Json).message.contains("more than"));
    let large = " ".repeat(FILE_BYTES_MAX + 1);
    assert!(flaw(&large, Syntax::Json).message.contains("larger"));
    let bom = "\u{feff}{\"a\": 1}";
    assert!(read(bom, Syntax::Json).is_ok());
}

#[test]
fn a_file_that_is_closed_properly_and_too_deep_is_refused_in_both_syntaxes() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for syntax in [Syntax::Json, Syntax::Yaml] {
        assert!(read(&nested(DEPTH_MAX), syntax).is_ok(), "{syntax:?}");
        assert!(flaw(&nested(DEPTH_MAX + 1), syntax).message.contains("nested"), "{syntax:?}");
    }
}
