//! Checks the numbers in a tool's arguments against the bounds in its published schema, so that no tool can
//! accept what its schema excludes.
//!
//! Limits of runs and sandboxes are the exception: `policy::judge` checks and clamps them.

use std::sync::OnceLock;

use policy::Policy;
use rmcp::model::JsonObject;
use serde_json::{Number, Value};

use super::{Offer, TOOLS, ToolEntry};
use crate::arguments::{Refusal, refusal};

/// The arguments that `policy::judge` checks.
const JUDGED: [(&str, &str); 3] = [("run", "timeout_ms"), ("run", "limits"), ("sandbox_open", "limits")];

/// A bound of a schema: its keyword, whether a value keeps it, and its words.
type Bound = (&'static str, fn(f64, f64) -> bool, &'static str);

const BOUNDS: [Bound; 4] = [
    ("minimum", |value, bound| value >= bound, "at least"),
    ("exclusiveMinimum", |value, bound| value > bound, "above"),
    ("maximum", |value, bound| value <= bound, "at most"),
    ("exclusiveMaximum", |value, bound| value < bound, "below"),
];

/// Refuses a number outside its bounds. A value of another type is left to the tool.
pub(super) fn check(entry: &ToolEntry, given: &JsonObject) -> Result<(), Refusal> {
    let properties = schema(entry).and_then(|schema| schema.get("properties")?.as_object());
    let Some(properties) = properties else { return Ok(()) };
    for (name, value) in given {
        let (Value::Number(value), Some(property)) = (value, properties.get(name)) else { continue };
        if !JUDGED.contains(&(entry.name, name)) {
            within(name, property, value)?;
        }
    }
    Ok(())
}

fn within(name: &str, property: &Value, value: &Number) -> Result<(), Refusal> {
    let Some(number) = value.as_f64() else { return Ok(()) };
    for (keyword, keeps, words) in BOUNDS {
        let Some(bound) = property.get(keyword).and_then(Value::as_f64) else { continue };
        if !keeps(number, bound) {
            let message = format!("`{name}` must be {words} {bound}, not {value}");
            return Err(refusal(
                message,
                format!("give {name} {words} {bound}, or leave it out if it is optional"),
            ));
        }
    }
    Ok(())
}

/// The schema of a tool's arguments. Its bounds depend neither on the languages nor on the policy.
fn schema(entry: &ToolEntry) -> Option<&'static JsonObject> {
    static SCHEMAS: OnceLock<Vec<(&'static str, JsonObject)>> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(|| {
        let policy = Policy::built_in(1);
        let offer = Offer::bare(&[], &policy);
        TOOLS.iter().map(|entry| (entry.name, (entry.input)(&offer))).collect()
    });
    schemas.iter().find(|(name, _)| *name == entry.name).map(|(_, schema)| schema)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Every numeric property at the top of a schema, with a value outside and one at each bound.
    fn probes(entry: &ToolEntry) -> Vec<(String, f64, bool)> {
        let mut probes = Vec::new();
        for (name, property) in schema(entry).unwrap()["properties"].as_object().unwrap() {
            let kind = property["type"].as_str().unwrap();
            if ["integer", "number"].contains(&kind) {
                let bound = property.get("minimum").or(property.get("exclusiveMinimum"));
                let least = bound.and_then(Value::as_f64);
                let least = least.unwrap_or_else(|| panic!("{}.{name} has no least value", entry.name));
                probes.extend([(name.clone(), least - 1.0, false), (name.clone(), least + 1.0, true)]);
                if let Some(most) = property.get("maximum").and_then(Value::as_f64) {
                    probes.extend([(name.clone(), most + 1.0, false), (name.clone(), most, true)]);
                }
            }
        }
        probes
    }

    #[test]
    fn every_number_outside_its_bounds_is_refused_by_name() {
        let mut count = 0;
        for entry in TOOLS {
            for (name, value, is_fine) in probes(entry) {
                if JUDGED.contains(&(entry.name, &name)) {
                    continue;
                }
                count += 1;
                let given = JsonObject::from_iter([(name.clone(), json!(value))]);
                let checked = entry.arguments(given).map(drop);
                assert_eq!(checked.is_ok(), is_fine, "{}.{name} {value}", entry.name);
                if let Err(error) = checked {
                    assert_eq!(error.code, "bad_arguments");
                    assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
                }
            }
        }
        assert!(count >= 8, "{count} probes");
    }

    #[test]
    fn what_policy_judges_is_published() {
        for (tool, name) in JUDGED {
            let entry = super::super::find(tool).unwrap();
            assert!(entry.properties.contains(&name), "{tool}.{name}");
        }
    }
}
