//! Changes `[tools.servers]` of the user's `palisade.toml`. Everything else in the file stays as it is.
//!
//! The changed text is read as a configuration before it is written, and replaces the old file at once.

use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use toml_edit::{Array, DocumentMut, Item, Table, Value, value};

use super::arguments::AddArguments;
use super::{Failure, Told, failure};
use crate::config::tools::check_text;
use crate::state;

/// The user's own configuration file.
pub(super) fn own_file() -> Result<PathBuf, Failure> {
    let folder = state::config_home().ok_or_else(|| failure("this user has no configuration directory"))?;
    Ok(folder.join("palisade/palisade.toml"))
}

pub(super) fn read(path: &Path) -> Result<DocumentMut, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failure(format!("{} cannot be read: {error}", path.display()))),
    };
    text.parse().map_err(|error| failure(format!("{} is no TOML: {error}", path.display())))
}

/// The table of servers.
pub(super) fn servers(document: &mut DocumentMut) -> Result<&mut Table, Failure> {
    let wrong = || failure("[tools.servers] of the file is no table: edit it by hand");
    let tools = document.entry("tools").or_insert_with(|| implicit().into());
    let tools = tools.as_table_mut().ok_or_else(wrong)?;
    let servers = tools.entry("servers").or_insert_with(|| implicit().into());
    servers.as_table_mut().ok_or_else(wrong)
}

fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

/// Checks the text and writes it. The file can hold credentials, so only the user may read it.
pub(super) fn write(path: &Path, document: &DocumentMut) -> Result<(), Failure> {
    let text = document.to_string();
    check_text(path, &text).map_err(failure)?;
    let unwritable =
        |error: std::io::Error| failure(format!("{} cannot be written: {error}", path.display()));
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable)?;
    }
    // A link is followed, so that the file itself is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let draft = path.with_extension(format!("toml.{}", std::process::id()));
    let written = || -> std::io::Result<()> {
        let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    };
    written().map_err(unwritable)
}

pub(super) fn texts<'a>(items: impl Iterator<Item = &'a str>) -> Item {
    let list: Array = items.collect();
    value(list)
}

/// A table on one line, of `NAME=VALUE`.
fn pairs(given: &[String], what: &str) -> Result<Item, Failure> {
    let mut table = toml_edit::InlineTable::new();
    for pair in given {
        let wrong = || failure(format!("--{what} `{}` is no NAME=VALUE", terminal::plain(pair)));
        let (name, text) = pair.split_once('=').ok_or_else(wrong)?;
        table.insert(name, Value::from(text));
    }
    Ok(value(table))
}

pub(super) fn add(add: &AddArguments) -> Told {
    let mut table = Table::new();
    match (&add.url, add.command.split_first()) {
        (Some(url), None) => {
            table.insert("url", value(url.as_str()));
            if !add.header.is_empty() {
                table.insert("headers", pairs(&add.header, "header")?);
            }
        }
        (None, Some((command, args))) => {
            table.insert("command", value(command.as_str()));
            if !args.is_empty() {
                table.insert("args", texts(args.iter().map(String::as_str)));
            }
            if !add.env.is_empty() {
                table.insert("env", pairs(&add.env, "env")?);
            }
            for (key, list) in [("read", &add.read), ("write", &add.write), ("access", &add.access)] {
                if !list.is_empty() {
                    table.insert(key, texts(list.iter().map(String::as_str)));
                }
            }
            if add.no_wall {
                table.insert("wall", value("none"));
            }
        }
        _ => {
            let remedy = "palisade tools add NAME --url URL, or palisade tools add NAME -- COMMAND ARGS";
            return Err(("give an address or a command".to_owned(), Some(remedy.to_owned())));
        }
    }
    let path = own_file()?;
    let mut document = read(&path)?;
    let servers = servers(&mut document)?;
    if servers.contains_key(&add.name) && !add.force {
        let message = format!("there is a server `{}` already", terminal::plain(&add.name));
        return Err((message, Some("choose another name, or replace it with --force".to_owned())));
    }
    servers.insert(&add.name, Item::Table(table));
    write(&path, &document)?;
    Ok(format!("{} is in {}; servers that run use it after a restart", add.name, path.display()))
}

pub(super) fn remove(name: &str) -> Told {
    let path = own_file()?;
    let mut document = read(&path)?;
    if servers(&mut document)?.remove(name).is_none() {
        let message = format!("{} has no server `{}`", path.display(), terminal::plain(name));
        return Err((message, Some("`palisade tools list` shows all; others are in other files".to_owned())));
    }
    write(&path, &document)?;
    Ok(format!("{name} is removed; `palisade tools forget` would also drop what was accepted of it"))
}
