//! `palisade tools import CLIENT`: takes over the servers of an MCP client. Starts nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use engine::access::is_access_name;
use setup::{ForeignReach, ForeignServer, LOCAL_URL, UserFolders};
use toml_edit::{InlineTable, Item, Table, Value, value};
use upstreams::{DEPTH_VARIABLE, ServerWall, StdioSpec, Template};

use super::edit::{own_file, read, servers, texts, write};
use super::{Told, failure};
use crate::state;
use crate::tools::missing::missing;

/// How much of a script is looked at.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

pub(super) fn main(client: &str, print: bool) -> Told {
    let folders = UserFolders { home: state::home(), config: state::config_home() };
    let imported = setup::import(&folders, client).map_err(failure)?;
    let path = own_file()?;
    let mut document = read(&path)?;
    let known = servers(&mut document)?;
    let (mut lines, mut fragment, mut taken) = (Vec::new(), String::new(), 0);
    for (name, reason) in &imported.left_out {
        lines.push(format!("  {}: left out: {reason}", terminal::plain(name)));
    }
    for server in &imported.servers {
        let Some(name) = plain_name(&server.name) else {
            lines.push(format!("  {}: left out: no name can be made of it", terminal::plain(&server.name)));
            continue;
        };
        if is_ourselves(server) {
            lines.push(format!("  {name}: left out: it is Palisade itself"));
        } else if known.contains_key(&name) {
            lines.push(format!("  {name}: left out: a server of that name is configured already"));
        } else {
            let (table, note) = entry(server);
            fragment.push_str(&format!("[tools.servers.{name}]\n{table}\n"));
            known.insert(&name, Item::Table(table));
            lines.push(format!("  {name}: taken{note}"));
            taken += 1;
        }
    }
    let from = imported.path.display();
    if print {
        return Ok(format!("{fragment}# from {from}; nothing was written\n{}", commented(&lines)));
    }
    if taken > 0 {
        write(&path, &document)?;
    }
    let next = "`palisade tools list` shows them; the first use of each pins its definitions";
    Ok(format!("{taken} servers of {from} are in {}\n{}\n{next}", path.display(), lines.join("\n")))
}

fn commented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("#{line}")).collect::<Vec<_>>().join("\n")
}

/// The name of access of a server: other characters become dashes.
fn plain_name(name: &str) -> Option<String> {
    let plain = |one: char| match one {
        'a'..='z' | '0'..='9' | '_' | '-' => one,
        'A'..='Z' => one.to_ascii_lowercase(),
        _ => '-',
    };
    let name: String = name.chars().take(64).map(plain).collect();
    let name = name.trim_matches('-').to_owned();
    is_access_name(&name).then_some(name)
}

/// Whether an entry starts this program, or is its address.
fn is_ourselves(server: &ForeignServer) -> bool {
    match &server.reached {
        ForeignReach::Command { command, args, env, .. } => {
            let named = |word: &str| Path::new(word).file_name().is_some_and(|name| name == "palisade");
            let own = std::env::current_exe().and_then(std::fs::canonicalize).ok();
            let is_own = |word: &str| named(word) || own.is_some() && found(word) == own;
            // Through a wrapper: `sh -c "palisade mcp"`, `env X=1 palisade mcp`.
            let in_words = args.iter().flat_map(|argument| argument.split_whitespace()).any(is_own);
            let in_script = script(command).is_some_and(|text| text.split_whitespace().any(is_own));
            is_own(command) || in_words || in_script || env.contains_key(DEPTH_VARIABLE)
        }
        ForeignReach::Url { url, .. } => {
            let plain = |url: &str| url.trim_end_matches('/').replace("localhost", "127.0.0.1");
            plain(url) == plain(LOCAL_URL)
        }
    }
}

/// The file that a command word names, with links resolved.
fn found(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return std::fs::canonicalize(word).ok();
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|folder| std::fs::canonicalize(folder.join(word)).ok())
}

/// The text of a command that is a script. Nothing is executed.
fn script(command: &str) -> Option<String> {
    let mut text = Vec::new();
    File::open(found(command)?).ok()?.take(SCRIPT_BYTES_MAX).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())
}

/// What the wall keeps from a server, for the operator.
fn lacking(command: &str, args: &[String], env: &BTreeMap<String, String>, cwd: Option<&str>) -> String {
    let template = |text: &String| Template::parse(text).ok();
    let spec = StdioSpec {
        command: command.to_owned(),
        args: args.iter().filter_map(template).collect(),
        env: env.iter().filter_map(|(name, text)| Some((name.clone(), template(text)?))).collect(),
        cwd: cwd.map(PathBuf::from),
        wall: ServerWall::Own { read: Vec::new(), write: Vec::new(), access: Vec::new() },
    };
    let lines = missing(&spec).into_iter().map(|line| format!("\n    missing: {}", terminal::visible(&line)));
    lines.collect()
}

/// The table of a server, and what the operator should know.
fn entry(server: &ForeignServer) -> (Table, String) {
    let mut table = Table::new();
    let mut note = String::new();
    let pairs = |fields: &std::collections::BTreeMap<String, String>| {
        let fields = fields.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str())));
        value(fields.collect::<InlineTable>())
    };
    match &server.reached {
        ForeignReach::Command { command, args, env, cwd } => {
            table.insert("command", value(command.as_str()));
            if !args.is_empty() {
                table.insert("args", texts(args.iter().map(String::as_str)));
            }
            if !env.is_empty() {
                table.insert("env", pairs(env));
            }
            if let Some(cwd) = cwd {
                table.insert("cwd", value(cwd.as_str()));
            }
            note = lacking(command, args, env, cwd.as_deref());
        }
        ForeignReach::Url { url, headers } => {
            table.insert("url", value(url.as_str()));
            if !headers.is_empty() {
                table.insert("headers", pairs(headers));
            }
        }
    }
    (table, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> ForeignServer {
        let args = words[1..].iter().map(|word| (*word).to_owned()).collect();
        let reached =
            ForeignReach::Command { command: words[0].to_owned(), args, env: BTreeMap::new(), cwd: None };
        ForeignServer { name: "x".to_owned(), reached }
    }

    #[test]
    fn palisade_is_recognised_by_name_link_wrapper_variable_and_address() {
        for words in [
            &["/usr/bin/palisade", "mcp"][..],
            &["sh", "-c", "exec palisade mcp"],
            &["env", "A=1", "/opt/palisade", "mcp"],
        ] {
            assert!(is_ourselves(&command(words)), "{words:?}");
        }
        assert!(!is_ourselves(&command(&["uvx", "mcp-server-git"])));
        let folder = harness::TestFolder::new();
        let link = folder.path().join("another-name");
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &link).unwrap();
        assert!(is_ourselves(&command(&[link.to_str().unwrap(), "mcp"])), "a link");
        let wrapper = folder.file("wrapper", "#!/bin/sh\nexec /opt/bin/palisade mcp \"$@\"\n");
        assert!(is_ourselves(&command(&[wrapper.to_str().unwrap()])), "a wrapper");
        let mut deep = command(&["other"]);
        let ForeignReach::Command { env, .. } = &mut deep.reached else { panic!() };
        env.insert(DEPTH_VARIABLE.to_owned(), "1".to_owned());
        assert!(is_ourselves(&deep), "the depth variable");
        let url = |url: &str| ForeignServer {
            name: "x".to_owned(),
            reached: ForeignReach::Url { url: url.to_owned(), headers: BTreeMap::new() },
        };
        assert!(is_ourselves(&url(LOCAL_URL)) && !is_ourselves(&url("https://a.example/mcp")));
    }

    #[test]
    fn names_become_names_of_access() {
        assert_eq!(plain_name("My Server (v2)").as_deref(), Some("my-server--v2"));
        assert_eq!(plain_name("日本"), None);
    }
}
