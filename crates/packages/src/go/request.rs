//! What the go command may ask the broker for, parsed strictly: nothing else reaches a mirror.

use super::names::{Module, escaped, is_module_path, is_version, unescaped};

/// The longest path of a request.
const PATH_BYTES_MAX: usize = 1024;

/// A request of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GoRequest {
    /// The versions of a module.
    List(String),
    /// The version of a module that has no versions in its list.
    Latest(String),
    /// Version and time.
    Info(Module),
    /// The `go.mod` file.
    Mod(Module),
    /// The archive.
    Zip(Module),
    /// Something of the checksum database.
    Sums { database: String, asked: Sums },
}

/// What the checksum database is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sums {
    /// Whether the proxy passes it on.
    Supported,
    /// The signed head of its tree.
    Latest,
    /// The checksums of a module.
    Lookup(Module),
    /// A part of the tree.
    Tile(String),
}

impl GoRequest {
    /// Reads the path of a request.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/').filter(|path| path.len() <= PATH_BYTES_MAX)?;
        // The go command writes the escape of letters with a percent sign.
        let path = path.replace("%21", "!");
        if let Some(rest) = path.strip_prefix("sumdb/") {
            let (database, rest) = rest.split_once('/')?;
            is_module_path(database).then_some(())?;
            return Some(Self::Sums { database: database.to_owned(), asked: Sums::parse(rest)? });
        }
        if let Some(module) = path.strip_suffix("/@latest") {
            return module_path(module).map(Self::Latest);
        }
        let (module, file) = path.split_once("/@v/")?;
        let module = module_path(module)?;
        if file == "list" {
            return Some(Self::List(module));
        }
        let (version, ending) = file.rsplit_once('.')?;
        let module = Module::new(&module, &unescaped(version)?)?;
        match ending {
            "info" => Some(Self::Info(module)),
            "mod" => Some(Self::Mod(module)),
            "zip" => Some(Self::Zip(module)),
            _ => None,
        }
    }
}

impl Sums {
    fn parse(path: &str) -> Option<Self> {
        match path {
            "supported" => return Some(Self::Supported),
            "latest" => return Some(Self::Latest),
            _ => {}
        }
        if let Some(asked) = path.strip_prefix("lookup/") {
            let (module, version) = asked.split_once('@')?;
            return Module::new(&module_path(module)?, &unescaped(version)?).map(Self::Lookup);
        }
        // tile/<height>/<level or "data">/<number in groups of three, all but the last with x>[.p/<width>]
        let tile = path.strip_prefix("tile/")?;
        let is_part = |part: &str| {
            let part = part.strip_suffix(".p").unwrap_or(part);
            let part = part.strip_prefix('x').unwrap_or(part);
            part == "data"
                || !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_tile = (3..=12).contains(&tile.split('/').count()) && tile.split('/').all(is_part);
        is_tile.then(|| Self::Tile(tile.to_owned()))
    }

    /// The path below the database, and whether its content can change.
    pub(super) fn document(&self) -> (String, bool) {
        match self {
            Self::Supported => ("supported".to_owned(), true),
            Self::Latest => ("latest".to_owned(), true),
            Self::Lookup(module) => {
                (format!("lookup/{}@{}", escaped(&module.path), escaped(&module.version)), false)
            }
            Self::Tile(tile) => (format!("tile/{tile}"), false),
        }
    }
}

fn module_path(text: &str) -> Option<String> {
    unescaped(text).filter(|path| is_module_path(path))
}

/// Whether it is a version in a list.
pub(super) fn is_listed(line: &str) -> bool {
    is_version(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_the_protocol_are_understood() {
        let module = |path: &str, version: &str| Module::new(path, version).unwrap();
        let sums = |asked: Sums| GoRequest::Sums { database: "sums.example".to_owned(), asked };
        let path = "github.com/Azure/x";
        for (text, wanted) in [
            ("/github.com/!azure/x/@v/list", GoRequest::List(path.to_owned())),
            ("/github.com/%21azure/x/@latest", GoRequest::Latest(path.to_owned())),
            ("/github.com/!azure/x/@v/v1.0.0.info", GoRequest::Info(module(path, "v1.0.0"))),
            ("/github.com/!azure/x/@v/v1.0.0-!r!c1.mod", GoRequest::Mod(module(path, "v1.0.0-RC1"))),
            (
                "/github.com/!azure/x/@v/v2.0.0+incompatible.zip",
                GoRequest::Zip(module(path, "v2.0.0+incompatible")),
            ),
            ("/sumdb/sums.example/supported", sums(Sums::Supported)),
            ("/sumdb/sums.example/latest", sums(Sums::Latest)),
            (
                "/sumdb/sums.example/lookup/github.com/!azure/x@v1.0.0",
                sums(Sums::Lookup(module(path, "v1.0.0"))),
            ),
            ("/sumdb/sums.example/tile/8/0/x123/456", sums(Sums::Tile("8/0/x123/456".to_owned()))),
            ("/sumdb/sums.example/tile/8/data/012.p/7", sums(Sums::Tile("8/data/012.p/7".to_owned()))),
        ] {
            assert_eq!(GoRequest::parse(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "/",
            "x",
            "/github.com/x",
            "/github.com/x/@v/",
            "/github.com/x/@v/list/",
            "/github.com/x/@v/list.txt",
            "/github.com/x/@v/master.info",
            "/github.com/x/@v/v1.0.0.exe",
            "/github.com/x/@v/../../y/@v/list",
            "/github.com/../x/@v/list",
            "/github.com/%2e%2e/x/@v/list",
            "/github.com/x/@v/v1.0.0/../v2.0.0.zip",
            "/github.com/Azure/x/@v/list",
            "/github.com/!Azure/x/@v/list",
            "/github.com//x/@v/list",
            "/x/@v/list",
            "/github.com/x/@v/list?y=z",
            "/github.com\\x/@v/list",
            "/@v/list",
            "/@latest",
            "//evil.example/x/@v/list",
            "/sumdb/../x/latest",
            "/sumdb/sums.example/",
            "/sumdb/sums.example/other",
            "/sumdb/sums.example/tile/8",
            "/sumdb/sums.example/tile/8/0/../../latest",
            "/sumdb/sums.example/lookup/x",
            "/sumdb/sums.example/lookup/x@v1.0.0",
            "/sumdb/sums.example/tile/8/0/12345",
            "/sumdb/sums.example/tile//0/1",
            "/sumdb//latest",
        ] {
            assert_eq!(GoRequest::parse(text), None, "{text}");
        }
        assert_eq!(GoRequest::parse(&format!("/github.com/{}/@v/list", "x/".repeat(600))), None);
    }
}
