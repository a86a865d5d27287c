//! Reads a JSON object in which no member occurs twice, at any depth.
//!
//! Parsers disagree about which of two members counts (RFC 8259, section 4). A token whose issuer and whose resource
//! server read different claims could be signed as one thing and used as another.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The key of the object as which serde_json presents a number.
const NUMBER_KEY: &str = "$serde_json::private::Number";

/// The object in these bytes; `None` if they hold anything else, or a member occurs twice.
pub(super) fn read(bytes: &[u8]) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Builds a value, and fails at the second member of the same name.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated members")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(Self)? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == NUMBER_KEY && map.is_empty() {
                let text: String = members.next_value()?;
                let number = text.parse::<Number>().map_err(A::Error::custom)?;
                return Ok(Value::Number(number));
            }
            let value = members.next_value_seed(Self)?;
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a member occurs twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_with_all_kinds_of_values() {
        let read = read(br#"{"a":1,"b":[true,null,-2,1.5,"x"],"c":{"d":12345678901234567890123}}"#).unwrap();
        assert_eq!(read["a"].as_i64(), Some(1));
        assert_eq!(read["b"].as_array().unwrap().len(), 5);
        assert_eq!(read["b"][2].as_i64(), Some(-2));
        assert!(read["c"]["d"].is_number());
    }

    #[test]
    fn repeated_members_and_anything_but_an_object_are_refused() {
        for wrong in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":[{"b":1,"b":2}]}"#,
            "[]",
            "1",
            "null",
            "",
            r#"{"a":1} x"#,
            r#"{"a":1}{"a":1}"#,
        ] {
            assert_eq!(read(wrong.as_bytes()), None, "{wrong}");
        }
        let deep = format!("{}{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
        assert_eq!(read(deep.as_bytes()), None, "nested deeply");
    }
}
