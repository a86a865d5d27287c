//! The command `tools` inside a sandbox: for Bash, compiled programs and everything else that can start a command.
//!
//! It is a role of the Palisade executable, which `main` selects by the name of the command. It speaks the line protocol of
//! the tools socket, as programs do, and can do no more than they can.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::access::TOOLS_VARIABLE;
use engine::links::TOOLS_SOCKET;
use serde_json::{Map, Value, json};

use super::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};

/// The name by which the executable is called for this role.
pub const NAME: &str = "tools";
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_RUN: u8 = 3;
const HELP: &str = "\
usage: tools SERVER.TOOL [NAME=VALUE | NAME:=JSON | NAME@=FILE ...] [--raw] [-o FILE]
       tools SERVER.TOOL -            arguments as one JSON object on standard input
       tools find [WORD ...] | describe SERVER.TOOL | servers | read SERVER URI
VALUE is text unless the tool declares another type; := takes JSON, @= the content of a file as base64. The value of the
result goes to standard output; -o writes its image, sound or file. Exit status: 1 the call failed, 2 wrong usage, 3 no run with tools is open.
";

/// Why there is nothing to print.
#[derive(Debug)]
struct Failure {
    status: u8,
    message: String,
}

/// What the words of the command line ask for.
#[derive(Debug, Default, PartialEq)]
struct Words {
    plain: Vec<String>,
    texts: Vec<(String, String)>,
    files: Vec<(String, String)>,
    arguments: Map<String, Value>,
    is_raw: bool,
    reads_stdin: bool,
    output: Option<String>,
}

/// Whether this process was started as the command.
pub fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == NAME))
}

/// Runs the command.
pub fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let path = std::env::var(TOOLS_VARIABLE).unwrap_or_else(|_| TOOLS_SOCKET.to_owned());
    match run(words, &path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, message }) => {
            // Standard error may be closed; the status tells it as well.
            io::stderr().write_all(format!("tools: {message}\n").as_bytes()).ok();
            ExitCode::from(status)
        }
    }
}

fn run(words: Vec<String>, path: &str) -> Result<(), Failure> {
    let words = read_words(words)?;
    let first = words.plain.first().map_or("", String::as_str);
    if first.is_empty() || first == "help" {
        return print(HELP.as_bytes());
    }
    let mut link = Connection::open(path)?;
    match (first, &words.plain[1..]) {
        ("servers", []) => print_json(&link.ask(json!({ "servers": true }))?),
        ("find", more) => {
            let found = link.ask(json!({ "find": more.join(" ") }))?;
            for tool in found["tools"].as_array().into_iter().flatten() {
                let field = |name: &str| tool[name].as_str().unwrap_or_default();
                let line = format!(
                    "{}\t{}\t{}\t{}\n",
                    field("name"),
                    field("access"),
                    field("signature"),
                    field("about")
                );
                print(line.as_bytes())?;
            }
            Ok(())
        }
        ("describe", [name]) => print_json(&link.ask(json!({ "describe": name }))?),
        ("read", [server, uri]) => {
            let read = link.ask(json!({ "read": [server, uri] }))?;
            show(&read["contents"], &words)
        }
        (name, []) if name.contains('.') => {
            let (name, words) = (name.to_owned(), words);
            let arguments = link.arguments(&name, &words)?;
            let result = link.ask(json!({ "call": name, "args": arguments }))?;
            if words.is_raw { print_json(&result) } else { show_result(&result, &words) }
        }
        _ => Err(usage("there is no such use")),
    }
}

fn usage(message: &str) -> Failure {
    Failure { status: USAGE, message: format!("{message}\n{HELP}") }
}

fn failed(message: impl Into<String>) -> Failure {
    Failure { status: FAILED, message: message.into() }
}

fn read_words(given: Vec<String>) -> Result<Words, Failure> {
    let mut words = Words::default();
    let mut given = given.into_iter();
    while let Some(word) = given.next() {
        match word.as_str() {
            "--raw" => words.is_raw = true,
            "-" => words.reads_stdin = true,
            "-h" | "--help" => words.plain = vec!["help".to_owned()],
            "-o" => words.output = Some(given.next().ok_or_else(|| usage("-o needs a file"))?),
            _ if words.plain.is_empty() => words.plain.push(word),
            _ => match (word.split_once(":="), word.split_once('=')) {
                (Some((name, json)), Some((before, _))) if before.len() > name.len() => {
                    let value = serde_json::from_str(json);
                    let value = value.map_err(|_| usage(&format!("the value of `{name}` is no JSON")))?;
                    words.arguments.insert(name.to_owned(), value);
                }
                (_, Some((name, path))) if name.len() > 1 && name.ends_with('@') => {
                    words.files.push((name.trim_end_matches('@').to_owned(), path.to_owned()))
                }
                (_, Some((name, text))) if !name.is_empty() => {
                    words.texts.push((name.to_owned(), text.to_owned()))
                }
                _ => words.plain.push(word),
            },
        }
    }
    Ok(words)
}

/// The connection to the broker.
struct Connection {
    reader: BufReader<UnixStream>,
    number: u64,
}

impl Connection {
    fn open(path: &str) -> Result<Self, Failure> {
        let none = |_| Failure {
            status: NO_RUN,
            message: "no run with tools is open (give the run `access`)".to_owned(),
        };
        let stream = UnixStream::connect(path).map_err(none)?;
        Ok(Self { reader: BufReader::new(stream), number: 0 })
    }

    fn ask(&mut self, mut request: Value) -> Result<Value, Failure> {
        self.number += 1;
        request["id"] = self.number.into();
        let line = format!("{request}\n");
        if line.len() > REQUEST_BYTES_MAX {
            return Err(failed("the request has more than 4 MB"));
        }
        let ended = |_| Failure { status: NO_RUN, message: "the run has ended".to_owned() };
        self.reader.get_mut().write_all(line.as_bytes()).map_err(ended)?;
        let mut answer = Vec::new();
        let bytes_max = ANSWER_BYTES_MAX as u64 + 1;
        self.reader.by_ref().take(bytes_max).read_until(b'\n', &mut answer).map_err(ended)?;
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|_| Failure { status: NO_RUN, message: "the run has ended".to_owned() })?;
        match answer.get("error") {
            None => Ok(answer["ok"].clone()),
            Some(error) => {
                let field = |name: &str| error[name].as_str().unwrap_or_default();
                let remedy = match field("remedy") {
                    "" => String::new(),
                    remedy => format!("; {remedy}"),
                };
                Err(failed(format!("{} [{}]{remedy}", field("message"), field("code"))))
            }
        }
    }

    /// The arguments of a call. A text becomes another type only where the tool declares one.
    fn arguments(&mut self, tool: &str, words: &Words) -> Result<Value, Failure> {
        let mut arguments = words.arguments.clone();
        if words.reads_stdin {
            let mut text = String::new();
            let read = io::stdin().take(REQUEST_BYTES_MAX as u64).read_to_string(&mut text);
            read.map_err(|error| failed(format!("standard input: {error}")))?;
            match serde_json::from_str(&text) {
                Ok(Value::Object(given)) => arguments.extend(given),
                _ => return Err(usage("standard input is no JSON object")),
            }
        }
        for (name, path) in &words.files {
            let file = std::fs::File::open(path).map_err(|error| failed(format!("{path}: {error}")))?;
            let mut bytes = Vec::new();
            let read = file.take(REQUEST_BYTES_MAX as u64).read_to_end(&mut bytes);
            read.map_err(|error| failed(format!("{path}: {error}")))?;
            arguments.insert(name.clone(), STANDARD.encode(bytes).into());
        }
        let mut types = None;
        for (name, text) in &words.texts {
            let other = serde_json::from_str::<Value>(text).ok().filter(|value| !value.is_string());
            let value = match other {
                None => Value::from(text.as_str()),
                Some(other) => {
                    if types.is_none() {
                        types = Some(declared(&self.ask(json!({ "describe": tool }))?));
                    }
                    let is_text = types.as_ref().is_none_or(|types| takes_text(types.get(name)));
                    if is_text { Value::from(text.as_str()) } else { other }
                }
            };
            arguments.insert(name.clone(), value);
        }
        Ok(Value::Object(arguments))
    }
}

/// The declared schemas of the arguments, by name.
fn declared(described: &Value) -> BTreeMap<String, Value> {
    let properties = described.pointer("/input_schema/properties").and_then(Value::as_object);
    let schemas = properties.into_iter().flatten();
    schemas.map(|(name, schema)| (name.clone(), schema.clone())).collect()
}

/// Whether an argument may be text. One that the tool does not declare is text.
fn takes_text(schema: Option<&Value>) -> bool {
    let Some(schema) = schema else { return true };
    match &schema["type"] {
        Value::String(name) => name == "string",
        Value::Array(names) => names.iter().any(|name| name == "string"),
        _ => {
            let choices = ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
            choices.into_iter().any(|choice| choice["type"] == "string")
        }
    }
}

fn show_result(result: &Value, words: &Words) -> Result<(), Failure> {
    let content = &result["content"];
    if result["isError"] == true {
        let texts = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
        return Err(failed(texts.collect::<Vec<_>>().join("\n")));
    }
    match result.get("structuredContent") {
        Some(structured) if !structured.is_null() && words.output.is_none() => print_json(structured),
        _ => show(content, words),
    }
}

/// Prints blocks: texts as they are, the rest as JSON without its bytes. `-o` writes the bytes.
fn show(blocks: &Value, words: &Words) -> Result<(), Failure> {
    let mut is_written = false;
    for block in blocks.as_array().into_iter().flatten() {
        let part = block.get("resource").unwrap_or(block);
        let data = part.get("data").or_else(|| part.get("blob")).and_then(Value::as_str);
        match (data, part["text"].as_str(), &words.output) {
            (Some(data), _, Some(path)) if !is_written => {
                let bytes = STANDARD.decode(data).map_err(|_| failed("the content is no base64"))?;
                std::fs::write(path, bytes).map_err(|error| failed(format!("{path}: {error}")))?;
                is_written = true;
            }
            (Some(data), ..) => {
                let told =
                    json!({ "mime": part["mimeType"], "bytes": data.len() / 4 * 3, "uri": part["uri"] });
                print_json(&told)?;
            }
            (None, Some(text), _) => print(format!("{text}\n").as_bytes())?,
            (None, None, _) => print_json(block)?,
        }
    }
    if words.output.is_some() && !is_written { Err(failed("the result has no file for -o")) } else { Ok(()) }
}

fn print_json(value: &Value) -> Result<(), Failure> {
    print(format!("{value}\n").as_bytes())
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    io::stdout().write_all(bytes).map_err(|error| failed(format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[&str]) -> Words {
        read_words(given.iter().map(|word| (*word).to_owned()).collect()).unwrap()
    }

    #[test]
    fn words_are_texts_json_and_options() {
        let read = words(&[
            "github.list_issues",
            "owner=o",
            "n:=[1,2]",
            "url=a:=b=c",
            "i@=a@b.png",
            "--raw",
            "-o",
            "x.png",
        ]);
        assert_eq!(read.files, [("i".to_owned(), "a@b.png".to_owned())]);
        assert_eq!(read.plain, ["github.list_issues"]);
        let texts =
            [("owner", "o"), ("url", "a:=b=c")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read.texts, texts);
        assert_eq!(read.arguments["n"], json!([1, 2]));
        assert!(read.is_raw && read.output.as_deref() == Some("x.png"));
        assert!(read_words(vec!["a.b".to_owned(), "n:=[".to_owned()]).is_err());
    }

    #[test]
    fn a_text_becomes_another_type_only_where_it_is_declared() {
        let schema = json!({"input_schema": {"properties": {"n": {"type": "integer"}, "s": {"type": ["string", "null"]}}}});
        let types = declared(&schema);
        assert!(!takes_text(types.get("n")) && takes_text(types.get("s")) && takes_text(types.get("other")));
        let choice = |kinds: [&str; 2]| json!({"anyOf": kinds.map(|kind| json!({ "type": kind }))});
        assert!(takes_text(Some(&choice(["string", "null"]))));
        assert!(!takes_text(Some(&choice(["integer", "null"]))));
    }
}
