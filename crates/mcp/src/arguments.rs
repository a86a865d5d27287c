//! Strict parsing of a tool's arguments.
//!
//! Every tool takes its arguments through [`Arguments`]. A property that the schema does not define is
//! refused by name, and nothing runs. The remedy says where a misplaced property belongs. A number or a
//! boolean may be written as a string, because models write them so.

use engine::{RunError, SandboxAddress};
use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use crate::suggest::nearest;
use crate::tools::SANDBOX_ID;
use crate::tools::run::LIMITS;

/// The error code of every refusal of arguments.
pub(crate) const BAD_ARGUMENTS: &str = "bad_arguments";
/// The error of a refused argument. It is boxed because it is large and rare.
pub(crate) type Refusal = Box<RunError>;

const NAME_CHARS_MAX: usize = 64;

/// The properties of one object that have not been taken yet.
pub(crate) struct Arguments {
    /// Position of the object, as a prefix for messages: empty, or `limits.`.
    place: String,
    left: JsonObject,
}

impl Arguments {
    /// Refuses unknown properties.
    pub(crate) fn new(place: &str, known: &[&str], given: JsonObject) -> Result<Self, Refusal> {
        if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
            let name: String = name.chars().take(NAME_CHARS_MAX).collect();
            let message = format!("`{place}{}` is not a property here", name.escape_debug());
            let remedy = remedy(place, &name, known);
            return Err(refusal(message, remedy));
        }
        Ok(Self { place: place.to_owned(), left: given })
    }

    /// Takes a required text.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.ok_or_else(|| {
            let message = format!("`{}{name}` is missing", self.place);
            refusal(message, format!("give {name} as a string"))
        })
    }

    /// Takes a required sandbox, with or without a context.
    pub(crate) fn required_sandbox(&mut self) -> Result<SandboxAddress, Refusal> {
        Ok(SandboxAddress::parse(&self.required_text(SANDBOX_ID)?)?)
    }

    /// Takes a sandbox, with or without a context.
    pub(crate) fn sandbox(&mut self) -> Result<Option<SandboxAddress>, Refusal> {
        Ok(self.text(SANDBOX_ID)?.map(|text| SandboxAddress::parse(&text)).transpose()?)
    }

    /// Takes a text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.take(name, "a string", |value| match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        })
    }

    /// Takes a boolean. `"true"` counts as one.
    pub(crate) fn truth(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.take(name, "true or false", |value| match &value {
            Value::Bool(truth) => Ok(*truth),
            Value::String(text) => text.trim().to_ascii_lowercase().parse().map_err(|_| value),
            _ => Err(value),
        })
    }

    /// Takes a non-negative whole number. `3.0` and `"3"` count as one.
    pub(crate) fn whole(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        self.take(name, "a whole number above zero", |value| match (value.as_u64(), as_number(&value)) {
            (Some(number), _) => Ok(number),
            (None, Some(number)) if number >= 0.0 && number.fract() == 0.0 => Ok(number as u64),
            _ => Err(value),
        })
    }

    /// Takes a number. `"0.5"` counts as one.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, Refusal> {
        self.take(name, "a number above zero", |value| as_number(&value).ok_or(value))
    }

    /// Takes a list of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, Refusal> {
        let list = self.list(name)?;
        let place = &self.place;
        let text = |(index, value)| match value {
            Value::String(text) => Ok(text),
            other => Err(ill_typed(&format!("{place}{name}[{index}]"), "a string", &other)),
        };
        list.into_iter().enumerate().map(text).collect()
    }

    /// Takes a list of objects, each with these properties.
    pub(crate) fn objects(&mut self, name: &str, known: &[&str]) -> Result<Vec<Arguments>, Refusal> {
        let list = self.list(name)?;
        let place = &self.place;
        let object = |(index, value)| match value {
            Value::Object(given) => Arguments::new(&format!("{place}{name}[{index}]."), known, given),
            other => Err(ill_typed(&format!("{place}{name}[{index}]"), "an object", &other)),
        };
        list.into_iter().enumerate().map(object).collect()
    }

    /// Takes an object with these properties; empty when absent.
    pub(crate) fn object(&mut self, name: &str, known: &[&str]) -> Result<Arguments, Refusal> {
        let given = self.open_object(name)?;
        Arguments::new(&format!("{}{name}.", self.place), known, given)
    }

    /// Takes an object with any properties; empty when absent.
    pub(crate) fn open_object(&mut self, name: &str) -> Result<Map<String, Value>, Refusal> {
        let object = self.take(name, "an object", |value| match value {
            Value::Object(object) => Ok(object),
            other => Err(other),
        })?;
        Ok(object.unwrap_or_default())
    }

    /// The position of this object for messages, without the trailing dot.
    pub(crate) fn place(&self) -> &str {
        self.place.trim_end_matches('.')
    }

    fn list(&mut self, name: &str) -> Result<Vec<Value>, Refusal> {
        let list = self.take(name, "an array", |value| match value {
            Value::Array(list) => Ok(list),
            other => Err(other),
        })?;
        Ok(list.unwrap_or_default())
    }

    fn take<T>(
        &mut self,
        name: &str,
        wanted: &str,
        convert: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Result<Option<T>, Refusal> {
        // Clients with strict schemas send every optional property, as null.
        let Some(value) = self.left.remove(name).filter(|value| !value.is_null()) else { return Ok(None) };
        let place = &self.place;
        convert(value).map(Some).map_err(|value| ill_typed(&format!("{place}{name}"), wanted, &value))
    }
}

/// What to do about a property that is not known at this place.
fn remedy(place: &str, name: &str, known: &[&str]) -> String {
    const INSIDE: &str = "limits.";
    const BESIDE: &str = "timeout_ms";
    let only = match known {
        [] => "give no arguments".to_owned(),
        _ => format!("use only {}", known.join(", ")),
    };
    if place.is_empty() && known.contains(&INSIDE.trim_end_matches('.')) && LIMITS.contains(&name) {
        return format!("it belongs inside `limits`: {{\"limits\": {{\"{name}\": ...}}}}");
    }
    if place == INSIDE && name == BESIDE && known.contains(&"output_kb") {
        return "it belongs beside `limits`, not inside: {\"timeout_ms\": ...}".to_owned();
    }
    if let Some((_, advice)) = ADVICE.iter().find(|(other, _)| *other == name) {
        return format!("{advice}; {only}");
    }
    let other_word = OTHER_WORDS.iter().find(|(other, meant)| *other == name && known.contains(meant));
    match other_word.map(|(_, meant)| *meant).or_else(|| nearest(name, known.iter().copied())) {
        Some(meant) => format!("did you mean `{meant}`? {only}"),
        None => only,
    }
}

/// Words of other tools, and the arguments that they mean here.
const OTHER_WORDS: [(&str, &str); 26] = [
    ("source", "code"),
    ("script", "code"),
    ("command", "code"),
    ("cmd", "code"),
    ("program", "code"),
    ("snippet", "code"),
    ("input", "stdin"),
    ("files", "inputs"),
    ("attachments", "inputs"),
    ("kwargs", "variables"),
    ("session_id", "sandbox_id"),
    ("session", "sandbox_id"),
    ("context_id", "sandbox_id"),
    ("id", "sandbox_id"),
    ("content", "text"),
    ("contents", "text"),
    ("data", "text"),
    ("name", "path"),
    ("filename", "path"),
    ("file", "path"),
    ("timeout_seconds", "timeout_ms"),
    ("timeout_s", "timeout_ms"),
    ("requirements", "packages"),
    ("dependencies", "packages"),
    ("libraries", "packages"),
    ("pip", "packages"),
];

/// What to do about arguments that have no counterpart.
const ADVICE: [(&str, &str); 4] = [
    ("env", ENVIRONMENT_ADVICE),
    ("environment", ENVIRONMENT_ADVICE),
    ("env_vars", ENVIRONMENT_ADVICE),
    ("envs", ENVIRONMENT_ADVICE),
];
const ENVIRONMENT_ADVICE: &str = "give environment variables as variables: {\"$NAME\": \"value\"}";

/// A number, or a text that is one.
fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse::<f64>().ok().filter(|number| number.is_finite()),
        other => other.as_f64(),
    }
}

/// Builds a refusal from a message and a remedy.
pub(crate) fn refusal(message: String, remedy: impl Into<String>) -> Refusal {
    Box::new(RunError::new(BAD_ARGUMENTS, message).remedy(remedy))
}

fn ill_typed(place: &str, wanted: &str, found: &Value) -> Refusal {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) => return wrong(place, wanted, &number.to_string()),
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    wrong(place, wanted, found)
}

fn wrong(place: &str, wanted: &str, found: &str) -> Refusal {
    let message = format!("`{place}` must be {wanted}, not {found}");
    let form = match place {
        "inputs" => "write [{\"path\": \"data/in.csv\", \"text\": \"...\"}]",
        "variables" => "write {\"name\": value}",
        "args" => "write [\"first\", \"second\"]",
        "packages" => "write [\"pandas\", \"httpx>=0.27\"]",
        _ => "correct it, or leave it out if it is optional",
    };
    refusal(message, form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(given: Value) -> Result<Arguments, Refusal> {
        let Value::Object(given) = given else { panic!("an object") };
        Arguments::new("", &["a", "b"], given)
    }

    #[test]
    fn unknown_properties_are_named() {
        let error = arguments(json!({"c": 1})).err().unwrap();
        assert_eq!(error.code, BAD_ARGUMENTS);
        assert!(error.message.contains("`c`") && error.remedy.unwrap().contains("a, b"));
    }

    #[test]
    fn a_property_at_the_wrong_place_is_told_where_it_belongs() {
        let refused = |place: &str, known: &[&str], name: &str| {
            let given = JsonObject::from_iter([(name.to_owned(), json!(1))]);
            Arguments::new(place, known, given).err().unwrap().remedy.unwrap()
        };
        let run = ["language", "code", "timeout_ms", "limits"];
        assert!(refused("", &run, "memory_mb").starts_with("it belongs inside `limits`"));
        assert!(refused("limits.", &LIMITS, "timeout_ms").starts_with("it belongs beside `limits`"));
        assert!(refused("", &run, "timeout").starts_with("did you mean `timeout_ms`?"));
        assert!(refused("limits.", &LIMITS, "memory").starts_with("did you mean `memory_mb`?"));
        assert_eq!(refused("", &["sandbox_id"], "memory_mb"), "use only sandbox_id");
    }

    #[test]
    fn numbers_and_booleans_may_be_texts() {
        let whole = |value: Value| arguments(json!({"a": value})).unwrap().whole("a");
        let number = |value: Value| arguments(json!({"a": value})).unwrap().number("a");
        let truth = |value: Value| arguments(json!({"a": value})).unwrap().truth("a");
        assert_eq!(
            (whole(json!("0")), whole(json!(" 20 ")), whole(json!(3.0))),
            (Ok(Some(0)), Ok(Some(20)), Ok(Some(3)))
        );
        assert_eq!((number(json!("0.5")), number(json!(2))), (Ok(Some(0.5)), Ok(Some(2.0))));
        assert_eq!((truth(json!("True")), truth(json!("false"))), (Ok(Some(true)), Ok(Some(false))));
        for bad in [
            json!(-1),
            json!(1.5),
            json!(true),
            json!("x"),
            json!(""),
            json!("-1"),
            json!("1.5"),
            json!("inf"),
        ] {
            assert!(whole(bad.clone()).is_err(), "{bad}");
        }
        assert!(number(json!("NaN")).is_err() && number(json!("5 MB")).is_err());
        assert!(truth(json!("yes")).is_err() && truth(json!(1)).is_err());
        let mut given = arguments(json!({"a": 5, "b": null})).unwrap();
        assert!(given.text("a").unwrap_err().message.contains("not 5"));
        assert_eq!(given.text("b"), Ok(None), "null is absent");
    }

    #[test]
    fn places_inside_are_named() {
        let error = arguments(json!({"a": ["x", 1]})).unwrap().texts("a").unwrap_err();
        assert!(error.message.contains("`a[1]`"), "{}", error.message);
        let error = arguments(json!({"a": [{"p": 1}]})).unwrap().objects("a", &["q"]).err().unwrap();
        assert!(error.message.contains("`a[0].p`"), "{}", error.message);
    }
}
