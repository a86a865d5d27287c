//! A client of the admin API that holds every answer against the OpenAPI document.

use serde_json::Value;

use crate::http::{Answer, Request, Server};
use crate::keys::showing;
use crate::schema;

/// Where the API begins.
pub const V1: &str = "/admin/v1";

/// A caller of the API.
pub struct AdminClient<'s> {
    server: &'s Server,
    bearer: String,
    /// The document of the server.
    pub document: Value,
}

/// An operation of the document.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `get` or `post`.
    pub method: String,
    /// With its parameter in braces.
    pub path: String,
    /// Its name.
    pub name: String,
    /// The scopes of which one is needed.
    pub scopes: Vec<String>,
}

impl<'s> AdminClient<'s> {
    /// With the server's own token.
    pub fn owner(server: &'s Server) -> Self {
        Self::with_key(server, &server.token)
    }

    /// With that key; the document comes by the server's own token.
    pub fn with_key(server: &'s Server, bearer: &str) -> Self {
        let document = server.ask(&Request::get(&format!("{V1}/openapi.json"))).message();
        assert_eq!(document["openapi"], "3.1.0", "{document:#}");
        Self { server, bearer: bearer.to_owned(), document }
    }

    /// Everything that is documented.
    pub fn operations(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        for (path, methods) in self.document["paths"].as_object().unwrap() {
            for (method, told) in methods.as_object().unwrap() {
                let scopes = told["x-palisade-scopes"].as_array().unwrap().iter();
                all.push(Operation {
                    method: method.clone(),
                    path: path.clone(),
                    name: told["operationId"].as_str().unwrap().to_owned(),
                    scopes: scopes.map(|scope| scope.as_str().unwrap().to_owned()).collect(),
                });
            }
        }
        all
    }

    /// GET of a path beneath the version.
    pub fn get(&self, path: &str) -> Answer {
        self.send(Request::get(&format!("{V1}{path}")), "get", path)
    }

    /// POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(json_request(path, body.to_string()), "post", path)
    }

    /// A request; the answer is held against the document.
    pub fn send(&self, request: Request, method: &str, path: &str) -> Answer {
        let answer = self.server.ask(&showing(request, &self.bearer));
        self.check(method, path.split('?').next().unwrap(), &answer);
        answer
    }

    /// The good answer to a GET.
    pub fn read(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.message()
    }

    /// Fails unless status, headers and body are as documented.
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}: {answer:?}");
        let told = &self.document["paths"][&self.template(path)][method]["responses"];
        let told = &told[&answer.status.to_string()];
        assert!(told.is_object(), "{method} {path}: the status {} is not documented", answer.status);
        let (media, content) = told["content"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(answer.header("content-type"), Some(media.as_str()), "{path}: {answer:?}");
        if media == "application/x-ndjson" {
            let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
            assert!(answer.text().lines().all(is_json), "{path}: {}", answer.text());
            return;
        }
        let schema = &content["schema"];
        let found = schema::flaws(&self.document, schema, &answer.message());
        assert!(found.is_empty(), "{method} {path}: {found:#?}\n{}", answer.text());
    }

    /// The documented path that a path is one of.
    fn template(&self, path: &str) -> String {
        let whole = format!("{V1}{path}");
        let is_it = |known: &&String| {
            let (known, given): (Vec<_>, Vec<_>) = (known.split('/').collect(), whole.split('/').collect());
            known.len() == given.len()
                && known.iter().zip(&given).all(|(one, other)| one.starts_with('{') || one == other)
        };
        let paths = self.document["paths"].as_object().unwrap();
        let exact = paths.keys().find(|known| **known == whole);
        exact
            .or_else(|| paths.keys().find(is_it))
            .unwrap_or_else(|| panic!("{path} is not documented"))
            .clone()
    }
}

/// A POST of that text as JSON.
pub fn json_request(path: &str, body: impl Into<Vec<u8>>) -> Request {
    Request::new("POST", &format!("{V1}{path}"), body.into()).header("Content-Type", "application/json")
}
