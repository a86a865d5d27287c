//! What becomes of an answer: checked, stripped of what only the protocol needs, learned from.

use serde_json::{Map, Value};

use crate::client::Answer;
use crate::host::{ToolAnswer, ToolError, ToolErrorCode};
use crate::shape::Shape;

/// The largest text that is read as JSON to learn its shape.
const LEARNED_BYTES_MAX: usize = 256 << 10;

/// What is looked at to learn a shape: the structured content, or one text that is JSON.
pub(crate) fn learnable(result: &Map<String, Value>) -> Option<Shape> {
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    if let Some(value) = result.get("structuredContent") {
        return Some(Shape::of(value));
    }
    let [only] = result.get("content")?.as_array()?.as_slice() else { return None };
    let text = only.get("text")?.as_str().filter(|text| text.len() <= LEARNED_BYTES_MAX)?;
    if !text.trim_start().starts_with(['{', '[']) {
        return Some(Shape::Text);
    }
    let value: Option<Value> = serde_json::from_str(text).ok();
    Some(value.map_or(Shape::Text, |value| Shape::of(&value)))
}

/// Refuses results that are no results, and takes out what only the protocol needs.
pub(crate) fn finished(answer: Answer, labels: &[String]) -> Result<ToolAnswer, ToolError> {
    let Answer { mut result, bytes } = answer;
    match result.remove("resultType") {
        None => {}
        Some(Value::String(kind)) if kind == "complete" => {}
        Some(Value::String(kind)) if kind == "input_required" => {
            let message = "the tool asks its user a question, which a program cannot answer";
            return Err(ToolError::new(ToolErrorCode::InputRequired, message).after_sending());
        }
        Some(_) => {
            let message = "the tool answered with a kind of result that is not supported";
            return Err(ToolError::new(ToolErrorCode::ServerError, message).after_sending());
        }
    }
    result.remove("_meta");
    Ok(ToolAnswer { result, bytes, labels: labels.to_vec() })
}
