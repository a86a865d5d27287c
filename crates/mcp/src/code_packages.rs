//! Packages that the code of a run asks for itself, added to the arguments of the call before policy judges it.
//!
//! A rule about `packages`, an approval and the audit therefore see them as if the caller had named them.

use engine::{Caller, RunError};
use policy::Scope;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

use crate::tools::install::PACKAGES;
use crate::tools::{ToolEntry, run};
use crate::{Server, program};

/// Adds what the code asks for. Where this server installs nothing for the caller, the code is left as it is.
pub(crate) async fn add(
    server: &Server,
    caller: &Caller,
    entry: &ToolEntry,
    given: &mut JsonObject,
) -> Result<(), RunError> {
    let is_offered = server.engine.package_book().is_some() && caller.may(Scope::Packages);
    if entry.name != run::NAME || !is_offered {
        return Ok(());
    }
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    let (Some(language), Some(code)) = (text("language"), text("code")) else { return Ok(()) };
    let code = program::as_meant(language, code.to_owned());
    let requirements = server.engine.packages_of_code(language, &code).await?;
    merge(given, requirements);
    Ok(())
}

/// Adds requirements that the arguments do not have yet. Arguments of another type are left to the tool.
fn merge(given: &mut JsonObject, requirements: Vec<String>) {
    if requirements.is_empty() {
        return;
    }
    let entry = given.entry(PACKAGES).or_insert_with(|| json!([]));
    let Value::Array(list) = entry else { return };
    for requirement in requirements {
        let requirement = json!(requirement);
        if !list.contains(&requirement) {
            list.push(requirement);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_of_the_code_join_those_of_the_call() {
        let mut given = JsonObject::from_iter([(PACKAGES.to_owned(), json!(["a", "b"]))]);
        merge(&mut given, vec!["b".to_owned(), "c".to_owned()]);
        assert_eq!(given[PACKAGES], json!(["a", "b", "c"]));
        let mut wrong = JsonObject::from_iter([(PACKAGES.to_owned(), json!("a"))]);
        merge(&mut wrong, vec!["b".to_owned()]);
        assert_eq!(wrong[PACKAGES], json!("a"));
        let mut none = JsonObject::new();
        merge(&mut none, Vec::new());
        assert!(none.is_empty());
    }
}
