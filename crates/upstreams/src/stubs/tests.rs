//! Signatures and declarations of definitions, ordinary and hostile.

use serde_json::json;

use super::*;
use crate::catalogue::Catalogue;
use crate::shape::Shape;

fn catalogue(definition: Value) -> Catalogue {
    let mut catalogue = Catalogue::default();
    let Value::Object(definition) = definition else { panic!() };
    catalogue.list(vec![definition]);
    catalogue
}

fn signatures(definition: Value) -> (String, String) {
    let catalogue = catalogue(definition);
    let tool = &catalogue.tools[0];
    let of = |dialect| signature("git-hub", tool, &tool.parsed(), dialect);
    (of(Dialect::Python), of(Dialect::TypeScript))
}

#[test]
fn a_signature_has_required_parameters_first_and_defaults() {
    let schema = json!({"type": "object", "required": ["repo"], "properties": {
        "page": {"type": "integer", "default": 1}, "repo": {"type": "string"},
        "state": {"enum": ["open", "closed"]}, "labels": {"type": "array", "items": {"type": "string"}},
        "since": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "x-odd": {"type": "boolean"}}});
    let (python, typescript) = signatures(json!({"name": "list-issues", "inputSchema": schema}));
    assert_eq!(
        python,
        "git_hub.list_issues(repo: str, page: int = 1, state: Literal[\"open\", \"closed\"] = ..., \
         labels: list[str] = ..., since: str | None = ..., **{\"x-odd\": bool}) -> Any"
    );
    assert_eq!(
        typescript,
        "git_hub.list_issues(args: {repo: string, page?: number, state?: \"open\" | \"closed\", labels?: Array<string>, \
         since?: string | null, \"x-odd\"?: boolean}): Promise<unknown>"
    );
}

#[test]
fn results_come_from_the_schema_or_from_what_was_seen() {
    let output = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "integer"}}});
    let (python, _) = signatures(json!({"name": "a", "outputSchema": output}));
    assert_eq!(python, "git_hub.a() -> {n?: int}");
    let mut learned = catalogue(json!({"name": "a"}));
    let digest = learned.tools[0].facts.digest.clone();
    assert!(learned.learn("a", &digest, &Shape::of(&json!({"id": 1})), 3));
    let tool = &learned.tools[0];
    assert_eq!(signature("s", tool, &tool.parsed(), Dialect::Python), "s.a() -> {id: int}  # seen 3x");
}

#[test]
fn hostile_schemas_stay_small() {
    let many: serde_json::Map<String, Value> =
        (0..5000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let recursive = json!({"$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}, "u": {"$ref": "#/$defs/T"}}}},
        "type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}});
    for schema in [json!({"properties": many}), recursive, json!(7), json!({"properties": 3, "required": {}})]
    {
        let (python, typescript) = signatures(json!({"name": "a", "inputSchema": schema}));
        assert!(python.chars().count() <= 501 && typescript.chars().count() <= 501);
    }
}

#[test]
fn declarations_cannot_be_broken_out_of() {
    let evil = "x */ evil() /* \"\"\" evil() \"\"\" \\";
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "description": evil}, "b c": {}}});
    let catalogue = catalogue(json!({"name": "t", "description": evil, "inputSchema": schema}));
    let python = declarations("s", &catalogue, Dialect::Python);
    assert_eq!(python.matches("\"\"\"").count(), 2, "{python}");
    assert!(python.contains("def t(*, a: str = ..., **more: Any) -> Any:"), "{python}");
    let typescript = declarations("s", &catalogue, Dialect::TypeScript);
    assert_eq!(typescript.matches("*/").count(), 1, "{typescript}");
    assert!(
        typescript.contains("function t(args?: {a?: string, \"b c\"?: unknown}): Promise<unknown>;"),
        "{typescript}"
    );
}
