//! What is known about the tools of one server: definitions, pins, aliases, learned shapes.
//!
//! A definition is pinned when the server is listed for the first time. A tool that is new or changed later is *held*
//! until the operator accepts it ([`Catalogue::accept`]), and one whose text is suspicious is held from the beginning.
//! Definitions stay text; they are parsed when somebody asks for one. So 10,000 tools take some megabytes.

mod alias;
pub(crate) mod search;
pub(crate) mod shelf;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::clean;
use crate::client::era::Era;
use crate::client::listing::name_of;
use crate::host::Effect;
use crate::shape::Shape;

/// The most characters of a description that a model sees.
pub(crate) const ABOUT_CHARACTERS_MAX: usize = 300;
const TITLE_CHARACTERS_MAX: usize = 100;
/// How many names of parameters are searched.
const PARAMETERS_MAX: usize = 32;
/// The most aliases that are remembered, of tools that are gone too.
const ALIASES_MAX: usize = 40_000;
/// The most tools that are gone whose accepted definitions are remembered.
const GONE_MAX: usize = 10_000;

/// The tools of one server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalogue {
    pub(crate) header: Header,
    /// By name.
    pub(crate) tools: Vec<Tool>,
    /// Names and aliases to places in `tools`.
    places: HashMap<String, usize>,
}

/// What is known about the server.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    /// How it is talked to, if that is known.
    pub(crate) era: Option<Era>,
    /// Its version of the protocol.
    pub(crate) version: String,
    /// What it calls itself, cleaned.
    pub(crate) name: String,
    /// Its instructions, cleaned. Empty if they were suspicious.
    pub(crate) instructions: String,
    /// Whether its tools were ever listed.
    pub(crate) is_listed: bool,
    /// Aliases of all tools that ever were: an alias never changes.
    aliases: BTreeMap<String, String>,
    /// The accepted digests of tools that are gone, by name: such a tool may come back as it was.
    gone: BTreeMap<String, String>,
}

/// One tool.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    pub(crate) facts: Facts,
    /// The definition as compact JSON.
    pub(crate) definition: Box<str>,
    /// The accepted definition, if it is another one.
    pub(crate) pinned_definition: Option<Box<str>>,
}

/// What is kept of a tool beside its definition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) alias: String,
    /// Of the canonical form of the definition, hexadecimal.
    pub(crate) digest: String,
    /// The digest that was accepted.
    pub(crate) pinned: Option<String>,
    /// Why the operator must see the definition first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspicion: Option<String>,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) effect: Effect,
    /// The names of the parameters, for the search.
    pub(crate) parameters: Vec<String>,
    /// What results looked like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<Shape>,
    #[serde(default)]
    pub(crate) seen: u64,
}

/// Whether the definition of a tool is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pin {
    Accepted,
    /// Seen after the first listing.
    New,
    Changed,
    Suspicious(String),
}

impl Pin {
    /// Why it is held; `None` if it is not.
    pub(crate) fn reason(&self) -> Option<String> {
        match self {
            Self::Accepted => None,
            Self::New => Some("the tool is new".to_owned()),
            Self::Changed => Some("its definition has changed".to_owned()),
            Self::Suspicious(why) => Some(format!("its definition is suspicious: {why}")),
        }
    }
}

impl Tool {
    pub(crate) fn pin(&self) -> Pin {
        match (&self.facts.pinned, &self.facts.suspicion) {
            (Some(pinned), _) if *pinned == self.facts.digest => Pin::Accepted,
            (_, Some(why)) => Pin::Suspicious(why.clone()),
            (Some(_), None) => Pin::Changed,
            (None, None) => Pin::New,
        }
    }

    /// Whether the server says what results look like. A look at the text is enough to decide whether to learn.
    pub(crate) fn has_output_schema(&self) -> bool {
        self.definition.contains("\"outputSchema\"")
    }

    /// The definition, parsed.
    pub(crate) fn parsed(&self) -> Map<String, Value> {
        serde_json::from_str(&self.definition).unwrap_or_default()
    }
}

impl Catalogue {
    /// A catalogue of these tools.
    pub(crate) fn new(header: Header, mut tools: Vec<Tool>) -> Self {
        tools.sort_by(|one, other| one.facts.name.cmp(&other.facts.name));
        let mut places = HashMap::with_capacity(tools.len());
        // An alias keeps its meaning when a tool of that name appears later: programs must not call another tool than
        // before. The new tool has an alias of its own.
        for (place, tool) in tools.iter().enumerate() {
            places.insert(tool.facts.alias.clone(), place);
        }
        for (place, tool) in tools.iter().enumerate() {
            places.entry(tool.facts.name.clone()).or_insert(place);
        }
        Self { header, tools, places }
    }

    /// A tool by the name that its server gave it.
    pub(crate) fn named(&self, name: &str) -> Option<&Tool> {
        let place = self.tools.binary_search_by(|tool| tool.facts.name.as_str().cmp(name));
        self.tools.get(place.ok()?)
    }

    /// A tool as a program spells it: by its alias, else by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.get(*self.places.get(name)?)
    }

    /// The place of a tool in `tools`, by its name or alias.
    pub(crate) fn place(&self, name: &str) -> Option<u32> {
        self.places.get(name).and_then(|place| u32::try_from(*place).ok())
    }

    /// How many tools are held.
    pub(crate) fn held(&self) -> usize {
        self.tools.iter().filter(|tool| tool.pin() != Pin::Accepted).count()
    }

    /// Takes a new listing. Pins, aliases and shapes of definitions that are the same stay.
    pub(crate) fn list(&mut self, definitions: Vec<Map<String, Value>>) {
        let is_first = !self.header.is_listed;
        let mut old: HashMap<String, Tool> =
            std::mem::take(&mut self.tools).into_iter().map(|tool| (tool.facts.name.clone(), tool)).collect();
        let mut tools = Vec::with_capacity(definitions.len());
        let listed = definitions.iter().filter_map(|definition| name_of(definition).map(str::to_owned));
        let names: HashSet<String> = old.keys().cloned().chain(listed).collect();
        let mut taken: HashSet<String> = self.header.aliases.values().cloned().collect();
        for definition in definitions {
            let Some(name) = name_of(&definition).map(str::to_owned) else { continue };
            let alias = self.alias(&name, &names, &mut taken);
            let mut tool = read(name, alias, &definition);
            match old.remove(&tool.facts.name) {
                Some(known) => tool.succeed(known),
                None => {
                    let is_pinned = is_first && tool.facts.suspicion.is_none();
                    let first = is_pinned.then(|| tool.facts.digest.clone());
                    tool.facts.pinned = self.header.gone.remove(&tool.facts.name).or(first);
                }
            }
            tools.push(tool);
        }
        for Facts { name, alias, pinned, .. } in old.into_values().map(|tool| tool.facts) {
            // A name that is gone is never the alias of another tool.
            if alias == name && self.header.aliases.len() < ALIASES_MAX {
                self.header.aliases.insert(name.clone(), alias);
            }
            if let Some(pinned) = pinned.filter(|_| self.header.gone.len() < GONE_MAX) {
                self.header.gone.insert(name, pinned);
            }
        }
        self.header.is_listed = true;
        *self = Self::new(std::mem::take(&mut self.header), tools);
    }

    /// Takes a new listing for one principal, beside the catalogue of the server as a whole. What the operator has accepted
    /// there is accepted here. The first listing accepts nothing else, if the server was listed.
    pub(crate) fn list_beside(&mut self, shared: &Self, definitions: Vec<Map<String, Value>>) {
        let is_first = !self.header.is_listed;
        self.list(definitions);
        if !shared.header.is_listed {
            return;
        }
        for tool in &mut self.tools {
            let known = shared.named(&tool.facts.name);
            let of_gone = || shared.header.gone.get(&tool.facts.name);
            let pinned = known.and_then(|known| known.facts.pinned.as_ref()).or_else(of_gone);
            let is_accepted = pinned == Some(&tool.facts.digest);
            if is_accepted || is_first {
                tool.facts.pinned = pinned.cloned();
                tool.pinned_definition = match known.filter(|_| !is_accepted) {
                    Some(known) if known.pin() == Pin::Accepted => Some(known.definition.clone()),
                    known => known.and_then(|known| known.pinned_definition.clone()),
                };
            }
        }
    }

    /// The alias of a tool: the one that it always had, or a new one that is no alias and no name of another tool.
    fn alias(&mut self, name: &str, names: &HashSet<String>, taken: &mut HashSet<String>) -> String {
        if let Some(alias) = self.header.aliases.get(name) {
            return alias.clone();
        }
        let is_taken = |alias: &str| taken.contains(alias) || (alias != name && names.contains(alias));
        let alias = alias::choose(name, is_taken);
        // A name that is its own alias needs no memory, and most names are.
        if alias != name && self.header.aliases.len() < ALIASES_MAX {
            self.header.aliases.insert(name.to_owned(), alias.clone());
        }
        taken.insert(alias.clone());
        alias
    }

    /// Accepts the definitions of these tools, by their own names or aliases, or of all. Returns the names that were held.
    pub(crate) fn accept(&mut self, names: Option<&[String]>) -> Vec<String> {
        // Differences are shown by own names, so these come first.
        let meant: Option<HashSet<String>> = names.map(|names| {
            let tools = names.iter().filter_map(|name| self.named(name).or_else(|| self.get(name)));
            tools.map(|tool| tool.facts.name.clone()).collect()
        });
        let mut accepted = Vec::new();
        for tool in &mut self.tools {
            let is_meant = meant.as_ref().is_none_or(|meant| meant.contains(&tool.facts.name));
            if is_meant && tool.pin() != Pin::Accepted {
                tool.facts.pinned = Some(tool.facts.digest.clone());
                tool.pinned_definition = None;
                accepted.push(tool.facts.name.clone());
            }
        }
        accepted
    }

    /// Forgets what results looked like.
    fn forget_shapes(&mut self) {
        for tool in &mut self.tools {
            (tool.facts.shape, tool.facts.seen) = (None, 0);
        }
    }

    /// Remembers what a result looked like. Returns whether that was news.
    pub(crate) fn learn(&mut self, name: &str, digest: &str, seen: &Shape, times: u64) -> bool {
        let place = self.tools.binary_search_by(|tool| tool.facts.name.as_str().cmp(name));
        let Some(tool) =
            place.ok().and_then(|place| self.tools.get_mut(place)).filter(|tool| tool.facts.digest == digest)
        else {
            return false;
        };
        let merged = match &tool.facts.shape {
            Some(known) => known.clone().merge(seen.clone()),
            None => seen.clone(),
        };
        tool.facts.seen += times;
        let is_news = tool.facts.shape.as_ref() != Some(&merged);
        tool.facts.shape = Some(merged);
        is_news
    }
}

impl Tool {
    /// Takes over what was known about an earlier definition.
    fn succeed(&mut self, known: Self) {
        self.facts.pinned = known.facts.pinned;
        if known.facts.digest == self.facts.digest {
            self.facts.shape = known.facts.shape;
            self.facts.seen = known.facts.seen;
            self.pinned_definition = known.pinned_definition;
        } else {
            // The accepted one, so that the operator can compare.
            self.pinned_definition = match known.pinned_definition {
                None if self.facts.pinned.as_ref() == Some(&known.facts.digest) => Some(known.definition),
                older => older,
            };
        }
        if self.pin() == Pin::Accepted {
            self.pinned_definition = None;
        }
    }
}

/// A tool as its definition describes it.
fn read(name: String, alias: String, definition: &Map<String, Value>) -> Tool {
    let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default();
    let annotations = definition.get("annotations");
    let title = match text("title") {
        "" => annotations.and_then(|all| all.get("title")).and_then(Value::as_str).unwrap_or_default(),
        title => title,
    };
    let properties = definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    let parameters = properties.and_then(Value::as_object).into_iter().flat_map(|all| all.keys());
    let canonical = canonical(definition);
    let facts = Facts {
        alias,
        digest: hex(&Sha256::digest(canonical.as_bytes())),
        pinned: None,
        suspicion: suspicion(definition),
        title: clean::line(title, TITLE_CHARACTERS_MAX),
        about: clean::line(text("description"), ABOUT_CHARACTERS_MAX),
        effect: effect(annotations),
        parameters: parameters.take(PARAMETERS_MAX).map(|name| clean::line(name, 64)).collect(),
        shape: None,
        seen: 0,
        name,
    };
    let definition = serde_json::to_string(definition).unwrap_or_default();
    Tool { facts, definition: definition.into_boxed_str(), pinned_definition: None }
}

/// JSON with sorted keys and no spaces. Numbers stay as the server wrote them.
fn canonical(definition: &Map<String, Value>) -> String {
    fn put(value: &Value, text: &mut String) {
        match value {
            Value::Object(fields) => put_object(fields, text),
            Value::Array(items) => {
                text.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        text.push(',');
                    }
                    put(item, text);
                }
                text.push(']');
            }
            other => text.push_str(&other.to_string()),
        }
    }
    fn put_object(fields: &Map<String, Value>, text: &mut String) {
        let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
        text.push('{');
        for (place, (key, value)) in sorted.into_iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push_str(&Value::from(key.as_str()).to_string());
            text.push(':');
            put(value, text);
        }
        text.push('}');
    }
    let mut text = String::new();
    put_object(definition, &mut text);
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the annotations say. A tool that writes and does not say how may destroy, as the protocol's default is.
fn effect(annotations: Option<&Value>) -> Effect {
    let hint = |name: &str| annotations.and_then(|all| all.get(name)).and_then(Value::as_bool);
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), Some(true)) => Effect::Destructive,
        (Some(true), _) => Effect::Read,
        (_, Some(true)) | (Some(false), None) => Effect::Destructive,
        (Some(false), Some(false)) => Effect::Write,
        (None, Some(false)) => Effect::Write,
        (None, None) => Effect::Unknown,
    }
}

/// Why any text of a definition must be seen by the operator: names of parameters and their descriptions count, too.
fn suspicion(definition: &Map<String, Value>) -> Option<String> {
    fn look(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => clean::suspicion(text),
            Value::Array(items) => items.iter().find_map(look),
            Value::Object(fields) => in_fields(fields),
            _ => None,
        }
    }
    fn in_fields(fields: &Map<String, Value>) -> Option<String> {
        fields.iter().find_map(|(key, value)| clean::suspicion(key).or_else(|| look(value)))
    }
    in_fields(definition)
}
