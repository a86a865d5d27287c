//! Tests of the table: routes, document and schemas agree.

use std::collections::BTreeSet;

use serde_json::Value;

use super::table::{ROUTES, Verb};
use super::{V1, openapi, schema};

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(target)) => {
                found.insert(target.clone());
            }
            _ => references(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_documented_and_every_reference_leads_somewhere() {
    let document = openapi::document();
    for route in &ROUTES {
        let path = format!("{V1}{}", route.path);
        let told = &document["paths"][&path][route.verb.name()];
        assert_eq!(told["operationId"], route.name, "{path}");
        assert!(told["responses"][route.answer.0.to_string()].is_object(), "{path}");
        assert_eq!(route.verb == Verb::Post, told["requestBody"].is_object(), "{path}");
    }
    let documented: usize =
        document["paths"].as_object().unwrap().values().map(|all| all.as_object().unwrap().len()).sum();
    assert_eq!(documented, ROUTES.len());
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    let known: BTreeSet<String> =
        schema::all().keys().map(|name| format!("#/components/schemas/{name}")).collect();
    assert_eq!(found, &known & &found, "a reference to nothing");
    assert_eq!(known, &known & &found, "a schema that nothing uses");
}

#[test]
fn names_of_operations_are_unique_and_every_route_needs_a_scope() {
    let names: BTreeSet<&str> = ROUTES.iter().map(|route| route.name).collect();
    assert_eq!(names.len(), ROUTES.len());
    for route in &ROUTES {
        assert!(!route.needs.is_empty(), "{}", route.name);
        assert!(route.path.matches('{').count() <= 1, "{}", route.path);
    }
}

#[test]
fn only_paths_beneath_the_prefix_are_the_admin_apis() {
    for own in ["/admin", "/admin/", "/admin/v1/keys", "/admin/v2", "/admin//x"] {
        assert!(super::is_path(own), "{own}");
    }
    for other in ["/", "/administrator", "/mcp", "/Admin", "/files/admin"] {
        assert!(!super::is_path(other), "{other}");
    }
}
