//! Holds JSON against a schema of the OpenAPI document. It knows the keywords that the document uses, and fails on others.

use serde_json::Value;

/// Keywords that say nothing about validity.
const WORDS: [&str; 2] = ["description", "default"];

/// Everything that is wrong with a value, with its place.
pub fn flaws(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, ("", value), &mut found);
    found
}

fn check(document: &Value, schema: &Value, (place, value): (&str, &Value), found: &mut Vec<String>) {
    for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
        let is_well = match keyword.as_str() {
            "$ref" => {
                let pointer =
                    wanted.as_str().and_then(|text| text.strip_prefix('#')).expect("a local reference");
                let target = document.pointer(pointer).expect("a reference leads somewhere");
                check(document, target, (place, value), found);
                true
            }
            "type" => is_of_type(wanted, value),
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
            "maxLength" => {
                value.as_str().is_none_or(|text| text.chars().count() as u64 <= wanted.as_u64().unwrap())
            }
            "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= wanted.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|list| list.len() as u64 <= wanted.as_u64().unwrap()),
            "required" => value.as_object().is_none_or(|fields| {
                wanted.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
            }),
            "additionalProperties" => {
                assert_eq!(wanted, &Value::Bool(false));
                let known = schema["properties"].as_object();
                value.as_object().is_none_or(|fields| {
                    fields.keys().all(|name| known.is_some_and(|known| known.contains_key(name)))
                })
            }
            "properties" => {
                for (name, schema) in wanted.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        check(document, schema, (&format!("{place}/{name}"), field), found);
                    }
                }
                true
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, wanted, (&format!("{place}/{number}"), item), found);
                }
                true
            }
            "anyOf" => wanted.as_array().unwrap().iter().any(|one| flaws(document, one, value).is_empty()),
            other => {
                assert!(WORDS.contains(&other), "a keyword that this check does not know: {other}");
                true
            }
        };
        if !is_well {
            found.push(format!("{place}: {keyword} {wanted} is not true of {value}"));
        }
    }
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    let names = wanted.as_array().cloned().unwrap_or_else(|| vec![wanted.clone()]);
    names.iter().any(|name| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("no such type: {other}"),
    })
}
