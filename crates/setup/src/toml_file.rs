//! Adds a server to a TOML file; comments and order are preserved.

use serde_json::{Map, Value, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{FormatError, Position};

/// The current entry of the server.
pub(crate) fn find(text: &str, path: [&str; 2]) -> Result<Option<Value>, FormatError> {
    let document = parse(text)?;
    let [container, name] = path;
    let Some(item) = document.get(container) else { return Ok(None) };
    let servers =
        item.as_table_like().ok_or_else(|| FormatError::NotAnObject { what: container.to_owned() })?;
    Ok(servers.get(name).map(as_json))
}

/// The text with the entry added, or with the old entry replaced.
pub(crate) fn put(text: &str, path: [&str; 2], entry: &Value) -> Result<String, FormatError> {
    let before = table_as_json(parse(text)?.as_table());
    let appended = append(text, path, entry);
    if verify(&before, &appended, path, entry).is_ok() {
        return Ok(appended);
    }
    // An entry already exists, or its container has a form that cannot be continued at the end of the file.
    let edited = edit(text, path, entry)?;
    verify(&before, &edited, path, entry)?;
    Ok(edited)
}

/// Adds a table at the end, so the rest of the file is unchanged.
fn append(text: &str, [container, name]: [&str; 2], entry: &Value) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut table = Table::new();
    fill(&mut table, entry);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { newline };
    let gap = if text.trim().is_empty() { "" } else { newline };
    let body = table.to_string().replace('\n', newline);
    format!("{text}{end}{gap}[{container}.{name}]{newline}{body}")
}

/// Changes the parsed document and writes it again, with its comments.
fn edit(text: &str, [container, name]: [&str; 2], entry: &Value) -> Result<String, FormatError> {
    let mut document = parse(text)?;
    let servers = document.entry(container).or_insert_with(|| Item::Table(Table::new()));
    let is_inline = servers.is_inline_table();
    let not_a_table = || FormatError::NotAnObject { what: container.to_owned() };
    let servers = servers.as_table_like_mut().ok_or_else(not_a_table)?;
    if is_inline {
        let mut inline = InlineTable::new();
        fill(&mut inline, entry);
        servers.insert(name, toml_edit::value(inline));
    } else {
        let mut table = Table::new();
        fill(&mut table, entry);
        // An existing table keeps its position and the comment above it.
        if let Some(old) = servers.get(name).and_then(Item::as_table) {
            *table.decor_mut() = old.decor().clone();
            old.position().into_iter().for_each(|position| table.set_position(position));
        }
        servers.insert(name, Item::Table(table));
    }
    with_line_ends(text, document.to_string())
}

/// The text without the entry.
pub(crate) fn remove(text: &str, [container, name]: [&str; 2]) -> Result<String, FormatError> {
    let mut document = parse(text)?;
    let mut expected = table_as_json(document.as_table());
    let servers = document.get_mut(container).and_then(Item::as_table_like_mut);
    if servers.and_then(|servers| servers.remove(name)).is_none() {
        return Ok(text.to_owned());
    }
    expected.get_mut(container).and_then(Value::as_object_mut).map(|servers| servers.remove(name));
    let edited = with_line_ends(text, document.to_string())?;
    let mut after = table_as_json(parse(&edited)?.as_table());
    // A table that existed only for its entries disappears with the last one.
    for value in [&mut expected, &mut after] {
        if let Some(root) = value.as_object_mut() {
            root.retain(|key, servers| key != container || *servers != json!({}));
        }
    }
    if after == expected { Ok(edited) } else { Err(FormatError::Unsure) }
}

fn with_line_ends(text: &str, edited: String) -> Result<String, FormatError> {
    // The document was written with LF line ends; a file with mixed line ends would not be preserved.
    let (all, long) = (text.matches('\n').count(), text.matches("\r\n").count());
    match long {
        0 => Ok(edited),
        _ if long == all => Ok(edited.replace("\r\n", "\n").replace('\n', "\r\n")),
        _ => Err(FormatError::Unsure),
    }
}

/// The text to add by hand.
pub(crate) fn fragment(path: [&str; 2], entry: &Value) -> String {
    put("", path, entry).unwrap_or_default().trim_end().to_owned()
}

fn parse(text: &str) -> Result<DocumentMut, FormatError> {
    text.parse::<DocumentMut>().map_err(|error| {
        let at = error.span().map(|span| Position::of(text, span.start));
        FormatError::Malformed { at, message: terminal::plain(error.message()) }
    })
}

/// Entries consist of texts and lists of texts; empty values are omitted.
fn fill(table: &mut dyn TableLike, entry: &Value) {
    for (key, value) in entry.as_object().into_iter().flatten() {
        match value {
            Value::String(text) => drop(table.insert(key, toml_edit::value(text))),
            Value::Array(list) => {
                let list: Array = list.iter().filter_map(Value::as_str).collect();
                table.insert(key, toml_edit::value(list));
            }
            _ => {}
        }
    }
}

fn verify(
    before: &Value,
    edited: &str,
    [container, name]: [&str; 2],
    entry: &Value,
) -> Result<(), FormatError> {
    let mut expected = before.clone();
    let servers = expected.as_object_mut().map(|root| root.entry(container).or_insert_with(|| json!({})));
    servers.and_then(Value::as_object_mut).map(|servers| servers.insert(name.to_owned(), entry.clone()));
    let after = parse(edited).map_err(|_| FormatError::Unsure)?;
    if table_as_json(after.as_table()) == expected { Ok(()) } else { Err(FormatError::Unsure) }
}

/// The whole file as JSON.
pub(crate) fn whole(text: &str) -> Result<Value, FormatError> {
    Ok(table_as_json(parse(text)?.as_table()))
}

fn table_as_json(table: &dyn TableLike) -> Value {
    Value::Object(table.iter().map(|(key, item)| (key.to_owned(), as_json(item))).collect::<Map<_, _>>())
}

fn as_json(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Table(table) => table_as_json(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table_as_json(table)).collect(),
        Item::Value(value) => value_as_json(value),
    }
}

fn value_as_json(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => json!(text.value()),
        toml_edit::Value::Integer(number) => json!(number.value()),
        toml_edit::Value::Float(number) => json!(number.value().to_string()),
        toml_edit::Value::Boolean(truth) => json!(truth.value()),
        toml_edit::Value::Datetime(time) => json!(time.value().to_string()),
        toml_edit::Value::Array(list) => list.iter().map(value_as_json).collect(),
        toml_edit::Value::InlineTable(table) => table_as_json(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: [&str; 2] = ["mcp_servers", "palisade"];

    #[test]
    fn mixed_line_ends_stay_as_they_are() {
        let text = "a = 1\r\nb = \"\"\"x\ny\"\"\"\n[t]\r\nc = 2";
        let edited = put(text, PATH, &json!({ "command": "x" })).unwrap();
        assert_eq!(edited, format!("{text}\r\n\r\n[mcp_servers.palisade]\r\ncommand = \"x\"\r\n"));
        let text = "a = 1\r\nmcp_servers = {}\n";
        assert_eq!(put(text, PATH, &json!({ "command": "x" })), Err(FormatError::Unsure));
    }

    #[test]
    fn an_entry_is_removed_and_the_rest_stays() {
        let text = "# mine\na = 1\r\n";
        assert_eq!(remove(text, PATH).unwrap(), text, "nothing to remove");
        let rest = "# mine\nmodel = \"x\"\n\n[mcp_servers.other] # keep\ncommand = \"x\"\n";
        let added = put(rest, PATH, &json!({ "command": "palisade" })).unwrap();
        assert_eq!(remove(&added, PATH).unwrap(), rest);
        let alone = put("a = 1\n", PATH, &json!({ "command": "palisade" })).unwrap();
        assert_eq!(remove(&alone, PATH).unwrap(), "a = 1\n");
        let inline = "mcp_servers = { palisade = { command = \"x\" }, other = {} }\n";
        assert_eq!(find(&remove(inline, PATH).unwrap(), ["mcp_servers", "other"]), Ok(Some(json!({}))));
    }

    #[test]
    fn a_replaced_table_keeps_its_place_and_comment() {
        let text = "# mine\n[mcp_servers.palisade] # why\ncommand = \"old\"\n\n# next\n[last]\na = 1\n";
        let edited = put(text, PATH, &json!({ "command": "new" })).unwrap();
        assert_eq!(edited, text.replace("old", "new"));
    }
}
