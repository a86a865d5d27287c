//! `palisade://tools/{server}`: typed declarations of the tools of one server, as `.pyi` or `.d.ts`.

use engine::access::Notation;
use engine::{Caller, Engine};
use rmcp::model::{ErrorData, ResourceContents, ResourceTemplate};

use crate::resources::not_found;
use crate::tools::find_tools::notation;

/// URI template of the declarations.
const TEMPLATE: &str = "palisade://tools/{server}{?language}";
const PREFIX: &str = "palisade://tools/";
const SERVER_BYTES_MAX: usize = 64;

pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(TEMPLATE, "tool_declarations")
        .with_title("The tools of a server")
        .with_description(
            "Typed declarations of the tools that programs can call: language=python or typescript",
        )
        .with_mime_type("text/plain")
}

/// The server and the notation that an address names.
pub(crate) fn parse(uri: &str) -> Option<(String, Notation)> {
    let (server, query) = uri.strip_prefix(PREFIX).map(|rest| rest.split_once('?').unwrap_or((rest, "")))?;
    let is_plain = server.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let language = match query {
        "" => None,
        query => Some(query.strip_prefix("language=")?),
    };
    let is_known = language.is_none_or(|one| ["python", "typescript", "javascript"].contains(&one));
    let is_fit = is_plain && is_known && (1..=SERVER_BYTES_MAX).contains(&server.len());
    is_fit.then(|| (server.to_owned(), notation(language)))
}

/// Reads the declarations of a server. A caller from whom a policy hides one of its tools gets none of them: `find_tools`
/// shows the others.
pub(crate) async fn read(
    (engine, caller): (&Engine, &Caller),
    (server, notation): (&str, Notation),
    uri: &str,
) -> Result<ResourceContents, ErrorData> {
    let index = engine.tool_index().ok_or_else(|| not_found(uri))?;
    let text = index.declarations(caller, server, notation).await;
    let text = text.map_err(|error| match error.code.as_str() {
        "unknown_server" => not_found(uri),
        _ => ErrorData::internal_error(error.message, None),
    })?;
    let mime = match notation {
        Notation::Python => "text/x-python",
        Notation::TypeScript => "text/typescript",
    };
    Ok(ResourceContents::text(text, uri).with_mime_type(mime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_server_and_a_language() {
        assert_eq!(parse("palisade://tools/github"), Some(("github".to_owned(), Notation::Python)));
        let typed = parse("palisade://tools/a-b?language=typescript");
        assert_eq!(typed, Some(("a-b".to_owned(), Notation::TypeScript)));
        for wrong in
            ["palisade://tools/", "palisade://tools/a/b", "palisade://tools/a?x=1", "palisade://runs/a"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
