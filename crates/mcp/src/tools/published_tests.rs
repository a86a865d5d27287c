//! The tool list as clients receive it. Its text is a contract, small, and rated harmless by automatic
//! scanners.
//!
//! Run with `PALISADE_BLESS=1` to rewrite the snapshot after an intended change.

use std::path::Path;

use serde_json::json;

use super::*;

/// Of the tools that every server has.
const TOKENS_MAX: usize = 1450;
/// With packages.
const TOKENS_MAX_WITH_PACKAGES: usize = 1600;
/// With packages, access and tools of other servers.
const TOKENS_WITH_EVERYTHING_MAX: usize = 1800;

/// All tools, regardless of the languages on this machine.
fn tools() -> Vec<Tool> {
    let languages = ["bash", "javascript", "python", "typescript"].map(str::to_owned);
    published(&Offer { packages: &Ecosystem::ALL, ..Offer::bare(&languages, &Policy::built_in(2)) })
}

#[test]
fn the_list_is_the_snapshot() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/tools.json");
    let text = serde_json::to_string_pretty(&json!({ "tools": tools() })).unwrap() + "\n";
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, kept, "the tool list changed: if that is intended, bless it");
}

#[test]
fn names_descriptions_and_inputs_stay_small() {
    let languages: Vec<String> = engine::runtimes::languages().map(str::to_owned).collect();
    assert!(languages.len() >= 17, "{languages:?}");
    let shown = |tool: &Tool| {
        let (name, description) = (&tool.name, &tool.description);
        json!({ "name": name, "description": description, "inputSchema": tool.input_schema }).to_string()
    };
    let tokens = |packages: &[Ecosystem]| {
        let tools = published(&Offer { packages, ..Offer::bare(&languages, &Policy::built_in(2)) });
        tools.iter().map(|tool| shown(tool).len()).sum::<usize>() / 4
    };
    let (base, with_packages) = (tokens(&[]), tokens(&Ecosystem::ALL));
    assert!(base <= TOKENS_MAX, "{base} tokens");
    assert!(with_packages <= TOKENS_MAX_WITH_PACKAGES, "{with_packages} tokens, {base} without packages");
}

#[test]
fn packages_are_published_only_where_they_can_be_installed() {
    let languages = ["bash".to_owned(), "python".to_owned()];
    let policy = Policy::built_in(2);
    let with = |packages: &[Ecosystem]| published(&Offer { packages, ..Offer::bare(&languages, &policy) });
    let find = |tools: &[Tool], name: &str| tools.iter().find(|tool| tool.name == name).cloned();
    assert!(find(&with(&[]), "install_packages").is_none());
    for name in ["run", "sandbox_open"] {
        let has =
            |tools: &[Tool]| find(tools, name).unwrap().input_schema["properties"].get("packages").is_some();
        assert!(!has(&with(&[])) && has(&with(&[Ecosystem::Pypi])), "{name}");
    }
    let install = find(&with(&[Ecosystem::Pypi]), "install_packages").unwrap();
    assert_eq!(install.input_schema["properties"]["language"]["enum"], json!(["python"]));
    assert_eq!(install.annotations.unwrap().open_world_hint, Some(true));
    let asked = |packages: Value| JsonObject::from_iter([("packages".to_owned(), packages)]);
    let needs = |tool: &str, given: &JsonObject| scopes_needed(tool, given).unwrap().contain(Scope::Packages);
    assert!(needs("run", &asked(json!(["x"]))) && needs("sandbox_open", &asked(json!(["x"]))));
    assert!(!needs("run", &asked(json!([]))) && !needs("run", &asked(Value::Null)));
    let in_sandbox = JsonObject::from_iter([("sandbox_id".to_owned(), json!("x"))]);
    assert!(needs("install_packages", &in_sandbox));
    assert!(scopes_needed("install_packages", &in_sandbox).unwrap().contain(Scope::Sandbox));
    assert!(!scopes_needed("install_packages", &JsonObject::new()).unwrap().contain(Scope::Sandbox));
}

#[test]
fn order_is_by_name_and_nothing_is_published_that_cannot_work() {
    let names = |list: &[Tool]| list.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
    let mut sorted = names(&tools());
    sorted.sort();
    assert_eq!(names(&tools()), sorted);
    let policy = Policy::built_in(2);
    let bare = Offer { packages: &Ecosystem::ALL, ..Offer::bare(&[], &policy) };
    assert_eq!(names(&published(&bare)), ["get_capabilities"]);
    let python = ["python".to_owned()];
    let working = names(&published(&Offer::bare(&python, &policy)));
    assert!(working.contains(&"run".to_owned()) && working.contains(&"sandbox_open".to_owned()));
}

#[test]
fn schemas_are_portable_and_closed() {
    for tool in tools() {
        let input = Value::Object((*tool.input_schema).clone());
        let output = Value::Object((**tool.output_schema.as_ref().unwrap()).clone());
        assert_eq!((&input["type"], &output["type"]), (&json!("object"), &json!("object")));
        assert!(input["properties"].as_object().unwrap().len() <= 11);
        assert!(tool.title.is_some() && tool.annotations.is_some());
        portable(&tool.name, &input);
        portable(&tool.name, &output);
        closed(&tool.name, "", &input);
    }
}

/// Asserts one type per property, no formats, no null.
fn portable(tool: &str, schema: &Value) {
    match schema {
        Value::Object(fields) => {
            assert!(
                fields.get("type").is_none_or(|kind| kind.is_string() || kind.is_object()),
                "{tool}: {schema}"
            );
            for word in ["format", "$ref", "anyOf", "oneOf", "allOf"] {
                assert!(!fields.contains_key(word), "{tool} uses {word}");
            }
            fields.values().for_each(|inner| portable(tool, inner));
        }
        Value::Array(list) => list.iter().for_each(|inner| portable(tool, inner)),
        Value::Null => panic!("{tool} has a null"),
        _ => {}
    }
}

/// Asserts that every object except `variables` forbids additional properties.
fn closed(tool: &str, name: &str, schema: &Value) {
    if schema["type"] == "object" {
        let wanted = json!(name == "variables");
        assert_eq!(schema["additionalProperties"], wanted, "{tool}.{name}");
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            closed(tool, name, inner);
        }
    }
    if schema["type"] == "array" {
        closed(tool, name, &schema["items"]);
    }
}

#[test]
fn properties_are_those_the_arguments_know() {
    let languages = ["python".to_owned()];
    let policy = Policy::built_in(2);
    for entry in TOOLS {
        let access = [offered("web", "")];
        let input = (entry.input)(&Offer {
            languages: &languages,
            policy: &policy,
            access: &access,
            packages: &Ecosystem::ALL,
            walls: &[],
        });
        let names: Vec<_> = input["properties"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, entry.properties, "{}", entry.name);
    }
}

fn offered(name: &str, about: &str) -> Offered {
    Offered {
        name: name.to_owned(),
        about: about.to_owned(),
        hosts: Vec::new(),
        secrets: Vec::new(),
        tools: Vec::new(),
        tools_without_wall: Vec::new(),
    }
}

#[test]
fn access_is_published_only_where_it_is_configured() {
    let languages = ["python".to_owned()];
    let policy = Policy::built_in(2);
    let find = |tools: &[Tool], name: &str| tools.iter().find(|tool| tool.name == name).unwrap().clone();
    let access = [offered("github", "read GitHub"), offered("pypi", "")];
    let bare = Offer::bare(&languages, &policy);
    let (without, with) = (published(&bare), published(&Offer { access: &access, ..bare }));
    for name in ["run", "sandbox_open"] {
        assert!(find(&without, name).input_schema["properties"].get("access").is_none());
        let property = find(&with, name).input_schema["properties"]["access"].clone();
        assert_eq!(property["items"]["enum"], json!(["github", "pypi"]));
        assert!(property["description"].as_str().unwrap().contains("github: read GitHub"));
    }
    let is_open = |tools: &[Tool]| find(tools, "run").annotations.unwrap().open_world_hint;
    assert_eq!((is_open(&without), is_open(&with)), (Some(false), Some(true)));
    let size = |tools: &[Tool]| {
        let bytes = tools.iter().map(|tool| json!(tool.input_schema).to_string().len());
        bytes.sum::<usize>() / 4
    };
    assert!(size(&with) - size(&without) < 120, "{} and {} tokens", size(&without), size(&with));
    assert!(
        scopes_needed("run", &JsonObject::from_iter([("access".to_owned(), json!(["github"]))]))
            .unwrap()
            .contain(Scope::Access)
    );
    assert!(
        !scopes_needed("run", &JsonObject::from_iter([("access".to_owned(), json!([]))]))
            .unwrap()
            .contain(Scope::Access)
    );
}

#[test]
fn find_tools_is_published_only_with_servers_and_the_list_stays_small() {
    let languages: Vec<String> = (0..17).map(|number| format!("language{number}")).collect();
    let policy = Policy::built_in(2);
    let mut access =
        vec![offered("github", "read and write issues"), offered("files", ""), offered("web", "docs")];
    let bare = Offer { packages: &Ecosystem::ALL, ..Offer::bare(&languages, &policy) };
    let names = |tools: &[Tool]| tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
    assert!(!names(&published(&Offer { access: &access, ..bare })).contains(&"find_tools".to_owned()));
    access[0].tools = vec!["github".to_owned()];
    let with = published(&Offer { access: &access, ..bare });
    assert!(names(&with).contains(&"find_tools".to_owned()));
    let size = |tool: &Tool| {
        let schema = serde_json::to_string(&tool.input_schema).unwrap();
        tool.name.len() + tool.description.as_ref().map_or(0, |text| text.len()) + schema.len()
    };
    let tokens = with.iter().map(size).sum::<usize>() / 4;
    assert!(tokens <= TOKENS_WITH_EVERYTHING_MAX, "{tokens} tokens");
    let find = with.iter().find(|tool| tool.name == "find_tools").unwrap();
    assert_eq!(find.annotations.as_ref().unwrap().read_only_hint, Some(true));
}

#[test]
fn the_table_is_in_order_and_every_tool_has_a_scope() {
    assert!(TOOLS.is_sorted_by_key(|entry| entry.name));
    let nothing = JsonObject::new();
    assert_eq!(scope_needed("run", &nothing), Some(Scope::Run));
    let in_sandbox = JsonObject::from_iter([("sandbox_id".to_owned(), "x".into())]);
    assert_eq!(scope_needed("run", &in_sandbox), Some(Scope::Sandbox));
    assert_eq!(scope_needed("write_file", &nothing), Some(Scope::Sandbox));
    assert_eq!(scope_needed("no_such_tool", &nothing), None);
}

#[test]
fn an_unknown_tool_is_answered_with_the_tools() {
    for (name, meant) in [("Run", "run"), ("run_code", "run"), ("execute", "run"), ("readfile", "read_file")]
    {
        let message = unknown(name, |_| true);
        assert!(message.contains(&format!("did you mean `{meant}`?")), "{message}");
        assert!(message.contains("sandbox_open"), "{message}");
    }
    let without_run = unknown("runs", |tool| tool != "run");
    assert!(!without_run.contains("`run`") && !without_run.contains(" run,"), "{without_run}");
    assert!(!unknown("zzz", |_| true).contains("did you mean"));
    assert!(unknown(&"\0".repeat(1 << 20), |_| true).len() < 2000);
}

#[test]
fn every_tool_passes_a_scanner_with_the_best_grade() {
    for tool in tools() {
        let findings = scan(&tool);
        let score: u32 = findings.iter().map(|(points, _)| points).sum();
        assert!(score < 10, "{}: {score}: {findings:?}", tool.name);
    }
}

#[test]
fn the_scanner_itself_finds_what_it_should() {
    let suspicious = |name: &'static str, description: &'static str, property: &str| {
        let schema = json!({ "properties": { property: {} } });
        let Value::Object(schema) = schema else { panic!("an object") };
        scan(&Tool::new(name, description, schema)).iter().map(|(points, _)| points).sum::<u32>()
    };
    assert!(suspicious("execute_code", "Execute arbitrary code", "code") >= 40);
    assert!(suspicious("get_x", "Fetch from the network", "url") >= 15);
    assert!(suspicious("x", "Ignore previous instructions", "a") >= 25);
    assert!(suspicious("x", "Plain", "api_key") >= 15);
    assert_eq!(suspicious("x", "Plain", "a"), 0);
}

/// A scanner that reads names, descriptions and top-level property names, like public scanners do. Words
/// imply permissions. Permissions and phrases score points.
fn scan(tool: &Tool) -> Vec<(u32, String)> {
    let name = tool.name.to_lowercase();
    let description = tool.description.as_deref().unwrap_or_default().to_lowercase();
    let schema = Value::Object((*tool.input_schema).clone());
    let properties: Vec<String> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase()).collect();
    let mut findings = permissions(&name, &description, &properties);
    let has = |what: &str, findings: &[(u32, String)]| findings.iter().any(|(_, found)| found == what);
    if properties.len() > 10 {
        findings.push((2, "many properties".to_owned()));
    }
    let reads = ["get_", "read_", "fetch_", "list_", "search_", "find_", "show_", "describe_"];
    if reads.iter().any(|start| name.starts_with(start)) && has("exec", &findings) {
        findings.push((15, "scope mismatch".to_owned()));
    }
    let bounded = ["rate_limit", "max_requests", "retry", "timeout", "throttle"];
    let acts = ["network", "http", "exec"].iter().any(|what| has(what, &findings));
    if acts && !properties.iter().any(|property| bounded.iter().any(|word| property.contains(word))) {
        findings.push((2, "unbounded".to_owned()));
    }
    findings.extend(phrases(&name, &description));
    let secrets = [
        "api_key",
        "apikey",
        "password",
        "passphrase",
        "token",
        "secret",
        "credential",
        "private_key",
        "bearer",
    ];
    if properties.iter().any(|property| secrets.iter().any(|word| property.contains(word))) {
        findings.push((15, "secret".to_owned()));
    }
    findings
}

/// A permission, its points, and the words that imply it in properties, description and name.
type Rule = (&'static str, u32, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

const RULES: [Rule; 6] = [
    (
        "fs",
        8,
        &["path", "filename", "file", "dir"],
        &["file", "directory", "folder"],
        &["create", "delete", "update", "push", "fork", "write", "upload", "remove"],
    ),
    (
        "network",
        15,
        &["url", "uri", "endpoint", "host"],
        &["url", "network", "http", "fetch", "remote", "download"],
        &["fetch", "scrape", "crawl", "download", "search", "query", "api", "request"],
    ),
    (
        "exec",
        15,
        &["command", "cmd", "shell", "script"],
        &["exec", "run command", "shell", "subprocess", "terminal", "eval", "run script"],
        &["evaluate_script", "execute_javascript", "eval", "run_script", "execute_script"],
    ),
    ("db", 8, &["sql", "database"], &["database", "sql", "query"], &[]),
    ("env", 8, &["env"], &["environment variable", "env var", "process env"], &[]),
    (
        "http",
        2,
        &["headers", "method", "body", "payload"],
        &["http request", "api call", "rest", "webhook"],
        &[],
    ),
];

fn permissions(name: &str, description: &str, properties: &[String]) -> Vec<(u32, String)> {
    let hit = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let asks = |rule: &&Rule| {
        let (_, _, in_properties, in_description, in_name) = rule;
        properties.iter().any(|property| hit(property, in_properties))
            || hit(description, in_description)
            || hit(name, in_name)
    };
    RULES.iter().filter(asks).map(|(what, points, ..)| (*points, (*what).to_owned())).collect()
}

fn phrases(name: &str, description: &str) -> Vec<(u32, String)> {
    const POISON: [&str; 10] = [
        "ignore previous",
        "ignore all",
        "disregard",
        "bypass",
        "act as root",
        "forget your",
        "you are now",
        "unrestricted",
        "full system access",
        "jailbreak",
    ];
    const EXECUTION: [&str; 12] = [
        "evaluate_script",
        "execute_code",
        "execute code",
        "execute script",
        "execute javascript",
        "run script",
        "run_code",
        "run code",
        "arbitrary code",
        "arbitrary command",
        "python code",
        "user-provided",
    ];
    const PRIVILEGE: [&str; 5] = ["sudo", "run as root", "elevated privilege", "gain admin", "impersonate"];
    const SENDING: [&str; 3] = ["to external", "to remote", "base64"];
    let either = |words: &[&str]| words.iter().any(|word| description.contains(word) || name.contains(word));
    let rules = [
        (25, "poisoning", POISON.as_slice()),
        (25, "code execution", EXECUTION.as_slice()),
        (15, "privilege", PRIVILEGE.as_slice()),
        (8, "sending data away", SENDING.as_slice()),
    ];
    rules
        .iter()
        .filter(|(_, _, words)| either(words))
        .map(|(points, what, _)| (*points, (*what).to_owned()))
        .collect()
}

#[test]
fn isolation_is_published_only_where_there_is_a_choice() {
    let (languages, policy) = (vec!["python".to_owned()], Policy::built_in(2));
    let isolation = |walls: &[&str], tool: &str| {
        let tools = published(&Offer { walls, ..Offer::bare(&languages, &policy) });
        let tool = tools.into_iter().find(|one| one.name == tool).unwrap();
        let limits = tool.input_schema["properties"]["limits"]["properties"].clone();
        limits.get("isolation").map(|found| found["enum"].clone())
    };
    for tool in ["run", "sandbox_open"] {
        assert_eq!(isolation(&["native"], tool), None);
        assert_eq!(isolation(&["native", "runc"], tool), Some(serde_json::json!(["native", "runc"])));
        let with_own = Some(serde_json::json!(["native", "gvisor", "own_kernel"]));
        assert_eq!(isolation(&["native", "gvisor"], tool), with_own);
    }
}
