//! What a server behind the wall probably lacks, by what its configuration names: for `palisade tools add` and `import`.

use std::path::{Path, PathBuf};

use upstreams::{ServerWall, StdioSpec};

/// Advice for the operator, one line each. Nothing is started or read.
pub(crate) fn missing(spec: &StdioSpec) -> Vec<String> {
    let ServerWall::Own { read, write, access } = &spec.wall else { return Vec::new() };
    let sees = |path: &Path| read.iter().chain(write).any(|folder| path.starts_with(folder));
    let args = spec.args.iter().map(|argument| ("an argument".to_owned(), argument.source()));
    let env = spec.env.iter().map(|(name, value)| (format!("the variable {name}"), value.source()));
    let mut lines = Vec::new();
    for (place, text) in args.chain(env) {
        // `--root=/srv` names a path too.
        let value = text.split_once('=').map_or(text.as_str(), |(_, value)| value);
        if let Some(host) = host_in(value).filter(|_| access.is_empty()) {
            lines.push(format!("{place} names {host}, and the server is offline: --access NAME lets it out"));
            continue;
        }
        let path = PathBuf::from(value);
        if path.is_absolute() && path.exists() && !sees(&path) && !is_program(spec, &path) {
            let path = path.display();
            lines.push(format!(
                "{place} names {path}, which the server cannot see: --read {path} or --write {path}"
            ));
        }
    }
    if let Some(cwd) = spec.cwd.as_deref().filter(|cwd| !sees(cwd)) {
        lines.push(format!("cwd is {0}, which the server cannot see: --read {0}", cwd.display()));
    }
    lines
}

/// Whether a path is the program that an interpreter runs, which is shown anyway.
fn is_program(spec: &StdioSpec, path: &Path) -> bool {
    let is_interpreter = ["python", "node"].iter().any(|name| {
        let command = Path::new(&spec.command).file_name().and_then(|file| file.to_str());
        command.is_some_and(|command| command.starts_with(name))
    });
    let script = spec.args.iter().map(upstreams::Template::source).find(|word| !word.starts_with('-'));
    is_interpreter && path.is_file() && script.is_some_and(|script| Path::new(&script) == path)
}

fn host_in(value: &str) -> Option<&str> {
    let rest = ["https://", "http://", "wss://", "postgres://", "postgresql://"]
        .into_iter()
        .find_map(|scheme| value.strip_prefix(scheme))?;
    let host = rest.split(['/', '?']).next()?.rsplit('@').next()?;
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use upstreams::Template;

    use super::*;

    fn spec(args: &[&str], read: &[&str], access: &[&str]) -> StdioSpec {
        StdioSpec {
            command: "node".to_owned(),
            args: args.iter().map(|argument| Template::parse(argument).unwrap()).collect(),
            env: BTreeMap::new(),
            cwd: None,
            wall: ServerWall::Own {
                read: read.iter().map(PathBuf::from).collect(),
                write: Vec::new(),
                access: access.iter().map(|name| (*name).to_owned()).collect(),
            },
        }
    }

    #[test]
    fn paths_and_hosts_that_the_wall_keeps_away_are_named() {
        let lines = missing(&spec(&["/etc/passwd", "/var", "--url=https://u:p@a.example/x"], &[], &[]));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("--read /var") && lines[1].contains("names a.example,"), "{lines:?}");
        assert!(!lines[1].contains("u:p"));
        assert!(missing(&spec(&["x.js", "/var/lib", "https://a.example"], &["/var"], &["web"])).is_empty());
        assert!(missing(&StdioSpec { wall: ServerWall::None, ..spec(&["x", "/var"], &[], &[]) }).is_empty());
    }
}
